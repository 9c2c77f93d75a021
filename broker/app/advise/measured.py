"""Measured speeds of finished runs of this store, in place of assumed ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.billing.units import finished_runs, peaks
from broker.economics.assumptions import Assumptions
from broker.finops.accuracy import measured_speeds, model_speeds, served_speeds

if TYPE_CHECKING:
    from broker.store.jobs.reading import StoreReading

PAST = timedelta(days=90)


def measured(look: StoreReading, assumptions: Assumptions, now: datetime) -> Assumptions:
    """The assumptions with figures that runs of the 90 days before ``now`` (UTC) measured, by accelerator: MFU (also
    by size of the model, for training and inference), of runs whose job file names the model and whose program reported
    tokens; the tokens per second of serving; interruptions of spot machines per 1,000 hours; USD paid per GPU-hour.
    Unchanged if nothing was measured."""
    runs = finished_runs(look, now - PAST, now)
    speeds = measured_speeds(runs, peaks())
    mfu = tuple((one.accelerator, one.mfu, one.mfu_runs) for one in speeds if one.mfu is not None)
    taken = tuple(
        (one.accelerator, one.interruptions_per_1000_hours, one.spot_runs)
        for one in speeds
        if one.interruptions_per_1000_hours is not None
    )
    paid = tuple((one.accelerator, one.usd_per_gpu_hour, one.runs) for one in speeds)
    if not paid:
        return assumptions
    models = tuple(
        (one.accelerator, one.parameters, one.trains, one.share, one.runs) for one in model_speeds(runs, peaks())
    )
    served = tuple(
        (one.accelerator, one.parameters, one.tokens_per_second, one.generated_share, one.runs)
        for one in served_speeds(runs)
    )
    return replace(
        assumptions, measured_mfu=mfu, measured_models=models, measured_served=served, measured_interruptions=taken,
        measured_price=paid,
    )  # fmt: skip
