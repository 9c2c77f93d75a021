"""Why spending differs between two months. Pure; every micro-dollar of the change is in exactly one part.

Use is compared by group: a team's project, separately with and without GPUs. Within a group, the price-volume-mix
analysis of cost accounting applies. With hours h and price p per hour in each place, H and P of the whole group, and 0
for the month before:

- volume: (H - H0) * P0, more or fewer hours at the group's average price;
- mix:    sum of h * r less H * P0, the same hours in more or less expensive places, where r is the place's price in the
          month before, or its price now if it was not used then;
- price:  sum of h * (p - r), the same places at other prices.

Waste is subtracted first: lost work after an attempt's last checkpoint. A group with use in only one of the months is
new or has ended. Charges without a time (transfers, corrections) are other charges.

Exact parts are rounded to whole numbers with the same sum: the largest remainders are rounded up (Hamilton's method).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import floor

from broker.core.values.money import Money


def whole_parts(exact: Sequence[Fraction]) -> list[int]:
    """Whole numbers with the same sum, each less than one away from its exact part. Of equal remainders the first is
    rounded up. Raises ValueError if the sum is not whole."""
    total = sum(exact, Fraction(0))
    if total.denominator != 1:
        raise ValueError(f"the sum of the parts is not whole: {total}")
    found = [floor(part) for part in exact]
    missing = int(total) - sum(found)
    for place in sorted(range(len(exact)), key=lambda place: found[place] - exact[place])[:missing]:
        found[place] += 1
    return found


def shared(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides an amount in proportion to ``weights``. Raises ValueError for a negative weight or if all are zero."""
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("expected weights of 0 or more, and at least one above 0")
    return whole_parts([Fraction(amount * weight, whole) for weight in weights])


NOBODY = "(none)"
_SIGNS = frozenset('/"')


@dataclass(frozen=True, slots=True)
class Cell:
    """The unit of comparison: owner and place of spending. None: not tagged, or no machine."""

    team: str | None
    project: str | None
    provider: str | None
    region: str | None
    accelerator: str | None
    capacity_type: str | None

    @property
    def owner(self) -> str:
        """``nlp / llm``"""
        return owner_of(self.team, self.project)

    @property
    def place(self) -> str:
        """``aws us-east-1 H100 spot``; empty if no machine is known."""
        if self.provider is None:
            return ""
        return " ".join(filter(None, (self.provider, self.region, self.accelerator or "CPU", self.capacity_type)))


def owner_of(team: str | None, project: str | None) -> str:
    """``nlp / llm``; a name with a slash or a quotation mark is quoted, so that owners are distinct."""
    names = (team or NOBODY, project) if project else (team or NOBODY,)
    return " / ".join(json.dumps(name, ensure_ascii=False) if set(name) & _SIGNS else name for name in names)


@dataclass(slots=True)
class Used:
    """The sums of a cell in a month. ``time``: milliseconds of accelerators, or of machines without one. ``wasted`` and
    ``wasted_time``: the parts that were lost work."""

    spent: Money = Money.ZERO
    time: int = 0
    wasted: Money = Money.ZERO
    wasted_time: int = 0


class Part(StrEnum):
    """The cause of a change."""

    NEW = "new"
    ENDED = "ended"
    VOLUME = "volume"
    MIX = "mix"
    PRICE = "price"
    WASTE = "waste"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of spending against the month before (USD; negative: less), with its cause. ``place`` is empty if the
    change is for all places of the group."""

    part: Part
    owner: str
    place: str
    amount: Money


Month = Mapping[Cell, Used]


def changes(before: Month, after: Month) -> list[Change]:
    """The parts of the change, largest first. They add up exactly to the change of the total."""
    found: list[Change] = []
    groups: dict[tuple[str | None, str | None, bool], set[Cell]] = {}
    for cell in {**before, **after}:
        groups.setdefault((cell.team, cell.project, cell.accelerator is not None), set()).add(cell)
    for cells in groups.values():
        owner = next(iter(cells)).owner
        found += _of_group(owner, sorted(cells, key=lambda cell: cell.place), before, after)
    return sorted((one for one in found if one.amount), key=lambda one: (-abs(one.amount.micros), one.owner, one.place))


def total(month: Month) -> Money:
    """The total spending of a month, USD."""
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
