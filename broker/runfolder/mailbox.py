"""The run folder as the reconciler sees it. `broker.runfolder.runfolder` is the real one, on an object store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.policy.policy import IdleLimit
from broker.runfolder.node_state import NodeState


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """What the broker grants the node: until when it is paid for (None: nothing is billed), when the job's time is up,
    whether it must stop now, and for how long it may go on when the lease is not renewed (None: all that time).
    ``idle``: what of idleness ends it, which the node sees for itself."""

    paid_until: datetime | None = None
    ends_at: datetime | None = None
    stop: Cause | None = None
    max_unattended: timedelta | None = None
    idle: tuple[IdleLimit, ...] = ()


class Mailbox(Protocol):
    """The broker's side of the run folders. Every call may raise `RetryLater`; every write may be repeated."""

    def url(self, view: JobView, attempt: AttemptView) -> str:
        """The object-store URL of the attempt's run folder."""
        ...

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """Write what the node needs to start (``spec.json``) and its lease."""
        ...

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """Replace the lease."""
        ...

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        """The lease as it was written last, by whatever process; None where there is none."""
        ...

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        """What the node has left there: journal entries after ``attempt.agent_events``, heartbeat, exit record. The
        exit record is read first, so that no journal entry of an ended attempt is missed."""
        ...
