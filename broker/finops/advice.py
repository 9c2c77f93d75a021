"""Advice from a month's figures, each with its arithmetic. Pure, so that last month's advice can be computed again and
compared with the cost of the same things now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from broker.core.values.money import Money
from broker.finops.change import Month, total
from broker.finops.idle import IdleCapacity

_HOUR = 3_600_000  # milliseconds
_WORTH_SAYING = 0.01  # share of the month's spending


class AdviceKind(StrEnum):
    """The subject of an advice."""

    WASTE = "waste"
    IDLE = "idle"
    UNTAGGED = "untagged"


@dataclass(frozen=True, slots=True)
class MonthAdvice:
    """``about``: a team's project, or capacity; ``cost``: USD in the month; ``because``: its derivation; ``do``: how
    to lower it."""

    kind: AdviceKind
    about: str
    cost: Money
    because: str
    do: str


def advice(cells: Month, idle: Iterable[IdleCapacity]) -> list[MonthAdvice]:
    """Advice on costs of at least 1 % of the month's spending, including idle capacity, most expensive first."""
    held = list(idle)
    whole = total(cells) + sum((one.cost for one in held), Money.ZERO)
    found = [*_of_waste(cells), *map(_of_idle, held), *_of_untagged(cells)]
    worth = [one for one in found if one.cost and one.cost >= whole.scaled(_WORTH_SAYING)]
    return sorted(worth, key=lambda one: (-one.cost.micros, one.about))


def _of_waste(cells: Month) -> Iterable[MonthAdvice]:
    owners: defaultdict[tuple[str | None, str | None, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for cell, used in cells.items():
        owner_of = cell.team, cell.project, cell.owner
        figures = (used.wasted.micros, used.spent.micros, used.wasted_time, used.time)
        owners[owner_of] = [one + more for one, more in zip(owners[owner_of], figures, strict=True)]
    for (_, _, owner), (wasted, spent, lost, time) in owners.items():
        yield MonthAdvice(
            AdviceKind.WASTE,
            owner,
            Money(wasted),
            f"{_hours(lost)} of {_hours(time)} machine or GPU hours came after the last checkpoint of attempts that did"
            f" not end well: {Money(wasted).rounded()} of {Money(spent).rounded()}",
            "save checkpoints more often, and look at why these attempts ended: gpubroker jobs attempts JOB",
        )


def _of_idle(idle: IdleCapacity) -> MonthAdvice:
    return MonthAdvice(
        AdviceKind.IDLE,
        f"{idle.accelerator} {idle.kind.value}",
        idle.cost,
        f"{_hours(idle.idle_time)} of {_hours(idle.held_time)} GPU-hours held were idle:"
        f" {idle.cost.rounded()} of {idle.paid.rounded()}",
        "place jobs there first, or hold less: gpubroker policy findings",
    )


def _of_untagged(cells: Month) -> Iterable[MonthAdvice]:
    untagged = sum((used.spent for cell, used in cells.items() if cell.team is None), Money.ZERO)
    yield MonthAdvice(
        AdviceKind.UNTAGGED,
        "no team",
        untagged,
        f"{untagged.rounded()} of {total(cells).rounded()} was spent by jobs that name no team",
        "give their job files a team",
    )


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / _HOUR:,.1f}"
