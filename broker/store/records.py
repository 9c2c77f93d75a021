"""The values the store gives back that are no one else's: poll runs and policy versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PollRun:
    """One poll of one provider (times UTC). ``complete``: it told everything there is, so what it did not tell of is
    gone. ``changed``: how many prices or availabilities changed. ``skipped``: rows not understood, by reason.
    ``error`` is empty when all went well."""

    provider: str
    started: datetime
    finished: datetime
    seen: int
    changed: int
    complete: bool
    skipped: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One activation of a policy set: which files (name → text), when (UTC), by whom. Numbers count up from 1; the
    highest is the active one. ``sha256`` is over names and texts, so equal sets are recognised."""

    number: int
    activated_at: datetime
    by: str
    sha256: str
    files: Mapping[str, str]
    note: str = ""
