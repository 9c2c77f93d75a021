"""The review of a month: changes since the previous month and their causes, advice, what last month's advice saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from broker.app.access.people import require_role
from broker.app.assumptions import active_assumptions
from broker.app.billing.budgets import budget_parts, budget_rules
from broker.app.billing.months import report_timezone, resolve_begun_period
from broker.app.billing.report_documents import (
    FollowedAdviceResult,
    ReviewedBudget,
    ReviewedMonth,
    ReviewedTeam,
    ReviewReport,
)
from broker.app.billing.units import eligible_spot, measured_attempts, targets_of
from broker.app.capacity.findings import capacity_findings
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.actors import Actor
from broker.core.errors import UnknownName
from broker.core.market.offers import BOUGHT, CapacityType, OfferQuery
from broker.core.market.price_basis import PriceBasis, price_basis
from broker.core.policy.policy import SpotShare
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.budgets import period_containing
from broker.ledger.finops.advice import AdviceAnswer, AdviceVerdict, MonthAdvice, advice
from broker.ledger.finops.change import NOBODY, Change, Month, Part, changes, total
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.idle import idle_in
from broker.ledger.finops.run_advice import CheapestPrice, costs_by_job, run_advice
from broker.ledger.finops.units import MeasuredAttempt, use_shares

if TYPE_CHECKING:
    from broker.store.ledger.month_use import PeriodUse

MAX_CAUSES = 10  # causes listed individually
_HOUR = 3_600_000  # milliseconds


def review(broker: Broker, month: str, timezone: str | None = None) -> ReviewReport:
    """The review of a month (``2026-11``) or quarter (``2026-Q4``), in a time zone (None: `report_timezone`). What use
    since its start advises on capacity is only for this period and the last. Raises `InvalidInput` for an invalid
    period, or one that has not begun."""
    zone_name, now = report_timezone(broker, timezone), broker.clock.now()
    reviewed = resolve_begun_period(broker, month, zone_name)
    previous, end = reviewed.before, min(reviewed.end, now)
    until = previous.end if now >= reviewed.end else min(previous.start + (end - reviewed.start), previous.end)
    rules = [rule for rule in budget_rules(broker.policy()) if rule.spec.period == reviewed.kind]
    periods = (previous.start, until), (reviewed.start, end)
    with broker.store.reading() as reader:
        old = reader.used_in(previous.start, until, now)
        new = reader.used_in(reviewed.start, end, now)
        policy = broker.policy(reader)
        could = [eligible_spot(reader, policy, *time, None) for time in periods]
        attempts = [measured_attempts(reader, policy, *time) for time in periods]
        answers = [reader.advice_answers(period.reviews) for period in (previous, reviewed)]
        targets = targets_of(active_assumptions(reader))
        specs = [(spec, rule.config.amount) for rule in rules for spec in budget_parts(reader, rule.spec)]
        budgets = [
            ReviewedBudget(name=spec.id, limit=limit, spent=reader.spent(spec, *_period(spec, reviewed, now)))
            for spec, limit in specs
        ]
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    cheapest = cheapest_prices(broker)
    previous_advice, current_advice = (
        [
            replace(item, answer=answers.get(item.id))
            for item in advice(cells, idle_in(holdings, cells, *time), run_advice(runs, targets, cheapest))
        ]
        for cells, time, runs, answers in zip((old.cells, new.cells), periods, attempts, answers, strict=True)
    )
    job_costs = [costs_by_job(runs) for runs in attempts]
    cost_changes = changes(old.cells, new.cells)
    before, after = (
        _figures(*time, use, spot, runs)
        for time, use, spot, runs in zip(periods, (old, new), could, attempts, strict=True)
    )
    return ReviewReport.from_parts(
        month=reviewed.name,
        kind=reviewed.kind,
        timezone=zone_name,
        over=now >= reviewed.end,
        before=before,
        after=after,
        change=after.spent - before.spent,
        parts=_amount_by_part(cost_changes),
        causes=cost_changes[:MAX_CAUSES],
        other_causes=_sum(item.amount for item in cost_changes[MAX_CAUSES:]),
        teams=_teams(old.cells, new.cells),
        budgets=budgets,
        advice=current_advice,
        followed=[
            FollowedAdviceResult.from_parts(
                item,
                then=item.cost,
                now=_current_cost(item, current_advice),
                job_then=job_costs[0].get(item.about),
                job_now=job_costs[1].get(item.about),
            )
            for item in previous_advice
        ],
        capacity=capacity_findings(broker, reviewed.start).findings
        if reviewed.end >= BillingMonth.of(now, zone_name).start
        else (),
        targets=targets,
    )


def answer_advice(
    broker: Broker,
    month: str,
    advice_id: str,
    verdict: str,
    reason: str = "",
    timezone: str | None = None,
    *,
    by: Actor,
) -> ReviewReport:
    """Record an answer to an advice of a month's review; a later answer replaces it. Returns the review. If the store
    has people, only those whose role has the permission may do this. Raises as `review`, `UnknownName` for another
    advice or verdict, and `NotAllowed` for other people."""
    require_role(broker, by, Permission.ANSWER_ADVICE)
    if verdict not in list(AdviceVerdict):
        raise UnknownName("answer", verdict, list(AdviceVerdict), where="--answer")
    report = review(broker, month, timezone)
    if advice_id not in [item.id for item in report.advice]:
        raise UnknownName("advice", advice_id, [item.id for item in report.advice], where="--answer")
    answer = AdviceAnswer(AdviceVerdict(verdict), by.identity, broker.clock.now(), reason)
    with broker.store.writing() as tx:
        tx.answer_advice(report.month, advice_id, answer)
    return review(broker, month, timezone)


def cheapest_prices(broker: Broker) -> CheapestPrice:
    """The current price of an accelerator by `price_basis`, by accelerator and capacity type; read when asked for."""
    now = broker.clock.now()

    @cache
    def cheapest(accelerator: str, kind: CapacityType) -> PriceBasis | None:
        offers = broker.store.offers(OfferQuery(accelerators=(accelerator,), capacity_types=(kind,)))
        basis = price_basis(offers, now, accelerator, kind)
        return basis if basis is not None and basis.is_current else None

    return cheapest


def _period(spec: BudgetSpec, month: BillingMonth, now: datetime) -> tuple[datetime, datetime]:
    """The month in the budget's time zone, at most until now (UTC)."""
    start, end = period_containing(spec.period, spec.timezone, month.start + (month.end - month.start) / 2)
    return start, max(min(end, now), start)


def _figures(
    start: datetime, end: datetime, use: PeriodUse, could: SpotShare, runs: Sequence[MeasuredAttempt]
) -> ReviewedMonth:
    cells = use.cells
    gpu_cells = [(cell, cell_use) for cell, cell_use in cells.items() if cell.accelerator is not None]
    total_spend, owned_spend = (
        total(cells),
        _sum(cell_use.spent for cell, cell_use in cells.items() if cell.capacity_type in BOUGHT),
    )
    gpu_time, gpu_spent = (
        sum(cell_use.time for _, cell_use in gpu_cells),
        _sum(cell_use.spent for _, cell_use in gpu_cells),
    )
    return ReviewedMonth(
        since=start,
        until=end,
        spent=total_spend,
        cash=use.cash,
        bought_in_advance=use.bought_in_advance,
        amortised=use.amortised,
        gpu_hours=gpu_time / _HOUR,
        gpu_spent=gpu_spent,
        price=gpu_spent.share(_HOUR, gpu_time) if gpu_time else None,
        eligible_hours=could.total,
        eligible_spot_hours=could.spot,
        wasted=_sum(cell_use.wasted for cell_use in cells.values()),
        untagged=_sum(cell_use.spent for cell, cell_use in cells.items() if cell.team is None),
        on_own=owned_spend,
        rented=total_spend - owned_spend,
        use=use_shares(runs),
    )


def _amount_by_part(cost_changes: Iterable[Change]) -> dict[Part, Money]:
    amounts = dict.fromkeys(Part, Money.ZERO)
    for change in cost_changes:
        amounts[change.part] += change.amount
    return amounts


def _teams(old: Month, new: Month) -> list[ReviewedTeam]:
    previous, current = _spend_by_team(old), _spend_by_team(new)
    rows = [ReviewedTeam(team=team, before=previous[team], spent=current[team]) for team in {**previous, **current}]
    return sorted(rows, key=lambda row: (-row.spent.micros, row.team))


def _spend_by_team(cells: Month) -> defaultdict[str, Money]:
    spend_by_team: defaultdict[str, Money] = defaultdict(lambda: Money.ZERO)
    for cell, cell_use in cells.items():
        spend_by_team[cell.team or NOBODY] += cell_use.spent
    return spend_by_team


def _current_cost(earlier: MonthAdvice, current_advice: Iterable[MonthAdvice]) -> Money:
    return _sum(item.cost for item in current_advice if (item.kind, item.about) == (earlier.kind, earlier.about))


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)
