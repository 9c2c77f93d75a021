"""Compares the capacity that providers list with the purchases and holdings recorded here, in both directions. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.market.capacity import Charge, Reservation
from broker.core.notices import Notice, Severity
from broker.core.purchases.purchases import Purchase, PurchaseState, is_purchase
from broker.core.purchases.quotes import PurchaseProduct
from broker.core.values.money import Money
from broker.economics.reserve.holdings import RecordedHolding

# For these products providers list neither machine type nor number.
_NO_MACHINES = (PurchaseProduct.SAVINGS_PLAN, PurchaseProduct.COMMITMENT)
# The longest delay of a period that begins with the order.
_SAME_END = timedelta(minutes=5)
# The longest delay of a provider's charges.
_CHARGED_WITHIN = timedelta(days=3)
_ROUNDING = Money.usd("0.01")


class DifferenceKind(StrEnum):
    """The kind of difference."""

    NOT_RECORDED = "not_recorded"  # listed by the provider, and neither bought nor recorded here
    OTHER_STORE = "other_store"  # tagged with a purchase that this store does not know
    NOT_LISTED = "not_listed"  # bought here, within its period, and not listed by the provider
    NOT_AS_BOUGHT = "not_as_bought"  # its machines or its end differ from the purchase
    TWICE = "twice"  # the provider lists more than one order of one purchase
    CHARGED_OTHERWISE = "charged_otherwise"  # the provider's charge differs from the ledger
    CHARGE_UNKNOWN = "charge_unknown"  # charged for a purchase that this store does not know or did not buy


@dataclass(frozen=True, slots=True)
class CapacityDifference:
    """Where a provider's list and the record here differ. ``order``: the provider's id; ``purchase``: ours, or null."""

    kind: DifferenceKind
    provider: str
    region: str
    order: str
    purchase: str | None
    told: str

    @property
    def notice(self) -> Notice:
        """The notice about it, sent once."""
        title = f"{self.provider}/{self.region}: {self.order}"
        return Notice(f"capacity/{self.kind}/{self.provider}/{self.order}", title, self.told, Severity.WARNING)


def charge_differences(
    purchases: Sequence[Purchase], charges: Iterable[Charge], now: datetime
) -> list[CapacityDifference]:
    """The differences, in both directions, between charges with a purchase's id and the amounts booked for it. Charges
    may be days late: a purchase is compared `_CHARGED_WITHIN` after its last booking, with final charges only."""
    by_purchase: dict[str, list[Charge]] = {}
    for charge in charges:
        if is_purchase(charge.key):
            by_purchase.setdefault(charge.key, []).append(charge)
    purchases_by_id = {item.id: item for item in purchases}
    results = []
    for id, own_charges in by_purchase.items():
        purchase, billed = purchases_by_id.get(id), sum((item.amount for item in own_charges), Money.ZERO)
        provider, region, order = own_charges[0].provider, "*", ""
        if purchase is not None:
            region, order = purchase.quote.region, _order_id(purchase)
        if purchase is None or (purchase.state is PurchaseState.NOT_BOUGHT and billed):
            reason = "this store does not know it" if purchase is None else "it is recorded here as not bought"
            text = f"{billed.rounded(2)} was charged for {id}; {reason}: ask the provider what it is for"
            results.append(CapacityDifference(DifferenceKind.CHARGE_UNKNOWN, provider, region, order or id, id, text))
            continue
        booked = purchase.accrued_to or purchase.paid_at
        is_early = booked is None or now < booked + _CHARGED_WITHIN or any(item.estimated for item in own_charges)
        if not is_early and abs(billed.micros - purchase.charged.micros) > _ROUNDING.micros:
            text = f"{billed.rounded(2)} was charged, and {purchase.charged.rounded(2)} was booked; check the invoice"
            results.append(CapacityDifference(DifferenceKind.CHARGED_OTHERWISE, provider, region, order, id, text))
    return sorted(results, key=lambda item: (item.provider, item.purchase or ""))


def unlisted_purchases(purchases: Iterable[Purchase], reported: Iterable[Reservation], now: datetime) -> list[Purchase]:
    """The purchases within their period whose order no provider reported, by its id or its mark."""
    listed_names = {name for item in reported for name in (item.id, item.mark)}
    return [
        item
        for item in purchases
        if _is_held(item, now) and item.id not in listed_names and _order_id(item) not in listed_names
    ]


def differences(
    purchases: Sequence[Purchase],
    recorded: Sequence[RecordedHolding],
    reported: Sequence[Reservation],
    missing: Iterable[Purchase],
) -> list[CapacityDifference]:
    """The differences, sorted by provider and order. ``purchases``: all, including closed ones. ``missing``: those of
    `unlisted_purchases` that their provider does not find by their tag either. A recorded holding counts by its
    ``order_id``."""
    by_order = {item.order.id: item for item in purchases if item.order is not None}
    by_mark = {item.id: item for item in purchases}
    recorded_ids = {item.holding.order_id for item in recorded}
    results = [_missing(item) for item in missing]
    for item in reported:
        purchase = by_order.get(item.id) or by_mark.get(item.mark)  # some providers list an order under a longer name
        results += _unknown_orders(item, recorded_ids) if purchase is None else _changed_order(purchase, item)
    results += _twice(reported, by_mark)
    return sorted(results, key=lambda item: (item.provider, item.region, item.order, item.kind))


def _unknown_orders(listed: Reservation, recorded_ids: Collection[str]) -> Iterator[CapacityDifference]:
    machines_text = f"{listed.machines} × {listed.instance_type} ({listed.kind.replace('_', ' ')})"
    if listed.mark:
        text = f"{machines_text} was bought as {listed.mark}, by a gpubroker with another store"
        yield CapacityDifference(
            DifferenceKind.OTHER_STORE, listed.provider, listed.region, listed.id, listed.mark, text
        )
    elif listed.id not in recorded_ids:
        text = f"{machines_text} was bought outside gpubroker; record it: gpubroker capacity add … --order {listed.id}"
        yield CapacityDifference(DifferenceKind.NOT_RECORDED, listed.provider, listed.region, listed.id, None, text)


def _changed_order(purchase: Purchase, listed: Reservation) -> Iterator[CapacityDifference]:
    quote = purchase.quote
    texts = []
    if purchase.state is PurchaseState.NOT_BOUGHT:
        texts.append(f"{purchase.id} is recorded here as not bought, but the provider lists it; its money was released")
    if quote.product not in _NO_MACHINES and (listed.instance_type, listed.machines) != (
        quote.instance_type,
        quote.machines,
    ):
        quoted = f"{quote.machines} × {quote.instance_type}"
        texts.append(f"{listed.machines} × {listed.instance_type}, but {quoted} was bought")
    if listed.ends is not None and abs(listed.ends - quote.ends) > _SAME_END:
        texts.append(f"ends {listed.ends:%Y-%m-%d %H:%M} UTC, but {quote.ends:%Y-%m-%d %H:%M} UTC was bought")
    if texts:
        kind = DifferenceKind.NOT_AS_BOUGHT
        yield CapacityDifference(kind, listed.provider, listed.region, listed.id, purchase.id, "; ".join(texts))


def _missing(purchase: Purchase) -> CapacityDifference:
    quote = purchase.quote
    text = f"{purchase.charged.rounded(2)} was paid for it until {quote.ends:%Y-%m-%d %H:%M} UTC; ask the provider"
    return CapacityDifference(
        DifferenceKind.NOT_LISTED, quote.provider, quote.region, _order_id(purchase), purchase.id, text
    )


def _twice(reported: Sequence[Reservation], by_mark: Collection[str]) -> Iterator[CapacityDifference]:
    marks = Counter((listed.provider, listed.mark) for listed in reported if listed.mark in by_mark)
    for listed in reported:
        if (times := marks[listed.provider, listed.mark]) > 1:
            text = f"{times} orders carry the mark of {listed.mark}; gpubroker sends an order once: ask the provider"
            yield CapacityDifference(DifferenceKind.TWICE, listed.provider, listed.region, listed.id, listed.mark, text)


def _is_held(purchase: Purchase, now: datetime) -> bool:
    return purchase.state is PurchaseState.HELD and now < purchase.quote.ends


def _order_id(purchase: Purchase) -> str:
    return "" if purchase.order is None else purchase.order.id
