"""Waits for prepaid capacity: reads from the store who occupies it, for the decision in
`broker.placement.wait_for_reserved`.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.job.placements import Plan
from broker.core.market.offers import BOUGHT, Offer
from broker.core.policy.policy import LiveAttempt
from broker.placement.wait_for_reserved import Occupant, WaitForReserved, find_reserved_wait
from broker.store.jobs.reader import StoreReader


class PaidMarket(Protocol):
    """``offers``: the present offers. ``coming``: bought machines, each with the beginning of its period (UTC)."""

    @property
    def offers(self) -> Iterable[Offer]: ...
    @property
    def coming(self) -> Sequence[tuple[Offer, datetime]]: ...


def wait_for_paid(
    snapshot: StoreReader,
    market: PaidMarket,
    live: Sequence[LiveAttempt],
    free: Plan,
    unoccupied: Callable[[Sequence[Offer]], Plan],
    *,
    now: datetime,
    since: datetime,
    longest: timedelta | None,
) -> WaitForReserved | None:
    """The prepaid capacity for which a job should wait, at most ``longest`` after ``since`` (UTC); None if it should
    start now.

    ``free``: the plan over free capacity. ``unoccupied`` makes the plan over all capacity and the offers passed to it;
    it is called only if prepaid machines are in use or coming and ``free`` would rent.
    """
    if not longest or not free.placements or any(p.offer.capacity_type in BOUGHT for p in free.placements):
        return None
    pools = {offer.capacity for offer in market.offers if offer.capacity_type in BOUGHT}
    busy = [attempt for attempt in live if (attempt.capacity or attempt.pool) in pools]
    if not (busy or market.coming):
        return None
    occupants = [
        Occupant(
            attempt.capacity or attempt.pool,
            attempt.share if attempt.capacity else attempt.nodes,
            _expected_finish(snapshot, attempt),
        )
        for attempt in busy
    ]
    # A purchase whose period has not begun counts as occupied until it begins.
    occupants += [Occupant(offer.capacity, offer.slots or 0, begins) for offer, begins in market.coming]
    plan_of_all = unoccupied([offer for offer, _ in market.coming])
    return find_reserved_wait(free, plan_of_all, occupants, now=now, since=since, longest=longest)


def _expected_finish(snapshot: StoreReader, live: LiveAttempt) -> datetime | None:
    """When that job is expected to finish there, by its plan (UTC); None if unknown."""
    latest = next((view.latest for view in snapshot.views([live.job_id])), None)
    return latest.placement.finish if latest is not None else None
