"""The ledger entries of a purchase. Pure. The request holds the ceiling; an upfront payment is spent when it is paid,
recurring payments are spent day by day (UTC), as the provider bills them, and the rest is released.
"""

from datetime import datetime, time, timedelta

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.purchases.purchase_events import Accrued
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import ENDS_AT_TERM, CapacityQuote, Order, OrderState
from broker.core.values.burns import Burn, rate_over
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Tags, move


def burn_of(quote: CapacityQuote, amount: Money, now: datetime) -> Burn:
    """How the hold of ``amount`` for the quote is used up from ``now`` on: recurring payments over the period, others
    at once."""
    if not quote.recurring:
        return Burn.evenly(amount, (now, now))
    return Burn(amount, now, now + quote.length, rate_over(quote.recurring, quote.length))


def ceiling_entries(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Hold the ceiling. An upfront payment counts in the current budget period."""
    burn = burn_of(purchase.quote, purchase.ceiling, at)
    covers, rate = (burn.start, burn.end), burn.rate if purchase.quote.recurring else None
    return _entries(Movement.HOLD, purchase, purchase.ceiling, at, covers=covers, rate=rate)


def payment_entries(purchase: Purchase, charged: Money, at: datetime) -> tuple[Entry, ...]:
    """Spend the upfront charge and release what will not fall due. A charge above the ceiling, which no order allows,
    is spent in full: it was paid."""
    covered = min(charged, purchase.ceiling)
    rest = max(purchase.ceiling - covered - purchase.quote.recurring, Money.ZERO)
    return (
        *_entries(Movement.SETTLE, purchase, covered, at),
        *_entries(Movement.ADJUST, purchase, charged - covered, at),
        *_entries(Movement.RELEASE, purchase, rest, at),
    )


def accrual_entries(
    purchase: Purchase, amount: Money, since: datetime, until: datetime, at: datetime
) -> tuple[Entry, ...]:
    """Spend the recurring price for that time (UTC) from the hold; what is billed after the period, beyond the hold."""
    name, covered = f"{until:%Y%m%dT%H%M%S.%f}", min(amount, purchase.held)
    return (
        *_entries(Movement.SETTLE, purchase, covered, at, name, covers=(since, until)),
        *_entries(Movement.ADJUST, purchase, amount - covered, at, name, covers=(since, until)),
    )


def undo_entries(purchase: Purchase, charge: Money, refund: Money, at: datetime) -> tuple[Entry, ...]:
    """Spend the charge for undoing, return the refund in the period of the payment, release the rest."""
    covered = min(charge, purchase.held)
    paid = purchase.paid_at or at
    return (
        *_entries(Movement.SETTLE, purchase, covered, at, "undo"),
        *_entries(Movement.ADJUST, purchase, charge - covered, at, "undo"),
        *_entries(Movement.RELEASE, purchase, purchase.held - covered, at, "undo"),
        *_entries(Movement.ADJUST, purchase, -refund, at, "refund", covers=(paid, paid)),
    )


def end_entries(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Release what did not fall due."""
    return _entries(Movement.RELEASE, purchase, purchase.held, at, "end")


def release_entries(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Release the whole hold: nothing was bought."""
    return _entries(Movement.RELEASE, purchase, purchase.ceiling, at)


def _entries(
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


_FINAL_STATES = (OrderState.OVER, OrderState.FAILED, OrderState.REFUSED)


def next_due(purchase: Purchase) -> datetime | None:
    """When the next payment falls due (UTC): the next midnight or the end of the period; None if there is none."""
    quote, booked_until = purchase.quote, purchase.accrued_to or purchase.paid_at
    if (
        booked_until is None
        or not quote.recurring
        or booked_until >= quote.ends
        or _has_stopped(purchase, booked_until)
    ):
        return None
    midnight = datetime.combine(booked_until.date() + timedelta(days=1), time(), booked_until.tzinfo)
    return min(midnight, quote.ends)


def overdue(purchase: Purchase, now: datetime) -> datetime | None:
    """For a purchase that its provider does not end: the last midnight (UTC) up to which payments are due and not
    booked; None if there is none."""
    midnight = datetime.combine(now.date(), time(), now.tzinfo)
    booked = purchase.accrued_to
    return midnight if booked is not None and purchase.quote.recurring and midnight > booked else None


def accrual(purchase: Purchase, order: Order, until: datetime, at: datetime) -> tuple[Accrued, tuple[Entry, ...]]:
    """The event and the entries of the payments due up to ``until``, given the order's present state."""
    start = order.billed_from
    if start is None:
        return Accrued(order=order, until=until, amount=Money.ZERO), ()
    end = until if order.billed_to is None else min(until, order.billed_to)
    quote, undo = purchase.quote, purchase.undo
    overrun = quote.overrun_cost(start, end) if undo is not None and undo.way == ENDS_AT_TERM else Money.ZERO
    amount = max(quote.amount_due(start, end) + overrun - purchase.accrued, Money.ZERO)
    since = max(start, purchase.accrued_to or start)
    entries = accrual_entries(purchase, amount, min(since, end), end, at)
    return Accrued(order=order, until=until, amount=amount), entries


def billed_until(purchase: Purchase, order: Order, now: datetime) -> datetime:
    """The end (UTC) of the hourly bill of an undone purchase. A charge for undoing replaces the hours after the
    request."""
    has_charge = purchase.undo is not None and bool(purchase.undo.charge)
    end = order.billed_to or (purchase.undo_at if has_charge else None) or now
    return max(min(end, now), purchase.accrued_to or end)


def early_end(purchase: Purchase) -> str:
    """The provider's reason for an end before the end of the period; empty without one."""
    order = purchase.order
    booked_until = purchase.accrued_to or purchase.paid_at
    return (
        order.word
        if order and booked_until and booked_until < purchase.quote.ends and _has_stopped(purchase, booked_until)
        else ""
    )


def is_late(purchase: Purchase) -> bool:
    """Whether its period has begun, and the provider has not delivered it."""
    order, booked_until = purchase.order, purchase.accrued_to
    is_waiting = order is not None and order.state is OrderState.HELD and order.billed_from is None
    return (
        is_waiting
        and bool(purchase.quote.recurring)
        and booked_until is not None
        and booked_until > purchase.quote.starts
    )


def _has_stopped(purchase: Purchase, booked_until: datetime) -> bool:
    order = purchase.order
    return (
        order is not None
        and order.state in _FINAL_STATES
        and (order.billed_to is None or booked_until >= order.billed_to)
    )
