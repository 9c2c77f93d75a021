"""The record of a decision: what was asked, what was seen, what was answered. Kept for every admission and move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from broker.core.policy import ActionKind, Answer, Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """One passage through the gate. ``facts_hash``: SHA-256 over everything the judgement saw (job, plan, facts,
    policy version), so that the same inputs can be recognised; ``seen``: the part of it worth keeping in words."""

    at: datetime
    action: ActionKind
    user: str
    job_name: str
    answer: Answer
    policy_version: str
    facts_hash: str
    job_id: str | None = None
    attempt: int | None = None
    pool: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    seen: Mapping[str, object] = field(default_factory=dict)
