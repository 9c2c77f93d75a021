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
    parts = [floor(part) for part in exact]
    missing = int(total) - sum(parts)
    for index in sorted(range(len(exact)), key=lambda index: parts[index] - exact[index])[:missing]:
        parts[index] += 1
    return parts


def divide_by_weights(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides an amount in proportion to ``weights``. Raises ValueError for a negative weight or if all are zero."""
    weight_sum = sum(weights)
    if weight_sum <= 0 or min(weights) < 0:
        raise ValueError("expected weights of 0 or more, and at least one above 0")
    return whole_parts([Fraction(amount * weight, weight_sum) for weight in weights])


NOBODY = "(none)"
_QUOTED_SIGNS = frozenset('/"')


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
    return " / ".join(json.dumps(name, ensure_ascii=False) if set(name) & _QUOTED_SIGNS else name for name in names)


@dataclass(slots=True)
class CellUse:
    """The sums of a cell in a month. ``time``: milliseconds of cards (a part counts as its share), or of machines
    without one. ``wasted`` and
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


Month = Mapping[Cell, CellUse]


def changes(before: Month, after: Month) -> list[Change]:
    """The parts of the change, largest first. They add up exactly to the change of the total."""
    all_changes: list[Change] = []
    groups: dict[tuple[str | None, str | None, bool], set[Cell]] = {}
    for cell in {**before, **after}:
        groups.setdefault((cell.team, cell.project, cell.accelerator is not None), set()).add(cell)
    for cells in groups.values():
        owner = next(iter(cells)).owner
        all_changes += _group_changes(owner, sorted(cells, key=lambda cell: cell.place), before, after)
    return sorted(
        (change for change in all_changes if change.amount),
        key=lambda change: (-abs(change.amount.micros), change.owner, change.place),
    )


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


def _group_changes(owner: str, cells: Iterable[Cell], before: Month, after: Month) -> Iterable[Change]:
    work_before: dict[Cell, _Work] = {}
    work_after: dict[Cell, _Work] = {}
    wasted = 0
    for cell in cells:
        other_charges = 0
        for month, works, sign in ((before, work_before, -1), (after, work_after, 1)):
            used = month.get(cell, CellUse())
            wasted += sign * used.wasted.micros
            work = _Work(used.spent.micros - used.wasted.micros, used.time - used.wasted_time)
            if work.time > 0:
                works[cell] = work
            else:
                other_charges += sign * work.micros
        yield Change(Part.OTHER, owner, cell.place, Money(other_charges))
    yield Change(Part.WASTE, owner, "", Money(wasted))
    yield from _work_changes(owner, work_before, work_after)


def _work_changes(owner: str, work_before: Mapping[Cell, _Work], work_after: Mapping[Cell, _Work]) -> Iterable[Change]:
    cost_before, cost_now = (sum(work.micros for work in works.values()) for works in (work_before, work_after))
    if not work_before or not work_after:
        if work_before or work_after:
            yield Change(Part.NEW if work_after else Part.ENDED, owner, "", Money(cost_now - cost_before))
        return
    hours_before, hours = (sum(work.time for work in works.values()) for works in (work_before, work_after))
    average = Fraction(cost_before, hours_before)
    reference = {cell: (work_before.get(cell) or work).price for cell, work in work_after.items()}
    at_old_prices = sum((work.time * reference[cell] for cell, work in work_after.items()), Fraction(0))
    parts = [
        (Part.VOLUME, "", (hours - hours_before) * average),
        (Part.MIX, "", at_old_prices - hours * average),
        *((Part.PRICE, cell.place, work.micros - work.time * reference[cell]) for cell, work in work_after.items()),
    ]
    amounts = whole_parts([exact for _, _, exact in parts])
    for (part, place, _), micros in zip(parts, amounts, strict=True):
        yield Change(part, owner, place, Money(micros))
