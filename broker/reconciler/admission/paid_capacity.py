"""Waits for prepaid capacity: reads from the store who occupies it, for the decision in
`broker.placement.wait_for_reserved`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.job.placements import Plan
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.policy import LiveAttempt
from broker.ledger.journal import Reading
from broker.placement.wait_for_reserved import PAID, Occupant, WaitForReserved, worth_waiting

# Jobs of other teams leave lent machines once a job of the owner's team waits for them: the time that this usually
# takes, and the maximum time that the owner's job waits before it rents a machine.
_LEFT_WITHIN, RECALLED_WITHIN = timedelta(minutes=5), timedelta(minutes=20)


class PaidMarket(Protocol):
    """``offers``: the present offers. ``coming``: bought machines, each with the beginning of its period (UTC)."""

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
    start now. A job waits for lent machines of its own team even without ``longest``: other teams' jobs leave them
    then.

    ``free``: the plan over free capacity. ``unoccupied`` makes the plan over all capacity and the offers passed to it;
    it is called only if prepaid machines are in use or coming and ``free`` would rent.
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
    # A purchase whose period has not begun counts as occupied until it begins.
    occupants += [Occupant(offer.capacity, offer.slots or 0, begins) for offer, begins in market.coming]
    all_of_it = unoccupied([offer for offer, _ in market.coming])
    return worth_waiting(free, all_of_it, occupants, now=now, since=since, longest=longest)


def _is_lent(live: LiveAttempt, offer: Offer) -> bool:
    """Whether the attempt runs, at an internal price, on machines that belong to this job's team and are lent to
    another team.
    """
    borrowed = live.money is MoneyKind.CASH and live.capacity_type is CapacityType.RESERVED
    return borrowed and offer.money is MoneyKind.AMORTISED


def _done_at(look: Reading, live: LiveAttempt) -> datetime | None:
    """When that job is expected to finish there, by its plan (UTC); None if unknown."""
    latest = next((view.latest for view in look.views([live.job_id])), None)
    return latest.placement.finish if latest is not None else None
