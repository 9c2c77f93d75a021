"""The findings of `gpubroker doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from broker.app.results.values import Facts


class Health(StrEnum):
    """``note``: fine, but something optional is missing or worth knowing. ``problem``: something will not work."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One checked thing: its state, and how to fix it. ``facts``: details for programs."""

    area: str
    health: Health
    message: str
    fix: str = ""
    facts: Facts = field(default_factory=dict)


def healthy(findings: Sequence[DoctorFinding]) -> bool:
    """Whether no finding is a problem."""
    return all(finding.health is not Health.PROBLEM for finding in findings)
