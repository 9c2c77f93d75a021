"""The cost of machines that an engine started outside the bought capacity named for them. Pure, but logs a warning.

The placement of such an attempt is in prepaid money. The provider bills these machines at the on-demand price, in cash,
until they are gone. That amount is posted once, when their end is recorded: from the job's hold in cash, and the rest
as an adjustment, since it is spent whatever the budgets allow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.values.money import Money
from broker.ledger.entries import OUTSIDE, Account, Balance, Entry, Sum, balances
from broker.ledger.holds import Metering, cost_of
from broker.reconciler.settlement.settlement import charge, pending_hold, tags_of

log = logging.getLogger(__name__)


def uncharged_attempts(view: JobView, sums: Sequence[Sum]) -> list[AttemptView]:
    """The attempts whose machines outside bought capacity are gone and not in the ledger yet."""
    spent = {entry.tags.attempt for entry in sums if entry.money is MoneyKind.CASH and entry.account is Account.SPENT}
    return [
        attempt
        for attempt in view.attempts
        if attempt.outside
        and attempt.gone_at is not None
        and attempt.placement.money is MoneyKind.AMORTISED
        and attempt.number not in spent
    ]


def charged_outside(
    view: JobView,
    sums: Sequence[Sum],
    attempts: Sequence[AttemptView],
    offers_of: Callable[[OfferQuery], Sequence[Offer]],
    now: datetime,
) -> list[Entry]:
    """The entries for ``attempts``, which are `uncharged_attempts`.

    ``sums``: of the job's entries so far; ``offers_of``: returns the market's current offers. Machines of a type
    without an on-demand price are left for later, with a warning.
    """
    entries: list[Entry] = []
    held = balances(sums).get(MoneyKind.CASH, Balance()).held
    left = max(held - pending_hold(view, MoneyKind.CASH), Money.ZERO)
    for attempt in attempts:
        on_demand = _on_demand(attempt.placement.offer, offers_of)
        if on_demand is None or on_demand.price is None or attempt.gone_at is None:
            log.warning(
                "%s: machines ran outside bought capacity, and the on-demand price of %s is unknown: "
                "their cost is not in the ledger yet",
                attempt.key,
                attempt.placement.offer.instance_type,
            )
            continue
        end, amount = attempt.gone_at, Money.ZERO
        for machine in attempt.outside:
            amount += cost_of(
                on_demand.price, 1, min(machine.since, end), end, on_demand.billing, metering=Metering.ENDED
            )
        ids = ", ".join(machine.id for machine in attempt.outside)
        gpus = attempt.placement.offer.count * len(attempt.outside)
        entries += charge(
            amount,
            left,
            f"{view.id}/{attempt.number}/{OUTSIDE}",
            money=MoneyKind.CASH,
            at=now,
            covers=(min(end, *(machine.since for machine in attempt.outside)), end),
            tags=replace(tags_of(view, attempt), capacity_type=CapacityType.ON_DEMAND, gpus=gpus),
            note=f"outside of the bought capacity, at {on_demand.price} an hour on demand: {ids}",
        )
        left -= min(amount, left)
    return entries


def _on_demand(offer: Offer, offers_of: Callable[[OfferQuery], Sequence[Offer]]) -> Offer | None:
    """The on-demand offer of the same machine type: in its zone if there is one, else in its region, else anywhere at
    the provider. If there are several, the one with the highest price.
    """
    query = OfferQuery(providers=(offer.provider,), capacity_types=(CapacityType.ON_DEMAND,))
    candidates = [
        candidate
        for candidate in offers_of(query)
        if candidate.instance_type == offer.instance_type
        and candidate.money is MoneyKind.CASH
        and candidate.has_valid_price()
    ]

    def nearness(candidate: Offer) -> tuple[bool, bool, bool, Money]:
        same_region = candidate.region == offer.region
        return (
            same_region,
            same_region and candidate.zone in (offer.zone, None),
            not candidate.reference,
            candidate.price or Money.ZERO,
        )

    return max(candidates, key=nearness, default=None)
