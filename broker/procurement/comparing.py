"""Compares the capacity that providers list with the purchases and holdings recorded here, in both directions. Pure."""

from __future__ import annotations

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
        what = f"{self.provider}/{self.region}: {self.order}"
        return Notice(f"capacity/{self.kind}/{self.provider}/{self.order}", what, self.told, Severity.WARNING)


def charge_differences(
    purchases: Sequence[Purchase], charges: Iterable[Charge], now: datetime
) -> list[CapacityDifference]:
    """The differences, in both directions, between charges with a purchase's id and the amounts booked for it. Charges
    may be days late: a purchase is compared `_CHARGED_WITHIN` after its last booking, with final charges only."""
    told: dict[str, list[Charge]] = {}
    for charge in charges:
        if is_purchase(charge.key):
            told.setdefault(charge.key, []).append(charge)
    known = {one.id: one for one in purchases}
    found = []
    for id, mine in told.items():
        purchase, billed = known.get(id), sum((one.amount for one in mine), Money.ZERO)
        provider, region, order = mine[0].provider, "*", ""
        if purchase is not None:
            region, order = purchase.quote.region, _order(purchase)
        if purchase is None or (purchase.state is PurchaseState.NOT_BOUGHT and billed):
            why = "this store does not know it" if purchase is None else "it is recorded here as not bought"
            say = f"{billed.rounded(2)} was charged for {id}; {why}: ask the provider what it is for"
            found.append(CapacityDifference(DifferenceKind.CHARGE_UNKNOWN, provider, region, order or id, id, say))
            continue
        booked = purchase.accrued_to or purchase.paid_at
        early = booked is None or now < booked + _CHARGED_WITHIN or any(one.estimated for one in mine)
        if not early and abs(billed.micros - purchase.charged.micros) > _ROUNDING.micros:
            say = f"{billed.rounded(2)} was charged, and {purchase.charged.rounded(2)} was booked; check the invoice"
            found.append(CapacityDifference(DifferenceKind.CHARGED_OTHERWISE, provider, region, order, id, say))
    return sorted(found, key=lambda one: (one.provider, one.purchase or ""))


def unseen(purchases: Iterable[Purchase], reported: Iterable[Reservation], now: datetime) -> list[Purchase]:
    """The purchases within their period whose order no provider reported, by its id or its mark."""
    listed = {name for one in reported for name in (one.id, one.mark)}
    return [one for one in purchases if _held(one, now) and one.id not in listed and _order(one) not in listed]


def differences(
    purchases: Sequence[Purchase],
    recorded: Sequence[RecordedHolding],
    reported: Sequence[Reservation],
    missing: Iterable[Purchase],
) -> list[CapacityDifference]:
    """The differences, sorted by provider and order. ``purchases``: all, including closed ones. ``missing``: those of
    `unseen` that their provider does not find by their tag either. A recorded holding counts by its ``order_id``."""
    by_order = {one.order.id: one for one in purchases if one.order is not None}
    by_mark = {one.id: one for one in purchases}
    noted = {one.holding.order_id for one in recorded}
    found = [_missing(one) for one in missing]
    for one in reported:
        bought = by_order.get(one.id) or by_mark.get(one.mark)  # some providers list an order under a longer name
        found += _unknown(one, noted) if bought is None else _changed(bought, one)
    found += _twice(reported, by_mark)
    return sorted(found, key=lambda one: (one.provider, one.region, one.order, one.kind))


def _unknown(one: Reservation, noted: Collection[str]) -> Iterator[CapacityDifference]:
    what = f"{one.machines} × {one.instance_type} ({one.kind.replace('_', ' ')})"
    if one.mark:
        told = f"{what} was bought as {one.mark}, by a gpubroker with another store"
        yield CapacityDifference(DifferenceKind.OTHER_STORE, one.provider, one.region, one.id, one.mark, told)
    elif one.id not in noted:
        told = f"{what} was bought outside gpubroker; record it: gpubroker capacity add … --order {one.id}"
        yield CapacityDifference(DifferenceKind.NOT_RECORDED, one.provider, one.region, one.id, None, told)


def _changed(purchase: Purchase, listed: Reservation) -> Iterator[CapacityDifference]:
    quote = purchase.quote
    told = []
    if purchase.state is PurchaseState.NOT_BOUGHT:
        told.append(f"{purchase.id} is recorded here as not bought, but the provider lists it; its money was released")
    if quote.product not in _NO_MACHINES and (listed.instance_type, listed.machines) != (
        quote.instance_type,
        quote.machines,
    ):
        bought = f"{quote.machines} × {quote.instance_type}"
        told.append(f"{listed.machines} × {listed.instance_type}, but {bought} was bought")
    if listed.ends is not None and abs(listed.ends - quote.ends) > _SAME_END:
        told.append(f"ends {listed.ends:%Y-%m-%d %H:%M} UTC, but {quote.ends:%Y-%m-%d %H:%M} UTC was bought")
    if told:
        kind = DifferenceKind.NOT_AS_BOUGHT
        yield CapacityDifference(kind, listed.provider, listed.region, listed.id, purchase.id, "; ".join(told))


def _missing(purchase: Purchase) -> CapacityDifference:
    quote = purchase.quote
    told = f"{purchase.charged.rounded(2)} was paid for it until {quote.ends:%Y-%m-%d %H:%M} UTC; ask the provider"
    return CapacityDifference(
        DifferenceKind.NOT_LISTED, quote.provider, quote.region, _order(purchase), purchase.id, told
    )


def _twice(reported: Sequence[Reservation], by_mark: Collection[str]) -> Iterator[CapacityDifference]:
    marks = Counter((one.provider, one.mark) for one in reported if one.mark in by_mark)
    for one in reported:
        if (times := marks[one.provider, one.mark]) > 1:
            told = f"{times} orders carry the mark of {one.mark}; gpubroker sends an order once: ask the provider"
            yield CapacityDifference(DifferenceKind.TWICE, one.provider, one.region, one.id, one.mark, told)


def _held(purchase: Purchase, now: datetime) -> bool:
    return purchase.state is PurchaseState.HELD and now < purchase.quote.ends


def _order(purchase: Purchase) -> str:
    return "" if purchase.order is None else purchase.order.id
