"""Advice from a month's figures, each with its arithmetic. Pure, so that last month's advice can be computed again and
compared with the cost of the same things now."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from broker.core.values.money import Money
from broker.finops.change import Month, total
from broker.finops.idle import IdleCapacity

_HOUR = 3_600_000  # milliseconds
_MIN_SHARE = 0.01  # share of the month's spending


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
    capacities = list(idle)
    spending = total(cells) + sum((item.cost for item in capacities), Money.ZERO)
    candidates = [*_waste_advice(cells), *map(_idle_advice, capacities), *_untagged_advice(cells)]
    notable = [item for item in candidates if item.cost and item.cost >= spending.scaled(_MIN_SHARE)]
    return sorted(notable, key=lambda item: (-item.cost.micros, item.about))


def _waste_advice(cells: Month) -> Iterable[MonthAdvice]:
    owners: defaultdict[tuple[str | None, str | None, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for cell, used in cells.items():
        key = cell.team, cell.project, cell.owner
        figures = (used.wasted.micros, used.spent.micros, used.wasted_time, used.time)
        owners[key] = [value + added for value, added in zip(owners[key], figures, strict=True)]
    for (_, _, owner), (wasted, spent, lost, time) in owners.items():
        yield MonthAdvice(
            AdviceKind.WASTE,
            owner,
            Money(wasted),
            f"{_hours(lost)} of {_hours(time)} machine or GPU hours came after the last checkpoint of attempts that did"
            f" not end well: {Money(wasted).rounded()} of {Money(spent).rounded()}",
            "save checkpoints more often, and look at why these attempts ended: gpubroker status --attempts JOB",
        )


def _idle_advice(idle: IdleCapacity) -> MonthAdvice:
    return MonthAdvice(
        AdviceKind.IDLE,
        f"{idle.accelerator} {idle.kind.value}",
        idle.cost,
        f"{_hours(idle.idle_time)} of {_hours(idle.held_time)} GPU-hours held were idle:"
        f" {idle.cost.rounded()} of {idle.paid.rounded()}",
        "place jobs there first, or hold less: gpubroker policy findings",
    )


def _untagged_advice(cells: Month) -> Iterable[MonthAdvice]:
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
