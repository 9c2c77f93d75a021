"""The review of a month: changes since the previous month and their causes, advice, what last month's advice saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.billing.budgets import rules_of, shares
from broker.app.billing.months import begun, report_timezone
from broker.app.billing.units import eligible_spot
from broker.app.capacity.findings import capacity_findings
from broker.app.results.reports import FollowedAdviceResult, ReviewedBudget, ReviewedMonth, ReviewedTeam, ReviewReport
from broker.app.wiring import Broker
from broker.core.market.offers import BOUGHT
from broker.core.policy.policy import SpotShare
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.finops.advice import MonthAdvice, advice
from broker.finops.change import NOBODY, Change, Month, Part, changes, total
from broker.finops.focus.months import BillingMonth
from broker.finops.idle import idle_in
from broker.ledger.budgets import period_containing

if TYPE_CHECKING:
    from broker.store.ledger.month_use import UseOfTime

MOST = 10  # causes listed individually
_HOUR = 3_600_000  # milliseconds


def review(broker: Broker, month: str, timezone: str | None = None) -> ReviewReport:
    """The review of a month (``2026-11``; ``timezone`` None: `report_timezone`); what use since its start advises on
    capacity only for this month and the last. Raises `InvalidInput` for an invalid month, or one that has not begun."""
    local, now = report_timezone(broker, timezone), broker.clock.now()
    wanted = begun(broker, month, local)
    earlier, end = wanted.before, min(wanted.end, now)
    until = earlier.end if now >= wanted.end else min(earlier.start + (end - wanted.start), earlier.end)
    specs = [(rule.spec, rule.config.amount) for rule in rules_of(broker.policy()) if rule.spec.period == "month"]
    with broker.store.reading() as look:
        old = look.used_in(earlier.start, until, now)
        new = look.used_in(wanted.start, end, now)
        policy = broker.policy(look)
        could = [eligible_spot(look, policy, *time, None) for time in ((earlier.start, until), (wanted.start, end))]
        budgets = [
            ReviewedBudget(name=spec.id, limit=limit, spent=look.spent(spec, *_period(spec, wanted, now)))
            for whole, limit in specs
            for spec in shares(look, whole)
        ]
    held = [recorded.holding for recorded in broker.store.holdings()]
    said = advice(new.cells, idle_in(held, new.cells, wanted.start, end))
    said_before = advice(old.cells, idle_in(held, old.cells, earlier.start, until))
    found = changes(old.cells, new.cells)
    before, after = _figures(earlier.start, until, old, could[0]), _figures(wanted.start, end, new, could[1])
    return ReviewReport.from_parts(
        month=wanted.name,
        timezone=local,
        over=now >= wanted.end,
        before=before,
        after=after,
        change=after.spent - before.spent,
        parts=_by_part(found),
        causes=found[:MOST],
        other_causes=_sum(one.amount for one in found[MOST:]),
        teams=_teams(old.cells, new.cells),
        budgets=budgets,
        advice=said,
        followed=[FollowedAdviceResult.from_parts(one, then=one.cost, now=_cost_now(one, said)) for one in said_before],
        capacity=capacity_findings(broker, wanted.start).findings
        if wanted.end >= BillingMonth.of(now, local).start
        else (),
    )


def _period(spec: BudgetSpec, month: BillingMonth, now: datetime) -> tuple[datetime, datetime]:
    """The month in the budget's time zone, at most until now (UTC)."""
    start, end = period_containing(spec.period, spec.timezone, month.start + (month.end - month.start) / 2)
    return start, max(min(end, now), start)


def _figures(start: datetime, end: datetime, use: UseOfTime, could: SpotShare) -> ReviewedMonth:
    cells = use.cells
    on_gpus = [(cell, used) for cell, used in cells.items() if cell.accelerator is not None]
    spent, on_own = total(cells), _sum(used.spent for cell, used in cells.items() if cell.capacity_type in BOUGHT)
    time, gpu_spent = sum(used.time for _, used in on_gpus), _sum(used.spent for _, used in on_gpus)
    return ReviewedMonth(
        since=start,
        until=end,
        spent=spent,
        cash=use.cash,
        bought_in_advance=use.bought_in_advance,
        amortised=use.amortised,
        gpu_hours=time / _HOUR,
        gpu_spent=gpu_spent,
        price=gpu_spent.share(_HOUR, time) if time else None,
        eligible_hours=could.total,
        eligible_spot_hours=could.spot,
        wasted=_sum(used.wasted for used in cells.values()),
        untagged=_sum(used.spent for cell, used in cells.items() if cell.team is None),
        on_own=on_own,
        rented=spent - on_own,
    )


def _by_part(found: Iterable[Change]) -> dict[Part, Money]:
    parts = dict.fromkeys(Part, Money.ZERO)
    for one in found:
        parts[one.part] += one.amount
    return parts


def _teams(old: Month, new: Month) -> list[ReviewedTeam]:
    before, after = _of_teams(old), _of_teams(new)
    rows = [ReviewedTeam(team=team, before=before[team], spent=after[team]) for team in {**before, **after}]
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
