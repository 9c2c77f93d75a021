"""The ledger of a simulated quarter: three months of two teams on every type of capacity, with purchases, transfers,
refunds, late charges of providers, and simulated money. Equal seeds give equal ledgers.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import EGRESS, Entry, Movement, Tags, move
from broker.store import Store

BEGINS = datetime(2026, 7, 1, tzinfo=UTC)
MONTHS = ("2026-07", "2026-08", "2026-09", "2026-10")
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_DAYS = 92
_PLACES = (
    ("acme", "r1", CapacityType.SPOT, "H100", MoneyKind.CASH),
    ("acme", "r2", CapacityType.ON_DEMAND, "A100", MoneyKind.CASH),
    ("bigcloud", "eu", CapacityType.ON_DEMAND, None, MoneyKind.CASH),
    ("bigcloud", "eu", CapacityType.RESERVED, "H100", MoneyKind.AMORTISED),
    ("bigcloud", "eu", CapacityType.RESERVED, "A100", MoneyKind.CASH),
    ("basement", "here", CapacityType.OWNED, "L40S", MoneyKind.AMORTISED),
    ("sandbox", "here", CapacityType.SPOT, "H100", MoneyKind.SANDBOX),
)


def post_quarter(store: Store, seed: int = 1, *, jobs: int = 240) -> None:
    dice = random.Random(seed)
    found = [list(entries) for number in range(jobs) for entries in _job(dice, number)]
    found += [list(_bought(dice, number)) for number in range(6)]
    _hold(store)
    with store.writing() as tx:
        for entries in sorted(found, key=lambda one: one[0].at):
            tx.post(entries)


def _hold(store: Store) -> None:
    """Reservations and machines that exist for the whole quarter, more than the jobs use."""
    ends = BEGINS + _DAYS * _DAY
    held = [
        Holding(HoldingKind.RESERVATION, "H100", 320, "bigcloud", "eu", BEGINS, ends, upfront=Money.usd(600_000)),
        Holding(HoldingKind.RESERVATION, "H100", 16, "bigcloud", "us", BEGINS, ends, hourly=Money.usd(24)),
        Holding(HoldingKind.OWNED, "L40S", 320, "basement", "here", BEGINS, ends, upfront=Money.usd(400_000)),
    ]
    with store.writing() as tx:
        for one in held:
            tx.add_holding(one, by="olga", at=BEGINS)


def _job(dice: random.Random, number: int) -> Iterator[tuple[Entry, ...]]:
    provider, region, kind, accelerator, money = dice.choice(_PLACES)
    team, user = dice.choice((("nlp", "ann"), ("web", "bob"), (None, "olga")))
    tags = Tags(
        f"run-{number}", user, team, dice.choice(("llm", "ads", None)), dice.choice(("training", "inference")), None, 1,
        provider, region, kind, accelerator, 8 if accelerator else 0,
    )  # fmt: skip
    since = BEGINS + dice.randrange(_DAYS * 24) * _HOUR
    for piece in range(dice.randint(1, 3)):
        until = since + timedelta(seconds=dice.randint(1, 60 * 3600))
        yield _spent(tags, f"settle/{piece}", dice.randint(1, 10**9), since, until, until + _HOUR, money)
        since = until
    fate = dice.random()
    if fate < 0.15:  # the provider charged another amount, and reported it up to two months later
        late = since + dice.randint(1, 60) * _DAY
        difference = dice.randint(-(10**8), 10**8) or 1
        yield _spent(tags, "charged", difference, since - _HOUR, since, late, money, Movement.ADJUST)
    elif fate < 0.3 and money is MoneyKind.CASH:
        moved = replace(tags, accelerator=None, gpus=0)
        yield _spent(moved, f"{EGRESS}/0", dice.randint(1, 10**7), since, since, since + _HOUR, money)


def _bought(dice: random.Random, number: int) -> tuple[Entry, ...]:
    at = BEGINS + dice.randrange(_DAYS) * _DAY
    tags = Tags(
        f"buy-{number}", "olga", None, None, None, None, None, "bigcloud", "eu", CapacityType.RESERVED, "H100", 8
    )
    return _spent(tags, "paid", dice.randint(10**9, 10**10), at, at, at, MoneyKind.CASH)


def _spent(
    tags: Tags, about: str, micros: int, since: datetime, until: datetime, posted: datetime, money: MoneyKind,
    movement: Movement = Movement.SETTLE,
) -> tuple[Entry, ...]:  # fmt: skip
    return tuple(
        move(
            movement, Money(micros), movement_id=f"{tags.job_id}/1/{about}", money=money, at=posted,
            covers=(since, until), tags=tags,
        )
    )  # fmt: skip
