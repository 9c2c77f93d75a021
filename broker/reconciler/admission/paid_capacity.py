"""Waits for prepaid capacity: reads its occupants from the store for the decision in
`broker.placement.wait_for_reserved`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.job.placements import Plan
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.policy import LiveAttempt
from broker.ledger.journal import Reading
from broker.placement.wait_for_reserved import PAID, Occupant, WaitForReserved, worth_waiting

# Jobs of others leave machines that are lent once their owner waits for them: how long that takes, as a rule, and how
# long the owner's job waits for it before it rents.
_LEFT_WITHIN, RECALLED_WITHIN = timedelta(minutes=5), timedelta(minutes=20)


class PaidMarket(Protocol):
    """``offers``: what is there. ``coming``: bought machines with the beginning of their period (UTC)."""

    @property
    def offers(self) -> Iterable[Offer]: ...
    @property
    def coming(self) -> Sequence[tuple[Offer, datetime]]: ...


def wait_for_paid(
    look: Reading,
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
    start now. Without ``longest``, too, a job waits for machines of its own team that are lent: others leave them then.

    ``free``: the plan over free capacity. ``unoccupied`` makes the plan over all capacity and the offers given to it;
    called only if prepaid machines are in use or coming and ``free`` would rent.
    """
    if not free.placements or any(p.offer.capacity_type in PAID for p in free.placements):
        return None
    pools = {offer.capacity: offer for offer in market.offers if offer.capacity_type in PAID}
    busy = [one for one in live if (one.capacity or one.pool) in pools]
    lent = [one for one in busy if _is_lent(one, pools[one.capacity or one.pool])]
    longest = max(longest or RECALLED_WITHIN, RECALLED_WITHIN) if lent else longest
    if not longest or not (busy or market.coming):
        return None
    occupants = [
        Occupant(
            one.capacity or one.pool,
            one.share if one.capacity else one.nodes,
            now + _LEFT_WITHIN if one in lent else _done_at(look, one),
        )
        for one in busy
    ]
    # What has not begun yet is as good as occupied until then.
    occupants += [Occupant(offer.capacity, offer.slots or 0, begins) for offer, begins in market.coming]
    all_of_it = unoccupied([offer for offer, _ in market.coming])
    return worth_waiting(free, all_of_it, occupants, now=now, since=since, longest=longest)


def _is_lent(live: LiveAttempt, offer: Offer) -> bool:
    """Whether a job of another team runs at an internal price on machines that are this job's team's own."""
    borrowed = live.money is MoneyKind.CASH and live.capacity_type is CapacityType.RESERVED
    return borrowed and offer.money is MoneyKind.AMORTISED


def _done_at(look: Reading, live: LiveAttempt) -> datetime | None:
    """When that job is expected to finish there, by its plan (UTC); None if unknown."""
    latest = next((view.latest for view in look.views([live.job_id])), None)
    return latest.placement.finish if latest is not None else None
