"""What a deployment is for. By itself, so that the command line can name the choices without the arithmetic."""

from __future__ import annotations

from enum import StrEnum


class Goal(StrEnum):
    """What is to be done with the model."""

    FINE_TUNE = "fine-tune"
    PRETRAIN = "pretrain"
    SERVE = "serve"
