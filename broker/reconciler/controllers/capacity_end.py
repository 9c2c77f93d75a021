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


class CapacityEnd(Controller):
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
        is_reserved = latest.placement.offer.capacity_type is CapacityType.RESERVED
        return latest.number if is_reserved and latest.state is not AttemptState.REQUESTED else None

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if it is time. Raises `NoLongerCurrent` and `StoreProblem`."""
        view, latest, now = about.view, about.view.latest, about.now
        assert latest is not None, "a job without an attempt gets no such step"
        leave_at = self._leaves(latest.placement.offer)
        if leave_at is None or now < leave_at:
            return AtRest(now + self._every if leave_at is None else min(leave_at, now + self._every))
        explanation = f"the bought capacity ends soon; the job leaves it at {leave_at:%Y-%m-%d %H:%M} UTC"
        reason = MovesElsewhere(advantage=MoveAdvantage.CAPACITY_ENDS, to=None, because=explanation)
        stop = ev.StopRequested(cause=Cause.MOVED, by="the end of the bought capacity", reason=reason)
        append_if(self._journal, view, [(latest.number, stop)], now)
        return DecideAnew()
