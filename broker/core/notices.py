"""Notices: messages sent outside the command line, each once."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a notice, in the terms of notification services."""

    INFO = "info"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Notice:
    """One message. ``key`` names the occasion (``budget/nlp/2026-11/80%``): a key is sent once. ``title`` is one line;
    ``body`` plain text without secrets. ``thread`` names the incident (``budget/nlp/2026-11``), of which there may be
    several notices; empty: this one alone. ``teams``: those it is about; none: it is about no team in particular.
    """

    key: str
    title: str
    body: str
    severity: Severity = Severity.INFO
    thread: str = ""
    teams: tuple[str, ...] = ()
