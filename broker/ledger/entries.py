"""The ledger's entries and the movements that create them.

Every movement is two entries that sum to zero: money leaves one account and enters another. Accounts, per kind of money
(cash, amortized, sandbox):

- ``available``  money that may still be committed (falls with holds and charges; budgets limit how far);
- ``held``       reserved for a job, not yet spent;
- ``spent``      used.

``hold`` and ``top_up`` move available → held, ``settle`` held → spent, ``release`` held → available, ``adjust``
available ⇄ spent (a late or uncovered charge; it may exceed every limit), ``restore`` spent → held (returns an excess
settlement to its hold). ``date`` moves nothing: it sets the time for which the job's whole hold was judged. Entries are
immutable; another movement corrects an error.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.burns import Burn
from broker.core.values.money import Money, divide_half_even


class Account(StrEnum):
    """The accounts."""

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
    RESTORE = "restore"
    DATE = "date"


ROUTES: dict[Movement, tuple[Account, Account]] = {
    Movement.HOLD: (Account.AVAILABLE, Account.HELD),
    Movement.TOP_UP: (Account.AVAILABLE, Account.HELD),
    Movement.SETTLE: (Account.HELD, Account.SPENT),
    Movement.RELEASE: (Account.HELD, Account.AVAILABLE),
    Movement.ADJUST: (Account.AVAILABLE, Account.SPENT),
    Movement.RESTORE: (Account.SPENT, Account.HELD),
    Movement.DATE: (Account.AVAILABLE, Account.HELD),
}

# Replaces the movement's name in the id of an egress movement, and of one for machines outside of bought capacity.
EGRESS, OUTSIDE = "egress", "outside"


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of an entry, for reports and budgets."""

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

    ``movement_id`` is unique to a movement and shared by its two entries: a second posting is rejected, so posting is
    idempotent. ``covers``: the time of the money (UTC, half-open): of the spend, or for which the job's whole hold was
    judged. ``rate``: maximum hourly rate of that hold (USD, all machines); None for other entries, and for holds
    that are spread evenly. ``at``: when it was posted.
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
    rate: Money | None = None


@dataclass(frozen=True, slots=True)
class Sum(Entry):
    """The sum of one job's entries with the same attempt, movement, account and kind of money.

    ``count``: number of entries. ``covers``: from the earliest to the latest time covered; ``at``: the latest posting.
    ``movement_id`` has no meaning here.
    """

    count: int = 1


def movements(sums: Iterable[Sum]) -> int:
    """Number of movements in a job's sums. Each movement has two entries."""
    return sum(entry_sum.count for entry_sum in sums) // 2


def move(  # noqa: PLR0913 - the fields of an entry
    movement: Movement,
    amount: Money,
    *,
    movement_id: str,
    money: MoneyKind,
    at: datetime,
    covers: tuple[datetime, datetime],
    tags: Tags,
    note: str = "",
    rate: Money | None = None,
) -> tuple[Entry, ...]:
    """The two entries of one movement. For an amount of zero there are none, except for `Movement.DATE`, which has no
    amount.

    Raises ValueError for a negative amount (except for `Movement.ADJUST`, which may give money back), and for a
    `Movement.DATE` with an amount.
    """
    if (amount.micros < 0 and movement is not Movement.ADJUST) or (amount and movement is Movement.DATE):
        raise ValueError(f"a {movement.value} of {amount} is invalid")
    if not amount and movement is not Movement.DATE:
        return ()
    source, target = ROUTES[movement]

    def entry(account: Account, signed: Money) -> Entry:
        return Entry(movement_id, movement, account, signed, money, at, covers[0], covers[1], tags, note, rate)

    return entry(source, -amount), entry(target, amount)


@dataclass(frozen=True, slots=True)
class Dates:
    """The time (UTC) and hourly rate (USD) for which a job's whole hold of one kind of money was judged."""

    start: datetime
    end: datetime
    rate: Money


def dates_after(previous: Dates | None, held: Money, entry: Entry) -> Dates | None:
    """The dates of a hold after one more entry, with ``held`` as its new amount; None if nothing is held. The last
    dating movement decides. Amounts of movements without a rate are spread evenly over their own times: the longest of
    these times and the highest rate apply.
    """
    if not held:
        return None
    if entry.movement not in (Movement.HOLD, Movement.TOP_UP, Movement.DATE):
        return previous
    if entry.rate is not None:
        return Dates(entry.covers_from, entry.covers_to, entry.rate)
    spread = Burn.evenly(entry.amount, (entry.covers_from, entry.covers_to))
    if previous is None:
        return Dates(spread.start, spread.end, spread.rate)
    return Dates(previous.start, max(previous.end, spread.end), max(previous.rate, spread.rate))


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of entries of one kind of money. ``dates``: of the hold, if the store has them."""

    available: Money = Money.ZERO
    held: Money = Money.ZERO
    spent: Money = Money.ZERO
    dates: Dates | None = field(default=None, compare=False)

    @property
    def burn(self) -> Burn | None:
        """The hold with its dates; None if unknown, or nothing is held."""
        if self.dates is None or self.held <= Money.ZERO:
            return None
        return Burn(self.held, self.dates.start, self.dates.end, self.dates.rate)

    @property
    def balanced(self) -> bool:
        return (self.available + self.held + self.spent) == Money.ZERO


def cash_sums(balances: Mapping[MoneyKind, Balance]) -> tuple[Money, Money]:
    """The spend and the hold of a job (USD) without the use of capacity that was paid earlier."""
    paid = [balance for kind, balance in balances.items() if kind is not MoneyKind.AMORTISED]
    return sum((balance.spent for balance in paid), Money.ZERO), sum((balance.held for balance in paid), Money.ZERO)


def balances(entries: Iterable[Entry]) -> Mapping[MoneyKind, Balance]:
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


def held_burns(entries: Iterable[Entry]) -> Mapping[MoneyKind, Burn]:
    """One job's remaining holds by kind of money, with dates, from all its entries in posting order."""
    held: dict[MoneyKind, Money] = defaultdict(lambda: Money.ZERO)
    dates: dict[MoneyKind, Dates | None] = {}
    for entry in entries:
        if entry.account is Account.HELD:
            held[entry.money] += entry.amount
            dates[entry.money] = dates_after(dates.get(entry.money), held[entry.money], entry)
    burns = {kind: Balance(held=held[kind], dates=hold_dates).burn for kind, hold_dates in dates.items()}
    return {kind: burn for kind, burn in burns.items() if burn is not None}


def faults(entries: Iterable[Entry]) -> list[str]:
    """Errors of a ledger in sentences; empty if it balances.

    Checks that each movement sums to zero within one kind of money and follows its route, and that no job's hold is
    negative.
    """
    problems: list[str] = []
    by_movement: dict[str, Entry] = {}
    held: dict[tuple[str, MoneyKind], int] = defaultdict(int)
    for entry in entries:
        if entry.account is Account.HELD:
            key = entry.tags.job_id, entry.money
            held[key] += entry.amount.micros
            if not held[key]:
                del held[key]  # saves memory: most jobs hold nothing any more
        counterpart = by_movement.pop(entry.movement_id, None)
        if counterpart is None:
            by_movement[entry.movement_id] = entry
            continue
        source, target = ROUTES[counterpart.movement]
        if (counterpart.amount + entry.amount).micros or {counterpart.account, entry.account} != {source, target}:
            problems.append(f"movement {entry.movement_id} does not balance")
        if counterpart.money is not entry.money:
            problems.append(f"movement {entry.movement_id} mixes kinds of money")
    problems += [f"movement {movement_id} does not balance" for movement_id in by_movement]
    problems += [f"job {job} holds {Money(amount)} ({kind})" for (job, kind), amount in held.items() if amount < 0]
    return list(dict.fromkeys(problems))


# In all present time zones, periods begin and end on quarters of an hour. Slots of a day make long periods quick to
# sum.
QUARTER = 900_000_000
DAY = 96 * QUARTER
SIZES = (DAY, QUARTER)


def amount_before(micros: int, covers_from: int, covers_to: int, edge: int) -> int:
    """The part of an amount for that time before ``edge``; an amount without duration belongs to its start."""
    duration = covers_to - covers_from
    if duration <= 0:
        return micros if covers_from < edge else 0
    return divide_half_even(micros * min(max(edge - covers_from, 0), duration), duration)


def amount_within(micros: int, covers_from: int, covers_to: int, left: int, right: int) -> int:
    """The part of an amount for that time in the half-open period."""
    return amount_before(micros, covers_from, covers_to, right) - amount_before(micros, covers_from, covers_to, left)


def slots(micros: int, covers_from: int, covers_to: int, size: int) -> Iterator[tuple[int, int]]:
    """The slots of ``size`` microseconds that an amount falls into, counted from 1970, and its part in each."""
    first = covers_from // size
    last = max((covers_to - 1) // size, first)
    before = 0
    for slot in range(first, last + 1):
        until = amount_before(micros, covers_from, covers_to, (slot + 1) * size)
        yield slot, until - before
        before = until


def spans(left: int, right: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The half-open time from ``left`` to ``right`` as few ranges of whole slots (size, first slot, slot after the
    last), and the remaining ranges, which are shorter than a slot."""
    whole_slots: list[tuple[int, int, int]] = []
    remaining = [(left, right)]
    for size in SIZES:
        smaller: list[tuple[int, int]] = []
        for start, end in remaining:
            first, after = -(-start // size), end // size
            if first < after:
                whole_slots.append((size, first, after))
                smaller += [(start, first * size), (after * size, end)]
            else:
                smaller.append((start, end))
        remaining = [(start, end) for start, end in smaller if start < end]
    return whole_slots, remaining
