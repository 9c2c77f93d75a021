"""Why more or less was spent in one month than in another. Pure; every micro-dollar of the change is in one part.

What ran is compared per group: a team's project, with and without GPUs apart. Within a group, as price, volume and mix
are told apart in cost accounting, with hours h and price p per hour in each place, H and P of the group as a whole, and
0 for the month before:

- volume: (H - H0) * P0, more or fewer hours at the price that the group paid on average;
- mix:    sum of h * r less H * P0, the same hours in dearer or cheaper places, where r is the place's price the month
          before, or now where it was not used then;
- price:  sum of h * (p - r), the same places at other prices.

Before that, waste is taken out: work that was lost, as its attempt ended after its last checkpoint. A group that ran in
one of the months only is new or has ended; charges for no time (transfers, corrections) are other charges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from broker.core.values.money import Money
from broker.finops.division import whole_parts

NOBODY = "(none)"


@dataclass(frozen=True, slots=True)
class Cell:
    """Where money is compared: whose it is and where it was spent. None: not tagged, or no machine."""

    team: str | None
    project: str | None
    provider: str | None
    region: str | None
    accelerator: str | None
    capacity_type: str | None

    @property
    def owner(self) -> str:
        """``nlp / llm``"""
        return " / ".join(name for name in (self.team or NOBODY, self.project) if name)

    @property
    def place(self) -> str:
        """``aws us-east-1 H100 spot``; empty where no machine is known."""
        if self.provider is None:
            return ""
        return " ".join(filter(None, (self.provider, self.region, self.accelerator or "CPU", self.capacity_type)))


@dataclass(slots=True)
class Used:
    """What a cell came to in a month. ``time``: of accelerators, or of machines without one, in milliseconds.
    ``wasted`` and ``wasted_time``: how much of both was lost work."""

    spent: Money = Money.ZERO
    time: int = 0
    wasted: Money = Money.ZERO
    wasted_time: int = 0


class Part(StrEnum):
    """Why the sum changed."""

    NEW = "new"
    ENDED = "ended"
    VOLUME = "volume"
    MIX = "mix"
    PRICE = "price"
    WASTE = "waste"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Change:
    """An amount (USD) by which more was spent than the month before, less where it is negative, and why. ``place`` is
    empty where it is about all places of the group."""

    part: Part
    owner: str
    place: str
    amount: Money


Month = Mapping[Cell, Used]


def changes(before: Month, after: Month) -> list[Change]:
    """What the change consists of, largest first; all of it adds up to the change of what was spent, exactly."""
    found: list[Change] = []
    groups: dict[tuple[str, bool], set[Cell]] = {}
    for cell in {**before, **after}:
        groups.setdefault((cell.owner, cell.accelerator is not None), set()).add(cell)
    for (owner, _), cells in groups.items():
        found += _of_group(owner, sorted(cells, key=lambda cell: cell.place), before, after)
    return sorted((one for one in found if one.amount), key=lambda one: (-abs(one.amount.micros), one.owner, one.place))


def total(month: Month) -> Money:
    """What was spent in a month."""
    return sum((used.spent for used in month.values()), Money.ZERO)


@dataclass(frozen=True, slots=True)
class _Work:
    """Useful work in one place: micro-dollars and milliseconds."""

    micros: int
    time: int

    @property
    def price(self) -> Fraction:
        return Fraction(self.micros, self.time)


def _of_group(owner: str, cells: Iterable[Cell], before: Month, after: Month) -> Iterable[Change]:
    old: dict[Cell, _Work] = {}
    new: dict[Cell, _Work] = {}
    wasted = 0
    for cell in cells:
        other = 0
        for month, works, sign in ((before, old, -1), (after, new, 1)):
            used = month.get(cell, Used())
            wasted += sign * used.wasted.micros
            work = _Work(used.spent.micros - used.wasted.micros, used.time - used.wasted_time)
            if work.time > 0:
                works[cell] = work
            else:
                other += sign * work.micros
        yield Change(Part.OTHER, owner, cell.place, Money(other))
    yield Change(Part.WASTE, owner, "", Money(wasted))
    yield from _of_work(owner, old, new)


def _of_work(owner: str, old: Mapping[Cell, _Work], new: Mapping[Cell, _Work]) -> Iterable[Change]:
    was, now = (sum(work.micros for work in works.values()) for works in (old, new))
    if not old or not new:
        if old or new:
            yield Change(Part.NEW if new else Part.ENDED, owner, "", Money(now - was))
        return
    hours_before, hours = (sum(work.time for work in works.values()) for works in (old, new))
    average = Fraction(was, hours_before)
    reference = {cell: (old.get(cell) or work).price for cell, work in new.items()}
    at_old_prices = sum((work.time * reference[cell] for cell, work in new.items()), Fraction(0))
    parts = [
        (Part.VOLUME, "", (hours - hours_before) * average),
        (Part.MIX, "", at_old_prices - hours * average),
        *((Part.PRICE, cell.place, work.micros - work.time * reference[cell]) for cell, work in new.items()),
    ]
    amounts = whole_parts([exact for _, _, exact in parts])
    for (part, place, _), micros in zip(parts, amounts, strict=True):
        yield Change(part, owner, place, Money(micros))
