"""What the agent of one attempt has written to its run folder, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause


@dataclass(frozen=True, slots=True)
class Dated:
    """An event body and when it happened (UTC)."""

    at: datetime
    body: EventBody


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """The agent's last word (``exit.json``)."""

    at: datetime
    cause: Cause
    exit_status: int | None = None
    evidence: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """What lies in an attempt's run folder: new journal entries, the heartbeat, the exit record.

    ``heartbeat_at`` is the node's word and its clock may be off: only that it changes is taken for a sign of life.
    ``unreachable``: the object store did not answer, so nothing is known, and nothing follows from silence.
    """

    journal: tuple[Dated, ...] = ()
    heartbeat_at: datetime | None = None
    unreachable: bool = False
    step: int | None = None
    total: int | None = None
    phase: str = ""
    exit: ExitRecord | None = None
