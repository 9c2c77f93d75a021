"""The goal of a deployment. A module of its own: the command line lists the choices without importing the economics."""

from __future__ import annotations

from enum import StrEnum


class Goal(StrEnum):
    """The purpose of the deployment."""

    FINE_TUNE = "fine-tune"
    PRETRAIN = "pretrain"
    SERVE = "serve"
