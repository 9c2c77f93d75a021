"""The ledger's rows and the movements that make them.

Every movement is two entries that sum to zero: money leaves one account and enters another. Accounts, per kind of
money (cash, amortised, sandbox):

- ``available``  what may still be promised (it goes down as money is held or charged; budgets limit how far);
- ``held``       set aside for a job, not yet spent;
- ``spent``      used.

``hold`` and ``top_up`` move available → held, ``settle`` held → spent, ``release`` held → available, ``adjust``
available ⇄ spent (a charge that comes later or was not covered by the hold; it may exceed every limit). Entries are
immutable; a mistake is mended by another movement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.core.money import Money
from broker.core.offers import CapacityType, MoneyKind


class Account(StrEnum):
    """Where money is."""

    AVAILABLE = "available"
    HELD = "held"
    SPENT = "spent"


class Movement(StrEnum):
    """Why money moved."""

    HOLD = "hold"
    TOP_UP = "top_up"
    SETTLE = "settle"
    RELEASE = "release"
    ADJUST = "adjust"


_ROUTES: dict[Movement, tuple[Account, Account]] = {
    Movement.HOLD: (Account.AVAILABLE, Account.HELD),
    Movement.TOP_UP: (Account.AVAILABLE, Account.HELD),
    Movement.SETTLE: (Account.HELD, Account.SPENT),
    Movement.RELEASE: (Account.HELD, Account.AVAILABLE),
    Movement.ADJUST: (Account.AVAILABLE, Account.SPENT),
}


@dataclass(frozen=True, slots=True)
class Tags:
    """For whom, for what and where: what reports group by and budgets match on."""

    job_id: str
    user: str
    team: str | None = None
    project: str | None = None
    workload: str | None = None
    environment: str | None = None
    attempt: int | None = None
    provider: str | None = None
    region: str | None = None
    capacity_type: CapacityType | None = None
    accelerator: str | None = None
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One immutable movement of money into (positive) or out of (negative) one account.

    ``movement_id`` is shared by the two entries of a movement and unique to it: posting it twice is refused, which
    makes posting idempotent. ``covers``: the time the money is for (UTC, half-open): when spend was incurred, or the
    window a hold is meant for. ``at``: when it was posted.
    """

    movement_id: str
    movement: Movement
    account: Account
    amount: Money
    money: MoneyKind
    at: datetime
    covers_from: datetime
    covers_to: datetime
    tags: Tags
    note: str = ""


def move(
    movement: Movement,
    amount: Money,
    *,
    movement_id: str,
    money: MoneyKind,
    at: datetime,
    covers: tuple[datetime, datetime],
    tags: Tags,
    note: str = "",
) -> tuple[Entry, ...]:
    """The two entries of one movement; none at all for an amount of zero.

    Raises ValueError for a negative amount, but for `Movement.ADJUST`, which may give money back.
    """
    if amount.micros < 0 and movement is not Movement.ADJUST:
        raise ValueError(f"a {movement.value} of {amount} makes no sense")
    if not amount:
        return ()
    source, target = _ROUTES[movement]

    def entry(account: Account, signed: Money) -> Entry:
        return Entry(movement_id, movement, account, signed, money, at, covers[0], covers[1], tags, note)

    return entry(source, -amount), entry(target, amount)


@dataclass(frozen=True, slots=True)
class Balance:
    """What a set of entries of one kind of money comes to."""

    available: Money = Money.ZERO
    held: Money = Money.ZERO
    spent: Money = Money.ZERO

    @property
    def balanced(self) -> bool:
        return (self.available + self.held + self.spent) == Money.ZERO


def balances(entries: Iterable[Entry]) -> Mapping[MoneyKind, Balance]:
    """The balance of each kind of money that occurs."""
    sums: dict[MoneyKind, dict[Account, int]] = defaultdict(lambda: dict.fromkeys(Account, 0))
    for entry in entries:
        sums[entry.money][entry.account] += entry.amount.micros
    return {
        kind: Balance(
            available=Money(by_account[Account.AVAILABLE]),
            held=Money(by_account[Account.HELD]),
            spent=Money(by_account[Account.SPENT]),
        )
        for kind, by_account in sums.items()
    }


def faults(entries: Iterable[Entry]) -> list[str]:
    """What is wrong with a ledger, in sentences; empty when it balances.

    Checked: each movement sums to zero within one kind of money and follows its route, and no job holds less than
    nothing.
    """
    found: list[str] = []
    by_movement: dict[str, list[Entry]] = defaultdict(list)
    held: dict[tuple[str, MoneyKind], int] = defaultdict(int)
    for entry in entries:
        by_movement[entry.movement_id].append(entry)
        if entry.account is Account.HELD:
            held[entry.tags.job_id, entry.money] += entry.amount.micros
    for movement_id, pair in by_movement.items():
        source, target = _ROUTES[pair[0].movement]
        if sum(e.amount.micros for e in pair) or {e.account for e in pair} != {source, target} or len(pair) != 2:
            found.append(f"movement {movement_id} does not balance")
        if len({e.money for e in pair}) > 1:
            found.append(f"movement {movement_id} mixes kinds of money")
    found += [f"job {job} holds {Money(amount)} ({kind})" for (job, kind), amount in held.items() if amount < 0]
    return found
