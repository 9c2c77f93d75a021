"""The ledger entries of a purchase. Pure. The request holds the ceiling; an upfront payment is spent when it is paid,
recurring payments are spent day by day (UTC), as the provider bills them, and the rest is released.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.purchases.purchase_events import Accrued
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import AT_ITS_END, CapacityQuote, Order, OrderState
from broker.core.values.burns import Burn, rate_over
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Tags, move


def burn_of(quote: CapacityQuote, amount: Money, now: datetime) -> Burn:
    """How the hold of ``amount`` for the quote is used up from ``now`` on: recurring payments over the period, others
    at once."""
    if not quote.recurring:
        return Burn.evenly(amount, (now, now))
    return Burn(amount, now, now + quote.length, rate_over(quote.recurring, quote.length))


def held_for(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Hold the ceiling. An upfront payment counts in the current budget period."""
    burn = burn_of(purchase.quote, purchase.ceiling, at)
    covers, rate = (burn.start, burn.end), burn.rate if purchase.quote.recurring else None
    return _moved(Movement.HOLD, purchase, purchase.ceiling, at, covers=covers, rate=rate)


def paid_for(purchase: Purchase, charged: Money, at: datetime) -> tuple[Entry, ...]:
    """Spend the upfront charge and release what will not fall due. A charge above the ceiling, which no order allows,
    is spent in full: it was paid."""
    covered = min(charged, purchase.ceiling)
    rest = max(purchase.ceiling - covered - purchase.quote.recurring, Money.ZERO)
    return (
        *_moved(Movement.SETTLE, purchase, covered, at),
        *_moved(Movement.ADJUST, purchase, charged - covered, at),
        *_moved(Movement.RELEASE, purchase, rest, at),
    )


def fell_due(purchase: Purchase, amount: Money, since: datetime, until: datetime, at: datetime) -> tuple[Entry, ...]:
    """Spend the recurring price for that time (UTC) from the hold; what is billed after the period, beyond the hold."""
    name, covered = f"{until:%Y%m%dT%H%M%S.%f}", min(amount, purchase.held)
    return (
        *_moved(Movement.SETTLE, purchase, covered, at, name, covers=(since, until)),
        *_moved(Movement.ADJUST, purchase, amount - covered, at, name, covers=(since, until)),
    )


def undone(purchase: Purchase, charge: Money, refund: Money, at: datetime) -> tuple[Entry, ...]:
    """Spend the charge for undoing, return the refund in the period of the payment, release the rest."""
    covered = min(charge, purchase.held)
    paid = purchase.paid_at or at
    return (
        *_moved(Movement.SETTLE, purchase, covered, at, "undo"),
        *_moved(Movement.ADJUST, purchase, charge - covered, at, "undo"),
        *_moved(Movement.RELEASE, purchase, purchase.held - covered, at, "undo"),
        *_moved(Movement.ADJUST, purchase, -refund, at, "refund", covers=(paid, paid)),
    )


def ended(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Release what did not fall due."""
    return _moved(Movement.RELEASE, purchase, purchase.held, at, "end")


def released(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Release the whole hold: nothing was bought."""
    return _moved(Movement.RELEASE, purchase, purchase.ceiling, at)


def _moved(
    movement: Movement,
    purchase: Purchase,
    amount: Money,
    at: datetime,
    name: str = "",
    *,
    covers: tuple[datetime, datetime] | None = None,
    rate: Money | None = None,
) -> tuple[Entry, ...]:
    return move(
        movement,
        amount,
        movement_id=f"{purchase.id}/{movement}{f'/{name}' if name else ''}",
        money=MoneyKind.CASH,
        at=at,
        covers=covers or (at, at),
        tags=_tags(purchase),
        note=f"{purchase.quote.product} {purchase.quote.offering}",
        rate=rate,
    )


def _tags(purchase: Purchase) -> Tags:
    quote = purchase.quote
    return Tags(
        job_id=purchase.id,
        user=purchase.user,
        team=purchase.team,
        project=purchase.project,
        environment=purchase.environment,
        provider=quote.provider,
        region=quote.region,
        capacity_type=CapacityType.RESERVED,
        accelerator=quote.accelerator,
        gpus=quote.count * quote.machines,
    )


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
