"""A ledger of two months with every kind of charge: hourly spot across a month's end, a correction, a refund, a
purchase, the use of the purchase, and simulated money.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.store import Store

SEPTEMBER, OCTOBER = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RUN = Tags("train-abc", "ann", "nlp", "llm", "training", None, 1, "acme", "r1", CapacityType.SPOT, "H100", 8)


def spent(
    number: int,
    amount: str,
    since: datetime,
    until: datetime,
    posted: datetime,
    *,
    movement: Movement = Movement.SETTLE,
    money: MoneyKind = MoneyKind.CASH,
    tags: Tags = RUN,
) -> Sequence[Entry]:
    return move(
        movement, Money.usd(amount), movement_id=f"{tags.job_id}/1/{number}", money=money, at=posted,
        covers=(since, until), tags=tags,
    )  # fmt: skip


def post_two_months(store: Store) -> None:
    """Post the entries numbered 1 to 7, of September and October 2026."""
    reserved = Tags("buy-1", "olga", None, None, None, None, None, "acme", "r1", CapacityType.RESERVED, "H100", 8)
    used = Tags("serve-x", "ann", "web", None, "inference", None, 1, "acme", "r1", CapacityType.RESERVED, "H100", 8)
    with store.writing() as tx:
        tx.post(
            [
                *spent(1, "10", SEPTEMBER + DAY, SEPTEMBER + DAY + 3 * HOUR, SEPTEMBER + 2 * DAY),
                *spent(2, "48", OCTOBER - 8 * HOUR, OCTOBER + 16 * HOUR, OCTOBER + 17 * HOUR),  # a third in September
                *spent(3, "5", SEPTEMBER, SEPTEMBER + HOUR, OCTOBER + 9 * DAY, movement=Movement.ADJUST),  # too late
                *spent(4, "-2", SEPTEMBER, SEPTEMBER + HOUR, SEPTEMBER + DAY, movement=Movement.ADJUST),
                *spent(5, "700", SEPTEMBER, SEPTEMBER, SEPTEMBER, tags=reserved),
                *spent(6, "7.25", SEPTEMBER, SEPTEMBER + HOUR, SEPTEMBER + HOUR, money=MoneyKind.AMORTISED, tags=used),
                *spent(7, "9", SEPTEMBER, SEPTEMBER + HOUR, SEPTEMBER + HOUR, money=MoneyKind.SANDBOX),
            ]
        )


def own_idle_machine(store: Store) -> None:
    """Eight H100 of September and October 2026 that no job uses: $3,600 of idle hours in a month of 30 days."""
    end, paid = SEPTEMBER + 60 * DAY, Money.usd("7200")
    store.add_holding(Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, end, upfront=paid), by="ann")
