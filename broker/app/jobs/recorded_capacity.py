"""Capacity that is paid for by record (`gpubroker capacity add`) and that no offer stands for: told beside a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, Offer

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import RecordedHolding

PAID_FOR = (CapacityType.OWNED, CapacityType.RESERVED)


def unreached(job: Job, holdings: Sequence[RecordedHolding], offers: Sequence[Offer], now: datetime) -> Iterator[str]:
    """A note for each recorded machine or reservation in force at ``now`` (UTC) that the job could use, as long as no
    offer of such an accelerator is owned or reserved: what an hour of it costs beyond what is paid anyway, and how jobs
    can start there."""
    if not holdings:
        return
    from broker.economics.estimates import about
    from broker.economics.reserve.holdings import HoldingKind
    from broker.economics.rules import DEFAULTS

    wanted = {machine.accelerator for machine in job.resources if machine.accelerator}
    there = {offer.accelerator for offer in offers if offer.capacity_type in PAID_FOR}
    for recorded in holdings:
        one = recorded.holding
        if one.kind is HoldingKind.COMMITMENT or not one.active(now) or one.accelerator not in wanted - there:
            continue
        energy = one.energy_usd_per_gpu_hour(DEFAULTS.kwh_usd, DEFAULTS.pue)
        costs = f"{about(energy)} of electricity a GPU-hour" if energy else "no further price an hour"
        place = "/".join(filter(None, (one.provider, one.site)))
        yield (
            f"{one.gpus} {one.accelerator} at {place} are paid for until {one.ends:%Y-%m-%d} (#{recorded.number} of "
            f"`gpubroker capacity show`), at {costs}, but no engine reaches them: have them in Slurm or Kubernetes, "
            "run gpubroker on them, or log in to their provider"
        )
