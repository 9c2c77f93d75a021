"""The run folder as the reconciler sees it; the real one, on an object store, is in `runfolder`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.policy.policy import IdleLimit


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


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The broker's grant to the node: until when it is paid (UTC; None: nothing is billed), the end of the job's
    granted duration, whether it must stop now, and how long it may continue without a renewed lease (None: until the
    end). ``idle``: the idleness limits, which the node checks itself. ``standby``: it must wait for the handover, and
    neither restore nor write.
    """

    paid_until: datetime | None = None
    ends_at: datetime | None = None
    stop: Cause | None = None
    max_unattended: timedelta | None = None
    idle: tuple[IdleLimit, ...] = ()
    standby: bool = False


class Mailbox(Protocol):
    """The broker's side of the run folders. Every call may raise `RetryLater`; every write may be repeated."""

    def url(self, view: JobView, attempt: AttemptView) -> str:
        """The object-store URL of the attempt's run folder."""

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """Write what the node needs to start (``spec.json``) and its lease."""

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """Replace the lease."""

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        """The last written lease, by any process; None if there is none."""

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        """Renew the node's credentials for its folder, if they expire and it is time. Called often."""

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        """The node's reports: journal entries after ``attempt.agent_events``, heartbeat, exit record. Reads the exit
        record first, so that no journal entry of an ended attempt is missed."""
