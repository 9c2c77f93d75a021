"""The recurring payments of a purchase, day by day (UTC), as the provider bills them. Pure."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from broker.core.purchases.purchase_events import Accrued
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import AT_ITS_END, Order, OrderState
from broker.core.values.money import Money
from broker.ledger.entries import Entry
from broker.procurement.money import fell_due

_GONE = (OrderState.OVER, OrderState.FAILED, OrderState.REFUSED)


def next_due(purchase: Purchase) -> datetime | None:
    """When the next payment falls due (UTC): the next midnight or the end of the period; None if there is none."""
    quote, seen = purchase.quote, purchase.accrued_to or purchase.paid_at
    if seen is None or not quote.recurring or seen >= quote.ends or _has_stopped(purchase, seen):
        return None
    midnight = datetime.combine(seen.date() + timedelta(days=1), time(), seen.tzinfo)
    return min(midnight, quote.ends)


def overdue(purchase: Purchase, now: datetime) -> datetime | None:
    """For a purchase that its provider does not end: the last midnight (UTC) up to which payments are due and not
    booked; None if there is none."""
    midnight = datetime.combine(now.date(), time(), now.tzinfo)
    booked = purchase.accrued_to
    return midnight if booked is not None and purchase.quote.recurring and midnight > booked else None


def accrual(purchase: Purchase, order: Order, until: datetime, at: datetime) -> tuple[Accrued, tuple[Entry, ...]]:
    """The event and the entries of the payments due up to ``until``, given the order's present state."""
    begins = order.billed_from
    if begins is None:
        return Accrued(order=order, until=until, amount=Money.ZERO), ()
    stops = until if order.billed_to is None else min(until, order.billed_to)
    quote, undo = purchase.quote, purchase.undo
    over = quote.overran(begins, stops) if undo is not None and undo.way == AT_ITS_END else Money.ZERO
    amount = max(quote.recurred(begins, stops) + over - purchase.accrued, Money.ZERO)
    since = max(begins, purchase.accrued_to or begins)
    entries = fell_due(purchase, amount, min(since, stops), stops, at)
    return Accrued(order=order, until=until, amount=amount), entries


def billed_until(purchase: Purchase, order: Order, now: datetime) -> datetime:
    """The end (UTC) of the hourly bill of an undone purchase. A charge for undoing replaces the hours after the
    request."""
    charged = purchase.undo is not None and bool(purchase.undo.charge)
    stops = order.billed_to or (purchase.undo_at if charged else None) or now
    return max(min(stops, now), purchase.accrued_to or stops)


def early_end(purchase: Purchase) -> str:
    """The provider's reason for an end before the end of the period; empty without one."""
    order = purchase.order
    seen = purchase.accrued_to or purchase.paid_at
    return order.word if order and seen and seen < purchase.quote.ends and _has_stopped(purchase, seen) else ""


def is_late(purchase: Purchase) -> bool:
    """Whether its period has begun, and the provider has not delivered it."""
    order, seen = purchase.order, purchase.accrued_to
    waits = order is not None and order.state is OrderState.HELD and order.billed_from is None
    return waits and bool(purchase.quote.recurring) and seen is not None and seen > purchase.quote.starts


def _has_stopped(purchase: Purchase, seen: datetime) -> bool:
    order = purchase.order
    return order is not None and order.state in _GONE and (order.billed_to is None or seen >= order.billed_to)
