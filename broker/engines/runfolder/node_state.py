"""The reports of one attempt's agent in its run folder, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause


@dataclass(frozen=True, slots=True)
class Dated:
    """An event body and when it happened (UTC)."""

    at: datetime
    body: EventBody


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """The agent's record of the attempt's end (``exit.json``)."""

    at: datetime
    cause: Cause
    exit_status: int | None = None
    evidence: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """The content of an attempt's run folder: new journal entries, the heartbeat, the exit record.

    ``heartbeat_at`` is the time of the node's clock, which may be wrong: only its change counts as a sign of life.
    ``unreachable``: the object store did not answer, so a missing heartbeat means nothing. ``silent``: the age of the
    last heartbeat by the object store's clock, in broker time; zero if it is less than some minutes.
    """

    journal: tuple[Dated, ...] = ()
    heartbeat_at: datetime | None = None
    unreachable: bool = False
    step: int | None = None
    total: int | None = None
    phase: str = ""
    exit: ExitRecord | None = None
    silent: timedelta = timedelta(0)
