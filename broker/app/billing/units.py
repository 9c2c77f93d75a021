"""Unit metrics of a period, of all or of one team, with use measured by the agents, targets and a trend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.assumptions import active_assumptions
from broker.app.billing.months import begun_period_bounds, report_timezone
from broker.app.finished_runs import TOKENS
from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Workload
from broker.core.policy.policy import SpotShare
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.economics.assumptions import Assumptions
from broker.ledger.finops.change import Month, owner_of, total
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.idle import idle_in
from broker.ledger.finops.tokens import ServedAttempt, TenantTokens, model_costs
from broker.ledger.finops.units import (
    USE_BY,
    MeasuredAttempt,
    MonthCosts,
    QualityCost,
    ReportedTokens,
    ScoredRun,
    Targets,
    UnitMetrics,
    per_unit,
    quality_costs,
    unit_metrics,
    use_by,
)

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader


PREDICTIONS = "predictions"
TREND_MONTHS = 6


def unit_metrics_report(
    broker: Broker,
    period: str,
    team: str | None = None,
    metric: str | None = None,
    timezone: str | None = None,
    by: str | None = None,
    tenants: TenantTokens | None = None,
) -> UnitMetrics:
    """The unit metrics of a period (`months.named_period`). Held capacity serves all teams, so that its use is not
    reported for one team. ``tenants``: divides served tokens. Raises `UnknownName`, and `InvalidInput` for a period
    that has not begun."""
    if by not in (None, *USE_BY):
        raise UnknownName("dimension", by or "", list(USE_BY), where="--by")
    now, zone_name = broker.clock.now(), report_timezone(broker, timezone)
    start, end = begun_period_bounds(broker, period, zone_name)
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    with broker.store.reading() as reader:
        policy = broker.policy(reader)
        all_cells = reader.used_in(start, end, now).cells
        eligible = eligible_spot(reader, policy, start, end, team)
        runs = reader.succeeded_runs(team, start, end)
        attempts = measured_attempts(reader, policy, start, end, team)
        reports = reader.reported_metrics(team, start, end)
        serving = reader.served_attempts(team, start, end)
        reported = _reported_work(reader, reports, serving, start, end)
        quality = _quality(reader, reports, metric)
        trend = _trend(reader, BillingMonth.of(end - timedelta(microseconds=1), zone_name), team, now, metric)
        targets = targets_of(active_assumptions(reader))
    idle_holdings = idle_in(holdings, all_cells, start, end) if team is None else []
    metrics = unit_metrics(start, end, _of_team(all_cells, team), runs, attempts, idle_holdings, reported)
    return replace(
        metrics,
        team=team,
        timezone=zone_name,
        eligible_hours=eligible.total,
        eligible_spot_hours=eligible.spot,
        targets=targets,
        quality=quality,
        groups=() if by is None else use_by(attempts, by),
        trend=trend,
        served=model_costs(serving, tenants or {}),
    )


def targets_of(assumptions: Assumptions) -> Targets:
    """The targets: `assumptions:` of the policies in force may set their own."""
    return Targets(
        assumptions.training_utilization,
        assumptions.inference_utilization,
        assumptions.average_utilization,
        assumptions.idle_hours_below,
        assumptions.spot_share,
    )


def measured_attempts(
    reader: StoreReader, policy: PolicySet, start: datetime, end: datetime, team: str | None = None
) -> list[MeasuredAttempt]:
    """The attempts on accelerators in the half-open period (UTC), with whether policies let them run on spot."""
    return [
        replace(attempt, may_use_spot=policy.is_spot_eligible(rented))
        for attempt, rented in reader.gpu_attempts(team, start, end)
    ]


def _of_team(cells: Month, team: str | None) -> Month:
    return {cell: cell_use for cell, cell_use in cells.items() if team is None or cell.team == team}


def _reported_work(
    reader: StoreReader,
    reports: Mapping[str, Sequence[Mapping[str, float]]],
    serving: Iterable[ServedAttempt],
    start: datetime,
    end: datetime,
) -> list[ReportedTokens]:
    """The tokens and predictions of the period, by job that reported any; else the tokens that its servers counted."""
    served = Counter[str]()
    for attempt in serving:
        served[attempt.job_id] += attempt.tokens
    work = {job_id: [float(tokens), 0.0] for job_id, tokens in served.items()}
    for job_id, (previous, latest) in reports.items():
        growth = [max(latest.get(name, 0.0) - previous.get(name, 0.0), 0.0) for name in (TOKENS, PREDICTIONS)]
        work[job_id] = [growth[0] or served[job_id], growth[1]]
    spend_by_job = reader.spent_by_jobs(list(work), start, end)
    return [
        ReportedTokens(tokens, spend_by_job.get(job_id, Money.ZERO), predictions)
        for job_id, (tokens, predictions) in work.items()
        if tokens or predictions
    ]


def _trend(
    reader: StoreReader, last: BillingMonth, team: str | None, now: datetime, metric: str | None
) -> tuple[MonthCosts, ...]:
    """The unit costs of that month and the five before it, without months in which nothing was spent."""
    costs, month = list[MonthCosts](), last
    for _ in range(TREND_MONTHS):
        start, end = month.start, min(month.end, now)
        spent = total(_of_team(reader.used_in(start, end, now).cells, team)) if start < end else Money.ZERO
        if spent:
            runs = reader.succeeded_runs(team, start, end)
            reports = reader.reported_metrics(team, start, end)
            work = _reported_work(reader, reports, reader.served_attempts(team, start, end), start, end)
            costs.append(
                MonthCosts(
                    month.name,
                    spent,
                    runs,
                    spent.share(1, runs) if runs else None,
                    per_unit(work, lambda record: record.tokens, 1_000_000),
                    per_unit(work, lambda record: record.predictions, 1000),
                    _quality(reader, reports, metric),
                )
            )
        month = month.before
    return tuple(reversed(costs))


def eligible_spot(look: StoreReader, policy: PolicySet, start: datetime, end: datetime, team: str | None) -> SpotShare:
    """The GPU-hours rented for training that could run on spot, as the rule `spot` decides; ``team`` None: of all."""
    rented = (
        hours
        for hours in look.rented_hours(start, end)
        if not hours.simulated and hours.workload == Workload.TRAINING and team in (None, hours.team)
    )
    return SpotShare.among(filter(policy.is_spot_eligible, rented))


def _quality(
    reader: StoreReader, reports: Mapping[str, Sequence[Mapping[str, float]]], metric: str | None
) -> tuple[QualityCost, ...]:
    """What quality cost in a metric, by the last reports of successful runs; None: nothing was asked for."""
    ids = [job_id for job_id, (_, latest) in reports.items() if metric in latest]
    spend_by_job = {
        id: sum((kind_balance.spent for kind_balance in kinds.values()), Money.ZERO)
        for id, kinds in reader.balances(ids).items()
    }
    return quality_costs(
        (
            owner_of(view.job.team, view.job.project),
            ScoredRun(view.id, spend_by_job.get(view.id, Money.ZERO), reports[view.id][1][metric or ""]),
        )
        for view in reader.views(ids)
        if view.state is JobState.SUCCEEDED
    )
