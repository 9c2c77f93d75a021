"""Successful runs of a period: predictions of the first plan against measured outcomes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.placements import Placement
from broker.core.market.accelerators import accelerator_names, lookup
from broker.core.market.offers import CapacityType
from broker.core.values.money import MICROS_PER_USD, Money
from broker.economics.units import TERA
from broker.ledger.finops.accuracy import RunOutcome

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader

TOKENS = "tokens"
GENERATED = "generated_tokens"
MAX_RUNS = 2_000  # that are read, those that ended last
_INTERRUPTIONS = (Cause.PREEMPTED, Cause.MACHINE_LOST)


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
