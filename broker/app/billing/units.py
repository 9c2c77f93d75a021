"""Unit metrics of a period, of all or of one team, with utilization from the agents' own samples.

Successful runs of a period: predictions of the first plan against measured outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.billing.months import begun_period, report_timezone
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
from broker.core.values.accelerators import known, lookup
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
    from broker.store.jobs.reading import StoreReading


MOST_READ = 500  # attempts whose samples are read, those with most accelerator time
TOKENS = "tokens"


def units(
    broker: Broker, period: str, team: str | None = None, metric: str | None = None, timezone: str | None = None
) -> UnitMetrics:
    """The unit metrics of a period (`months.named_period`). Held capacity serves all teams, so that its use is not
    reported for one team. Raises `UnknownName`, and `InvalidInput` for a period that has not begun."""
    now, local = broker.clock.now(), report_timezone(broker, timezone)
    start, end = begun_period(broker, period, local)
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    with broker.store.reading() as look:
        everything = look.used_in(start, end, now).cells
        eligible = eligible_spot(look, broker.policy(look), start, end, team)
        runs = look.succeeded_runs(team, start, end)
        attempts = look.gpu_attempts(team, start, end, MOST_READ)
        told = look.reported_metrics(team, start, end)
        spent = look.spent_by_jobs(list(told), start, end)
        runs_of = [] if metric is None else _scored(look, {id: said[1] for id, said in told.items()}, metric)
    cells = {cell: used for cell, used in everything.items() if team is None or cell.team == team}
    tokens = [
        ReportedTokens(latest[TOKENS] - before.get(TOKENS, 0.0), spent.get(job_id, Money.ZERO))
        for job_id, (before, latest) in told.items()
        if latest.get(TOKENS, 0.0) > before.get(TOKENS, 0.0)
    ]
    measured = [_measured(broker, one, start, end) for one in attempts]
    held = idle_in(holdings, everything, start, end) if team is None else []
    found = unit_metrics(start, end, cells, runs, [one for one in measured if one is not None], held, tokens)
    return replace(
        found,
        team=team,
        timezone=local,
        eligible_hours=eligible.total,
        eligible_spot_hours=eligible.spot,
        unread=measured.count(None),
        quality=quality_costs(runs_of),
    )


def eligible_spot(look: StoreReading, policy: PolicySet, start: datetime, end: datetime, team: str | None) -> SpotShare:
    """The GPU-hours rented for jobs that could run on spot, as the rule `spot` counts them; ``team`` None: of all."""
    rented = (one for one in look.rented_hours(start, end) if not one.simulated and team in (None, one.team))
    return SpotShare.among(filter(policy.is_spot_eligible, rented))


def _scored(look: StoreReading, told: Mapping[str, Mapping[str, float]], metric: str) -> list[tuple[str, ScoredRun]]:
    ids = [job_id for job_id, figures in told.items() if metric in figures]
    spent = {id: sum((one.spent for one in kinds.values()), Money.ZERO) for id, kinds in look.balances(ids).items()}
    return [
        (
            owner_of(view.job.team, view.job.project),
            ScoredRun(view.id, spent.get(view.id, Money.ZERO), told[view.id][metric]),
        )
        for view in look.views(ids)
        if view.state is JobState.SUCCEEDED
    ]


def _measured(broker: Broker, one: GpuAttempt, start: datetime, end: datetime) -> MeasuredAttempt | None:
    try:
        samples = run_folders(broker).of(one.job_id).usage(one.attempt)
    except BrokerError:
        return None
    return MeasuredAttempt(one.time, one.price, [s.percent for s in samples if start <= s.at < end])


GENERATED = "generated_tokens"
MOST_RUNS = 2_000  # that are read, those that ended last
_TAKEN = (Cause.PREEMPTED, Cause.MACHINE_LOST)


def forecasts(broker: Broker, period: str, team: str | None = None, timezone: str | None = None) -> ForecastsReport:
    """Predictions against outcomes of a period (`months.named_period`). Raises `UnknownName`, and `InvalidInput` for a
    period that has not begun."""
    local = report_timezone(broker, timezone)
    start, end = begun_period(broker, period, local)
    with broker.store.reading() as look:
        runs = finished_runs(look, start, end, team)
    unpredicted = sum(run.expected_hours is None for run in runs)
    return ForecastsReport(
        since=start,
        until=end,
        timezone=local,
        team=team,
        runs=len(runs),
        unpredicted=unpredicted,
        unpredicted_share=unpredicted / len(runs) if runs else None,
        errors=list(prediction_errors(runs)),
        measured=list(measured_speeds(runs, peaks())),
    )


def finished_runs(look: StoreReading, start: datetime, end: datetime, team: str | None = None) -> list[RunOutcome]:
    """The successful runs on accelerators whose machines all ended in the half-open period (UTC), at most the
    `MOST_RUNS` that ended last. Simulated runs do not count."""
    hours = look.machine_hours(look.succeeded_jobs(team, start, end, MOST_RUNS))
    views = {view.id: view for view in look.views(list(hours))}
    spent = look.balances(list(hours))
    told = look.last_reports(list(hours))
    plans: dict[str, tuple[datetime, Placement]] = {}
    taken, lost_spot = Counter[str](), Counter[str]()
    on_spot: dict[str, bool] = {}  # whether the latest attempt placed is on spot
    for job_id, at, body in look.plans_and_ends(list(hours)):
        if isinstance(body, ev.LaunchRequested):
            plans.setdefault(job_id, (at, body.placement))
            on_spot[job_id] = body.placement.offer.capacity_type is CapacityType.SPOT
        elif isinstance(body, ev.AttemptEnded) and body.cause in _TAKEN:
            taken[job_id] += 1
            lost_spot[job_id] += on_spot.get(job_id, False)
    found = []
    for job_id, machine in hours.items():
        if job_id not in plans or job_id not in views:
            continue
        (began, placement), model = plans[job_id], views[job_id].job.model
        cost = sum((one.spent for one in spent.get(job_id, {}).values()), Money.ZERO)  # with prepaid hours, as in plans
        length = placement.duration / timedelta(hours=1) if placement.duration is not None else None
        found.append(
            RunOutcome(
                job_id=job_id,
                accelerator=machine.accelerator or "",
                usd=_usd(cost),
                hours=(machine.until - began) / timedelta(hours=1),
                gpu_hours=machine.gpu_hours,
                interruptions=taken[job_id],
                spot_gpu_hours=machine.spot_gpu_hours,
                spot_interruptions=lost_spot[job_id],
                expected_usd=None if length is None else _usd(placement.expected_cost),
                expected_hours=length,
                expected_usd_per_gpu_hour=_usd(placement.rate) / placement.gpus if placement.gpus else None,
                expected_interruptions=None if length is None else length * placement.interruptions_per_hour,
                parameters=model.parameters if model else None,
                trains=model is None or model.method != "inference",
                tokens=told.get(job_id, {}).get(TOKENS),
                generated=told.get(job_id, {}).get(GENERATED),
            )
        )
    return found


def peaks() -> dict[str, float]:
    """Dense 16-bit FLOP/s of one accelerator, by name, where its vendor states it."""
    return {card.name: card.tflops_16bit * TERA for card in map(lookup, known()) if card.tflops_16bit}


def _usd(amount: Money) -> float:
    return amount.micros / MICROS_PER_USD
