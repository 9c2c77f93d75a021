"""The review of a month: what changed against the month before and why, what to do, what last month's advice saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.billing.budgets import rules_of
from broker.app.billing.months import begun
from broker.app.capacity.findings import capacity_findings
from broker.app.wiring import Broker
from broker.core.market.offers import BOUGHT, CapacityType
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.finops.advice import MonthAdvice, advice
from broker.finops.change import NOBODY, Change, Month, Part, changes, total
from broker.finops.focus.months import BillingMonth
from broker.finops.idle import idle_in
from broker.ledger.budgets import period_containing

if TYPE_CHECKING:
    from broker.economics.reserve.capacity_findings import CapacityFinding
    from broker.store.ledger.month_use import UseOfTime

MOST = 10  # causes that are named one by one


@dataclass(frozen=True, slots=True)
class MonthFigures:
    """One month, or as much of it as is compared, ``start`` until ``end`` (UTC). USD: ``spent``: cost of use, cash and
    amortised; ``cash``: to be paid, including what was ``bought`` in advance. ``gpu_time`` and ``spot_time``:
    accelerator time in milliseconds; ``gpu_spent`` and ``spot_spent``: its cost; ``wasted``: the cost of lost work;
    ``on_own``: the cost of using owned and reserved capacity."""

    start: datetime
    end: datetime
    spent: Money
    cash: Money
    bought: Money
    amortised: Money
    gpu_time: int
    gpu_spent: Money
    spot_time: int
    spot_spent: Money
    wasted: Money
    untagged: Money
    on_own: Money


@dataclass(frozen=True, slots=True)
class TeamChange:
    """The cost of a team's use (USD)."""

    team: str
    before: Money
    spent: Money


@dataclass(frozen=True, slots=True)
class BudgetOfMonth:
    """A monthly budget of the policies in force, and what was spent under it in the month (USD)."""

    name: str
    limit: Money
    spent: Money


@dataclass(frozen=True, slots=True)
class FollowedAdvice:
    """Advice of the month before, and what the same thing cost in this month (USD); zero if the advice no longer
    applies."""

    advice: MonthAdvice
    now: Money


@dataclass(frozen=True, slots=True)
class MonthReview:
    """``over``: whether the month has ended; otherwise the same days of the month before are compared. ``parts`` (USD)
    add up to the change of ``spent``, and so do ``causes`` with ``rest``, the sum of causes that are not named.
    ``capacity``: what the use since the start of the month advises on owning, reserving and renting now; nothing for
    months before the last."""

    month: BillingMonth
    over: bool
    before: MonthFigures
    after: MonthFigures
    parts: Mapping[Part, Money]
    causes: Sequence[Change]
    rest: Money
    teams: Sequence[TeamChange]
    budgets: Sequence[BudgetOfMonth]
    advice: Sequence[MonthAdvice]
    followed: Sequence[FollowedAdvice]
    capacity: Sequence[CapacityFinding]

    @property
    def change(self) -> Money:
        return self.after.spent - self.before.spent


def review(broker: Broker, month: str) -> MonthReview:
    """The review of a month (``2026-11``, UTC). Raises `InvalidInput` for an invalid month, or one that has not
    begun."""
    wanted, now = begun(broker, month), broker.clock.now()
    earlier, end = wanted.before, min(wanted.end, now)
    until = earlier.end if now >= wanted.end else min(earlier.start + (end - wanted.start), earlier.end)
    specs = [(rule.spec, rule.config.amount) for rule in rules_of(broker.policy()) if rule.spec.period == "month"]
    with broker.store.reading() as look:
        old = look.used_in(earlier.start, until, now)
        new = look.used_in(wanted.start, end, now)
        budgets = [
            BudgetOfMonth(spec.id, limit, look.spent(spec, *_period(spec, wanted, now))) for spec, limit in specs
        ]
    held = [recorded.holding for recorded in broker.store.holdings()]
    said = advice(new.cells, idle_in(held, new.cells, wanted.start, end))
    said_before = advice(old.cells, idle_in(held, old.cells, earlier.start, until))
    found = changes(old.cells, new.cells)
    return MonthReview(
        month=wanted,
        over=now >= wanted.end,
        before=_figures(earlier.start, until, old),
        after=_figures(wanted.start, end, new),
        parts=_by_part(found),
        causes=found[:MOST],
        rest=_sum(one.amount for one in found[MOST:]),
        teams=_teams(old.cells, new.cells),
        budgets=budgets,
        advice=said,
        followed=[FollowedAdvice(one, _cost_now(one, said)) for one in said_before],
        capacity=capacity_findings(broker, wanted.start).findings if wanted.end >= BillingMonth.of(now).start else (),
    )


def _period(spec: BudgetSpec, month: BillingMonth, now: datetime) -> tuple[datetime, datetime]:
    """The month in the budget's time zone, at most until now (UTC)."""
    start, end = period_containing(spec.period, spec.timezone, month.start + (month.end - month.start) / 2)
    return start, max(min(end, now), start)


def _figures(start: datetime, end: datetime, use: UseOfTime) -> MonthFigures:
    cells = use.cells
    on_gpus = [(cell, used) for cell, used in cells.items() if cell.accelerator is not None]
    on_spot = [used for cell, used in on_gpus if cell.capacity_type == CapacityType.SPOT]
    return MonthFigures(
        start=start,
        end=end,
        spent=total(cells),
        cash=use.cash,
        bought=use.bought,
        amortised=use.amortised,
        gpu_time=sum(used.time for _, used in on_gpus),
        gpu_spent=_sum(used.spent for _, used in on_gpus),
        spot_time=sum(used.time for used in on_spot),
        spot_spent=_sum(used.spent for used in on_spot),
        wasted=_sum(used.wasted for used in cells.values()),
        untagged=_sum(used.spent for cell, used in cells.items() if cell.team is None),
        on_own=_sum(used.spent for cell, used in cells.items() if cell.capacity_type in BOUGHT),
    )


def _by_part(found: Iterable[Change]) -> Mapping[Part, Money]:
    parts = dict.fromkeys(Part, Money.ZERO)
    for one in found:
        parts[one.part] += one.amount
    return parts


def _teams(old: Month, new: Month) -> Sequence[TeamChange]:
    before, after = _of_teams(old), _of_teams(new)
    rows = [TeamChange(team, before[team], after[team]) for team in {**before, **after}]
    return sorted(rows, key=lambda row: (-row.spent.micros, row.team))


def _of_teams(cells: Month) -> defaultdict[str, Money]:
    found: defaultdict[str, Money] = defaultdict(lambda: Money.ZERO)
    for cell, used in cells.items():
        found[cell.team or NOBODY] += used.spent
    return found


def _cost_now(earlier: MonthAdvice, said: Iterable[MonthAdvice]) -> Money:
    return _sum(one.cost for one in said if (one.kind, one.about) == (earlier.kind, earlier.about))


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)
