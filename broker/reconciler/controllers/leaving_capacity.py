"""Moves jobs off bought capacity before it ends: they save a checkpoint, stop and continue elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.wait_reasons import MoveAdvantage, MovesElsewhere
from broker.core.market.offers import CapacityType, Offer
from broker.ledger.journal import Journal, append_if
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext


class LeavingCapacity(Controller):
    """Stops an attempt when its job has to leave the capacity that it runs on.

    ``leaves``: returns that time (UTC) for a placement's offer; None for an offer that does not end. ``every``:
    how long this answer is reused, in broker time.
    """

    def __init__(
        self,
        journal: Journal,
        leaves: Callable[[Offer], datetime | None],
        every: timedelta = timedelta(minutes=1),
    ) -> None:
        self._journal = journal
        self._leaves = leaves
        self._every = every

    def goes_by(self, about: JobContext) -> int | None:
        """The attempt that occupies reserved capacity."""
        latest = about.view.latest
        if latest is None or latest.state.final or latest.stop_requested is not None or about.view.cancel_requested:
            return None
        reserved = latest.placement.offer.capacity_type is CapacityType.RESERVED
        return latest.number if reserved and latest.state is not AttemptState.REQUESTED else None

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if it is time. Raises `NoLongerCurrent` and `StoreProblem`."""
        view, latest, now = about.view, about.view.latest, about.now
        assert latest is not None, "a job without an attempt gets no such step"
        leaves = self._leaves(latest.placement.offer)
        if leaves is None or now < leaves:
            return AtRest(now + self._every if leaves is None else min(leaves, now + self._every))
        why = f"the bought capacity ends soon; the job leaves it at {leaves:%Y-%m-%d %H:%M} UTC"
        reason = MovesElsewhere(advantage=MoveAdvantage.CAPACITY_ENDS, to=None, because=why)
        stop = ev.StopRequested(cause=Cause.MOVED, by="the end of the bought capacity", reason=reason)
        append_if(self._journal, view, [(latest.number, stop)], now)
        return DecideAnew()
