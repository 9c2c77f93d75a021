"""Unit metrics of a period, of all or of one team, with utilization from the agents' own samples.

Successful runs of a period: predictions of the first plan against measured outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.billing.months import begun_period_bounds, report_timezone
from broker.app.jobs.runs_root import run_folders
from broker.app.results.reports import ForecastsReport
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import SpotShare
from broker.core.ports import PolicySet
from broker.core.values.accelerators import accelerator_names, lookup
from broker.core.values.money import MICROS_PER_USD, Money
from broker.economics.units import TERA
from broker.finops.accuracy import RunOutcome, measured_speeds, prediction_errors
from broker.finops.change import owner_of
from broker.finops.idle import idle_in
from broker.finops.units import (
    MeasuredAttempt,
    ReportedTokens,
    ScoredRun,
    UnitMetrics,
    quality_costs,
    unit_metrics,
)
from broker.store.ledger.month_runs import GpuAttempt

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader


MAX_SAMPLED_ATTEMPTS = 500  # attempts whose samples are read, those with most accelerator time
TOKENS = "tokens"


def unit_metrics_report(
    broker: Broker, period: str, team: str | None = None, metric: str | None = None, timezone: str | None = None
) -> UnitMetrics:
    """The unit metrics of a period (`months.named_period`). Held capacity serves all teams, so that its use is not
    reported for one team. Raises `UnknownName`, and `InvalidInput` for a period that has not begun."""
    now, zone_name = broker.clock.now(), report_timezone(broker, timezone)
    start, end = begun_period_bounds(broker, period, zone_name)
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    with broker.store.reading() as reader:
        all_cells = reader.used_in(start, end, now).cells
        eligible = eligible_spot(reader, broker.policy(reader), start, end, team)
        runs = reader.succeeded_runs(team, start, end)
        attempts = reader.gpu_attempts(team, start, end, MAX_SAMPLED_ATTEMPTS)
        reports = reader.reported_metrics(team, start, end)
        spend_by_job = reader.spent_by_jobs(list(reports), start, end)
        scored_runs = (
            []
            if metric is None
            else _scored_runs(reader, {id: job_report[1] for id, job_report in reports.items()}, metric)
        )
    cells = {cell: cell_use for cell, cell_use in all_cells.items() if team is None or cell.team == team}
    tokens = [
        ReportedTokens(latest[TOKENS] - previous.get(TOKENS, 0.0), spend_by_job.get(job_id, Money.ZERO))
        for job_id, (previous, latest) in reports.items()
        if latest.get(TOKENS, 0.0) > previous.get(TOKENS, 0.0)
    ]
    measurements = [_measure_attempt(broker, item, start, end) for item in attempts]
    idle_holdings = idle_in(holdings, all_cells, start, end) if team is None else []
    metrics = unit_metrics(
        start, end, cells, runs, [item for item in measurements if item is not None], idle_holdings, tokens
    )
    return replace(
        metrics,
        team=team,
        timezone=zone_name,
        eligible_hours=eligible.total,
        eligible_spot_hours=eligible.spot,
        unread=measurements.count(None),
        quality=quality_costs(scored_runs),
    )


def eligible_spot(look: StoreReader, policy: PolicySet, start: datetime, end: datetime, team: str | None) -> SpotShare:
    """The GPU-hours rented for jobs that could run on spot, as the rule `spot` counts them; ``team`` None: of all."""
    rented = (one for one in look.rented_hours(start, end) if not one.simulated and team in (None, one.team))
    return SpotShare.among(filter(policy.is_spot_eligible, rented))


def _scored_runs(
    reader: StoreReader, reports: Mapping[str, Mapping[str, float]], metric: str
) -> list[tuple[str, ScoredRun]]:
    ids = [job_id for job_id, figures in reports.items() if metric in figures]
    spend_by_job = {
        id: sum((kind_balance.spent for kind_balance in kinds.values()), Money.ZERO)
        for id, kinds in reader.balances(ids).items()
    }
    return [
        (
            owner_of(view.job.team, view.job.project),
            ScoredRun(view.id, spend_by_job.get(view.id, Money.ZERO), reports[view.id][metric]),
        )
        for view in reader.views(ids)
        if view.state is JobState.SUCCEEDED
    ]


def _measure_attempt(broker: Broker, attempt: GpuAttempt, start: datetime, end: datetime) -> MeasuredAttempt | None:
    try:
        samples = run_folders(broker).of(attempt.job_id).usage(attempt.attempt)
    except BrokerError:
        return None
    return MeasuredAttempt(attempt.time, attempt.price, [s.percent for s in samples if start <= s.at < end])


GENERATED = "generated_tokens"
MAX_RUNS = 2_000  # that are read, those that ended last
_INTERRUPTIONS = (Cause.PREEMPTED, Cause.MACHINE_LOST)


def forecasts_report(
    broker: Broker, period: str, team: str | None = None, timezone: str | None = None
) -> ForecastsReport:
    """Predictions against outcomes of a period (`months.named_period`). Raises `UnknownName`, and `InvalidInput` for a
    period that has not begun."""
    zone_name = report_timezone(broker, timezone)
    start, end = begun_period_bounds(broker, period, zone_name)
    with broker.store.reading() as reader:
        runs = finished_runs(reader, start, end, team)
    unpredicted_count = sum(run.expected_hours is None for run in runs)
    return ForecastsReport(
        since=start,
        until=end,
        timezone=zone_name,
        team=team,
        runs=len(runs),
        unpredicted=unpredicted_count,
        unpredicted_share=unpredicted_count / len(runs) if runs else None,
        errors=list(prediction_errors(runs)),
        measured=list(measured_speeds(runs, peaks())),
    )


def finished_runs(reader: StoreReader, start: datetime, end: datetime, team: str | None = None) -> list[RunOutcome]:
    """The successful runs on accelerators whose machines all ended in the half-open period (UTC), at most the
    `MAX_RUNS` that ended last. Simulated runs do not count."""
    hours = reader.machine_hours(reader.succeeded_jobs(team, start, end, MAX_RUNS))
    views = {view.id: view for view in reader.views(list(hours))}
    balances = reader.balances(list(hours))
    last_reports = reader.last_reports(list(hours))
    plans: dict[str, tuple[datetime, Placement]] = {}
    interruptions, spot_interruptions = Counter[str](), Counter[str]()
    is_on_spot: dict[str, bool] = {}  # whether the latest attempt placed is on spot
    for job_id, at, body in reader.plans_and_ends(list(hours)):
        if isinstance(body, ev.LaunchRequested):
            plans.setdefault(job_id, (at, body.placement))
            is_on_spot[job_id] = body.placement.offer.capacity_type is CapacityType.SPOT
        elif isinstance(body, ev.AttemptEnded) and body.cause in _INTERRUPTIONS:
            interruptions[job_id] += 1
            spot_interruptions[job_id] += is_on_spot.get(job_id, False)
    outcomes = []
    for job_id, machine in hours.items():
        if job_id not in plans or job_id not in views:
            continue
        (began, placement), model = plans[job_id], views[job_id].job.model
        cost = sum(
            (kind_balance.spent for kind_balance in balances.get(job_id, {}).values()), Money.ZERO
        )  # with prepaid hours, as in plans
        length = placement.duration / timedelta(hours=1) if placement.duration is not None else None
        outcomes.append(
            RunOutcome(
                job_id=job_id,
                accelerator=machine.accelerator or "",
                usd=_usd(cost),
                hours=(machine.until - began) / timedelta(hours=1),
                gpu_hours=machine.gpu_hours,
                interruptions=interruptions[job_id],
                spot_gpu_hours=machine.spot_gpu_hours,
                spot_interruptions=spot_interruptions[job_id],
                expected_usd=None if length is None else _usd(placement.expected_cost),
                expected_hours=length,
                expected_usd_per_gpu_hour=_usd(placement.rate) / placement.gpus if placement.gpus else None,
                expected_interruptions=None if length is None else length * placement.interruptions_per_hour,
                parameters=model.parameters if model else None,
                trains=model is None or model.method != "inference",
                tokens=last_reports.get(job_id, {}).get(TOKENS),
                generated=last_reports.get(job_id, {}).get(GENERATED),
            )
        )
    return outcomes


def peaks() -> dict[str, float]:
    """Dense 16-bit FLOP/s of one accelerator, by name, where its vendor states it."""
    return {card.name: card.tflops_16bit * TERA for card in map(lookup, accelerator_names()) if card.tflops_16bit}


def _usd(amount: Money) -> float:
    return amount.micros / MICROS_PER_USD
