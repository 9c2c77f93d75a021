"""The ledger entries of a purchase: the ceiling is held from the request on, the price is spent once it is paid, and
the rest is released. Pure."""

from __future__ import annotations

from datetime import datetime

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.purchases.purchases import Purchase
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Tags, move


def held_for(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Hold the ceiling. All of it counts in the current budget period, because it is paid at once."""
    return _moved(Movement.HOLD, purchase, purchase.ceiling, at)


def paid_for(purchase: Purchase, charged: Money, at: datetime) -> tuple[Entry, ...]:
    """Spend the charged amount and release the rest. A charge above the ceiling, which no order allows, is spent in
    full: it was paid."""
    covered = min(charged, purchase.ceiling)
    return (
        *_moved(Movement.SETTLE, purchase, covered, at),
        *_moved(Movement.ADJUST, purchase, charged - covered, at),
        *_moved(Movement.RELEASE, purchase, purchase.ceiling - covered, at),
    )


def released(purchase: Purchase, at: datetime) -> tuple[Entry, ...]:
    """Release the whole hold: nothing was bought."""
    return _moved(Movement.RELEASE, purchase, purchase.ceiling, at)


def _moved(movement: Movement, purchase: Purchase, amount: Money, at: datetime) -> tuple[Entry, ...]:
    quote = purchase.quote
    tags = Tags(
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
    return move(
        movement,
        amount,
        movement_id=f"{purchase.id}/{movement}",
        money=MoneyKind.CASH,
        at=at,
        covers=(at, at),
        tags=tags,
        note=f"{quote.product} {quote.offering}",
    )
