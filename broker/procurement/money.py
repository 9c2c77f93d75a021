"""The ledger entries of a purchase. Pure. The request holds the ceiling; an upfront payment is spent when it is paid,
recurring payments are spent day by day, and the rest is released."""

from __future__ import annotations

from datetime import datetime

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote
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
