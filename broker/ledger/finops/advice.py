"""Advice from a month's figures, each with its arithmetic, and people's answers to it. Pure, so that last month's
advice can be computed again and compared with the cost of the same things now."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from broker.core.values.money import Money
from broker.ledger.finops.change import Month, total
from broker.ledger.finops.idle import IdleCapacity

_HOUR = 3_600_000  # milliseconds
_MIN_SHARE = 0.01  # share of the month's spending


class AdviceKind(StrEnum):
    """The subject of an advice."""

    WASTE = "waste"
    IDLE = "idle"
    UNTAGGED = "untagged"
    IDLE_RUN = "idle_run"
    DATA_WAIT = "data_wait"
    RIGHT_SIZE = "right_size"
    SHARE_CARDS = "share_cards"
    SPOT = "spot"


class AdviceVerdict(StrEnum):
    """A person's answer to advice: it will be followed, it does not apply, it has been followed."""

    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class AdviceAnswer:
    """The answer to an advice: by whom, when (UTC), and why."""

    verdict: AdviceVerdict
    by: str
    at: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MonthAdvice:
    """``id``: the same in every month; ``about``: a team's project, its jobs of a name, or capacity; ``cost``: what it
    could save at most, USD in the month; ``because``: its derivation; ``do``: how to lower it."""

    id: str
    kind: AdviceKind
    about: str
    cost: Money
    because: str
    do: str
    answer: AdviceAnswer | None = None


def advise(kind: AdviceKind, about: str, cost: Money, because: str, do: str) -> MonthAdvice:
    """An advice with its id: the kind and some digits."""
    digits = sha256(about.encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return MonthAdvice(f"{kind.value.replace('_', '-')}-{digits}", kind, about, cost, because, do)


def advice(cells: Month, idle: Iterable[IdleCapacity], on_runs: Iterable[MonthAdvice] = ()) -> list[MonthAdvice]:
    """Advice on costs of at least 1 % of the month's spending, including idle capacity, most expensive first.
    ``on_runs``: further candidates, of `broker.ledger.finops.run_advice`."""
    capacities = list(idle)
    spending = total(cells) + sum((item.cost for item in capacities), Money.ZERO)
    candidates = [*_waste_advice(cells), *map(_idle_advice, capacities), *_untagged_advice(cells)]
    candidates += on_runs
    notable = [item for item in candidates if item.cost > Money.ZERO and item.cost >= spending.scaled(_MIN_SHARE)]
    return sorted(notable, key=lambda item: (-item.cost.micros, item.about, item.id))


def _waste_advice(cells: Month) -> Iterable[MonthAdvice]:
    owners: defaultdict[tuple[str | None, str | None, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for cell, used in cells.items():
        key = cell.team, cell.project, cell.owner
        figures = (used.wasted.micros, used.spent.micros, used.wasted_time, used.time)
        owners[key] = [value + added for value, added in zip(owners[key], figures, strict=True)]
    for (_, _, owner), (wasted, spent, lost, time) in owners.items():
        yield advise(
            AdviceKind.WASTE,
            owner,
            Money(wasted),
            f"{hours_text(lost)} of {hours_text(time)} machine or GPU hours came after the last checkpoint of attempts"
            f" that did not end well: {Money(wasted).rounded()} of {Money(spent).rounded()}",
            "save checkpoints more often, and look at why these attempts ended: gpubroker status --attempts JOB",
        )


def _idle_advice(idle: IdleCapacity) -> MonthAdvice:
    return advise(
        AdviceKind.IDLE,
        f"{idle.accelerator} {idle.kind.value}",
        idle.cost,
        f"{hours_text(idle.idle_time)} of {hours_text(idle.held_time)} GPU-hours held were idle:"
        f" {idle.cost.rounded()} of {idle.paid.rounded()}",
        "place jobs there first, or hold less: gpubroker policy findings",
    )


def _untagged_advice(cells: Month) -> Iterable[MonthAdvice]:
    untagged = sum((used.spent for cell, used in cells.items() if cell.team is None), Money.ZERO)
    yield advise(
        AdviceKind.UNTAGGED,
        "no team",
        untagged,
        f"{untagged.rounded()} of {total(cells).rounded()} was spent by jobs that name no team",
        "give their job files a team",
    )


def hours_text(milliseconds: float) -> str:
    """``1,200.5``"""
    return f"{milliseconds / _HOUR:,.1f}"
