"""Lends bought machines to other teams, at an internal price, while their owner does not need them. Pure.

The borrower pays the price in cash: it is judged, held and settled like rent, and credited to the purchase
(`broker.ledger.lending`). The owner's jobs have priority: machines that they wait for are not lent, and jobs of other
teams leave these machines, newest first, each after a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import QueueTurn, WaitsForPaid
from broker.core.market.offers import LENT, Availability, MoneyKind, Offer
from broker.core.ports import LendingTerms
from broker.core.purchases.purchases import Purchase
from broker.core.values.money import Money
from broker.ledger.budgets import matches
from broker.procurement.using import in_use, is_of

_THOUSANDTHS = 100_000  # thousandths of a percent in 100 %


def as_seen_by(
    offers: Iterable[Offer],
    purchases: Sequence[Purchase],
    team: str | None,
    lending: Sequence[LendingTerms],
    open_jobs: Collection[JobView],
    at: datetime,
) -> list[Offer]:
    """The offers for jobs of ``team``: machines bought by other teams have their internal price, or are unavailable if
    not lent to ``team``. ``purchases``: only those in force ``at`` that time (UTC) count, not requested ones;
    ``open_jobs``: of all teams."""
    owned = in_use(purchases, at)
    return [_as_seen(offer, owned, team, lending, open_jobs) for offer in offers]


def _as_seen(
    offer: Offer,
    purchases: Iterable[Purchase],
    team: str | None,
    lending: Sequence[LendingTerms],
    open_jobs: Collection[JobView],
) -> Offer:
    mine = [one for one in purchases if is_of(offer, one)]
    lenders = {one.team for one in lending}
    if not mine or any(one.team == team or one.team not in lenders for one in mine):
        return offer
    owners = " and ".join(sorted({one.team for one in mine if one.team}))
    found = [(price, one) for one in mine if (price := _price(offer, one, team, lending)) is not None]
    if not found:
        because = f"{owners} bought it, and does not lend it to {f'team {team}' if team else 'jobs without a team'}"
        return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
    price, lender = min(found, key=lambda one: (one[0], one[1].id))
    wanted = claimed(offer.pool, {one.team for one in mine}, open_jobs)
    left = None if offer.slots is None else max(offer.slots - wanted, 0)
    lent = replace(offer, price=price, amortised=None, money=MoneyKind.CASH, source=f"{LENT}{lender.id}", slots=left)
    occupied = sum(one.placement.nodes for _, one in _in_pool(offer.pool, open_jobs))
    if wanted and left is not None and left <= occupied and offer.availability is Availability.AVAILABLE:
        because = f"jobs of {owners}, who bought it, wait for it"
        return replace(lent, availability=Availability.UNAVAILABLE, unavailable_because=because)
    return lent


def _price(offer: Offer, purchase: Purchase, team: str | None, lending: Iterable[LendingTerms]) -> Money | None:
    """USD per hour and machine for that team; None where the purchase is not lent to it."""
    for terms in lending:
        if team is None or terms.team != purchase.team or not matches(terms.to, team):
            continue
        if terms.price_per_gpu_hour is not None:
            return Money(terms.price_per_gpu_hour.micros * max(offer.count, 1))
        part = round((terms.share or 0) * _THOUSANDTHS / 100)
        return max(purchase.quote.per_machine_hour.share(part, _THOUSANDTHS), Money(1))
    return None


def claimed(pool: str, owners: Collection[str | None], open_jobs: Iterable[JobView]) -> int:
    """The number of machines of the pool that jobs of the owners wait for."""
    return sum(view.job.num_nodes for view in open_jobs if view.job.team in owners and _waits_for(view, pool))


def _waits_for(view: JobView, pool: str) -> bool:
    waiting = view.waiting
    idle = all(attempt.over for attempt in view.attempts) and not view.cancel_requested
    return idle and isinstance(waiting, QueueTurn | WaitsForPaid) and waiting.pool == pool


def is_recalled(
    view: JobView, attempt: AttemptView, purchases: Sequence[Purchase], open_jobs: Collection[JobView]
) -> bool:
    """Whether the attempt must leave machines that another team bought: that team's jobs wait for more machines than
    are free or will be freed by attempts stopped before."""
    offer = attempt.placement.offer
    mine = [one for one in purchases if is_of(offer, one)]
    lender = next((one for one in mine if one.id == offer.lent_from), None)
    if lender is None:
        return False
    there = list(_in_pool(offer.pool, open_jobs))
    machines = sum(one.quote.machines for one in mine if not one.quote.extends)
    lacking = claimed(offer.pool, {lender.team}, open_jobs) - (machines - sum(one.placement.nodes for _, one in there))
    lent = [(job, one) for job, one in there if one.placement.offer.lent_from]
    lacking -= sum(one.placement.nodes for _, one in lent if one.stop_requested is not None or one.state.final)
    staying = [(job, one) for job, one in lent if one.stop_requested is None and not one.state.final]
    for job, one in sorted(staying, key=lambda pair: (pair[1].requested_at, pair[0]), reverse=True):
        if lacking <= 0:
            return False
        if (job, one.number) == (view.id, attempt.number):
            return True
        lacking -= one.placement.nodes
    return False


def _in_pool(pool: str, open_jobs: Iterable[JobView]) -> Iterator[tuple[str, AttemptView]]:
    for view in open_jobs:
        for attempt in view.attempts:
            if not attempt.over and attempt.placement.offer.pool == pool:
                yield view.id, attempt
