"""The review of a purchase, from recorded machine time and market prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.capacity.plan import cheapest, has_current_price, usd
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, OfferQuery
from broker.procurement.reviewing import PurchaseReview, Use, review

if TYPE_CHECKING:
    from broker.app.wiring import Broker


def purchase_review(
    broker: Broker, id: str, *, on_demand: float | None = None, spot: float | None = None
) -> PurchaseReview:
    """The review of a purchase up to now. ``on_demand``, ``spot``: USD per GPU-hour, instead of the cheapest current
    price at its provider. Use is the machine time of jobs on reserved machines with its accelerator at its provider; if
    several such purchases are in force at once, each shows all of that use. Raises `InvalidInput` if it was not
    bought."""
    purchase, now = broker.store.purchase(id), broker.clock.now()
    quote = purchase.quote
    if purchase.paid_at is None:
        raise InvalidInput(f"{id} is {purchase.state}: nothing was bought", where=id)
    with broker.store.reading() as look:
        uses: list[Use] = [
            (one.team, one.since, one.until or now, one.gpus)
            for one in look.machine_time(since=quote.starts)
            if (one.provider, one.accelerator, one.capacity_type) == (quote.provider, quote.accelerator, _RESERVED)
        ]
    query = OfferQuery(accelerators=(quote.accelerator,), providers=(quote.provider,))
    offers = [one for one in broker.store.offers(query) if has_current_price(one, now)]

    def price(kind: CapacityType) -> float | None:
        best = cheapest(offers, kind)
        return None if best is None else usd(best)

    return review(
        purchase,
        uses,
        now,
        price(CapacityType.ON_DEMAND) if on_demand is None else on_demand,
        price(CapacityType.SPOT) if spot is None else spot,
    )


_RESERVED = CapacityType.RESERVED
