"""Unit metrics of a period, of all or of one team, with utilisation from the agents' own samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.billing.report import named_period
from broker.app.jobs.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.policy.policy import SpotShare
from broker.core.values.money import Money
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


def units(broker: Broker, period: str, team: str | None = None, metric: str | None = None) -> UnitMetrics:
    """The unit metrics of a period (`report.named_period`). Held capacity serves all teams, so that its use is not
    reported for one team. Raises `UnknownName`, and `InvalidInput` for a period that has not begun."""
    now = broker.clock.now()
    start, end = named_period(period, now)
    if start > now:
        raise InvalidInput(f"{period} has not begun", where="--period")
    end = min(end, now)
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    with broker.store.reading() as look:
        everything = look.used_in(start, end, now).cells
        rented = look.rented_hours(start, end)
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
    policy = broker.policy()
    mine = (one for one in rented if not one.simulated and team in (None, one.team) and policy.is_spot_eligible(one))
    eligible = SpotShare.among(mine)
    found = unit_metrics(start, end, cells, runs, [one for one in measured if one is not None], held, tokens)
    return replace(
        found,
        team=team,
        eligible_hours=eligible.total,
        eligible_spot_hours=eligible.spot,
        unread=measured.count(None),
        quality=quality_costs(runs_of),
    )


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
