"""Notices: what people are told outside of the command line, each once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a notice matters; the words are those of the field's notification services."""

    INFO = "info"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. ``key`` names the occasion (``budget/nlp/2026-11/80%``): what has been told under a key is not
    told again, whoever asks and however often. ``title`` is one line; ``body`` plain text without secrets."""

    key: str
    title: str
    body: str
    severity: Severity = Severity.INFO
