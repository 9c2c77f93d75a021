"""What `gpubroker doctor` finds, one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Health(StrEnum):
    """``note``: fine, but something optional is missing or worth knowing. ``problem``: something will not work."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing looked at: what it is, and how to mend it when it is not right. ``facts``: for programs."""

    area: str
    health: Health
    message: str
    fix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def healthy(findings: Sequence[DoctorFinding]) -> bool:
    """Whether nothing is broken; notes are fine."""
    return all(finding.health is not Health.PROBLEM for finding in findings)
