"""The total bill of an attempt, computed at once from the start. Settlement, in many steps, must have the
same result.
"""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime

from broker.core.events.views import AttemptView
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Sum
from broker.ledger.holds import Metering, cost_of, ledger_rate
from broker.reconciler.settlement.settlement import SeriesOf


def metered(attempt: AttemptView, now: datetime, series_of: SeriesOf) -> Money:
    """The cost of the attempt's machines until now (UTC): on-demand at the rate of their placement, spot at the prices
    observed since.
    """
    if attempt.up_since is None or attempt.refused:
        return Money.ZERO
    offer = attempt.placement.offer
    end = attempt.gone_at if attempt.gone and attempt.gone_at else max(now, attempt.up_since)
    metering = Metering.RUNNING
    if attempt.gone:
        metering = Metering.INTERRUPTED if attempt.taken_back else Metering.ENDED
    prices = series_of(offer, attempt.up_since, end) if offer.capacity_type is CapacityType.SPOT else ()
    rates = prices or ledger_rate(offer)
    return cost_of(rates, attempt.placement.nodes, attempt.up_since, end, offer.billing, metering=metering)


def one_by_one(entries: Iterable[Entry]) -> list[Sum]:
    return [Sum(**{one.name: getattr(entry, one.name) for one in fields(Entry)}) for entry in entries]
