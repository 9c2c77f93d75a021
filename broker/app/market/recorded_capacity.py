"""Recorded capacity (`gpubroker capacity add`) that no engine reaches: as offers at marginal price, on which no job
starts, and as notes on a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from broker.core.job.jobs import Job
from broker.core.market.offers import BOUGHT, Availability, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money

if TYPE_CHECKING:
    from broker.economics.assumptions import Assumptions
    from broker.economics.reserve.holdings import Holding, RecordedHolding

RECORDED = "capacity"
"""The source of these offers, followed by the number of the record: ``capacity #3``."""
ANY_ENGINE = "any"
"""The engine of these offers in plans that assume that an engine reaches them."""
_MAX_GPUS_PER_MACHINE = 8  # accelerators of a server, at most; records have only the sum
_REMEDY = "have them in Slurm or Kubernetes, run gpubroker on them, or log in to their provider"


def is_recorded(offer: Offer) -> bool:
    """Whether the offer stands for recorded capacity that no engine reaches."""
    return offer.source.startswith(f"{RECORDED} #")


def recorded_offers(
    holdings: Sequence[RecordedHolding],
    offers: Iterable[Offer],
    now: datetime,
    assumptions: Assumptions,
    accelerators: Collection[str] = (),
) -> Iterator[Offer]:
    """An offer for each recorded machine or reservation in force at ``now`` (UTC) of the ``accelerators`` accelerators
    (none: all), unless an engine reaches owned or reserved capacity with that accelerator among ``offers``. Its price
    is the marginal cost of an hour of use: the electricity at the price and PUE of ``rules``, or zero. It has no
    engine."""
    for recorded in _unreached_holdings(holdings, offers, now):
        holding = recorded.holding
        if accelerators and holding.accelerator not in accelerators:
            continue
        count = next(
            divisor for divisor in range(min(_MAX_GPUS_PER_MACHINE, holding.gpus), 0, -1) if holding.gpus % divisor == 0
        )
        is_owned = _is_owned(holding)
        yield Offer(
            provider=holding.provider,
            region=holding.site or "recorded",
            zone=None,
            instance_type=f"recorded-{recorded.number}",
            accelerator=holding.accelerator,
            count=count,
            capacity_type=CapacityType.OWNED if is_owned else CapacityType.RESERVED,
            price=Money.usd(f"{_energy(holding, assumptions) * count:.6f}"),
            as_of=now,
            source=f"{RECORDED} #{recorded.number}",
            amortised=Money.usd(f"{holding.usd_per_gpu_hour * count:.6f}"),
            availability=Availability.UNKNOWN,
            unavailable_because=f"#{recorded.number} of `gpubroker capacity list` is out of reach: {_REMEDY}",
            interruption_rate=0.0,
            slots=holding.gpus // count,
            money=MoneyKind.AMORTISED,
        )


def unreached_capacity_notes(
    job: Job, holdings: Sequence[RecordedHolding], offers: Sequence[Offer], now: datetime, assumptions: Assumptions
) -> Iterator[str]:
    """A note on each recorded capacity that the job could use and no engine reaches: its cost per hour, and how to make
    jobs start there."""
    accelerators = {machine.accelerator for machine in job.resources if machine.accelerator}
    for recorded in _unreached_holdings(holdings, offers, now):
        holding = recorded.holding
        if holding.accelerator not in accelerators:
            continue
        from broker.economics.figures import usd_text

        energy = _energy(holding, assumptions)
        power = f"${assumptions.kwh_usd:g} a kWh, PUE {assumptions.pue:g}"
        cost_text = f"{usd_text(energy)} of electricity a GPU-hour ({power})" if energy else "no further price an hour"
        place = "/".join(filter(None, (holding.provider, holding.site)))
        yield (
            f"{holding.gpus} {holding.accelerator} at {place} are paid for until {holding.ends:%Y-%m-%d} "
            f"(#{recorded.number} of "
            f"`gpubroker capacity list`), at {cost_text}, but no engine reaches them: {_REMEDY}"
        )


def _unreached_holdings(
    holdings: Sequence[RecordedHolding], offers: Iterable[Offer], now: datetime
) -> Iterator[RecordedHolding]:
    if not holdings:
        return
    from broker.economics.reserve.holdings import HoldingKind

    # The list price of a commitment has the type reserved, too, but nobody holds it.
    reached_accelerators = {
        candidate.accelerator
        for candidate in offers
        if candidate.engine and candidate.may_be_free() and candidate.capacity_type in BOUGHT
    }
    for recorded in holdings:
        candidate = recorded.holding
        if (
            candidate.kind is not HoldingKind.COMMITMENT
            and candidate.active(now)
            and candidate.accelerator not in reached_accelerators
        ):
            yield recorded


def _energy(holding: Holding, assumptions: Assumptions) -> float:
    """USD of electricity for a GPU-hour in use; 0 if somebody else pays it."""
    return holding.energy_usd_per_gpu_hour(assumptions.kwh_usd, assumptions.pue) if _is_owned(holding) else 0.0


def _is_owned(holding: Holding) -> bool:
    from broker.economics.reserve.holdings import HoldingKind

    return holding.kind is HoldingKind.OWNED
