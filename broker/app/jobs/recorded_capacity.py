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
ANY = "any"
"""The engine of these offers in plans that assume that an engine reaches them."""
_MACHINE = 8  # accelerators of a server, at most; records have only the sum
_REMEDY = "have them in Slurm or Kubernetes, run gpubroker on them, or log in to their provider"


def is_recorded(offer: Offer) -> bool:
    """Whether the offer stands for recorded capacity that no engine reaches."""
    return offer.source.startswith(f"{RECORDED} #")


def recorded_offers(
    holdings: Sequence[RecordedHolding],
    offers: Iterable[Offer],
    now: datetime,
    assumptions: Assumptions,
    wanted: Collection[str] = (),
) -> Iterator[Offer]:
    """An offer for each recorded machine or reservation in force at ``now`` (UTC) of the ``wanted`` accelerators (none:
    all), unless an engine reaches owned or reserved capacity with that accelerator among ``offers``. Its price is the
    marginal cost of an hour of use: the electricity at the price and PUE of ``rules``, or zero. It has no engine."""
    for recorded in _unreached(holdings, offers, now):
        one = recorded.holding
        if wanted and one.accelerator not in wanted:
            continue
        count = next(each for each in range(min(_MACHINE, one.gpus), 0, -1) if one.gpus % each == 0)
        owned = _is_owned(one)
        yield Offer(
            provider=one.provider,
            region=one.site or "recorded",
            zone=None,
            instance_type=f"recorded-{recorded.number}",
            accelerator=one.accelerator,
            count=count,
            capacity_type=CapacityType.OWNED if owned else CapacityType.RESERVED,
            price=Money.usd(f"{_energy(one, assumptions) * count:.6f}"),
            as_of=now,
            source=f"{RECORDED} #{recorded.number}",
            amortised=Money.usd(f"{one.usd_per_gpu_hour * count:.6f}"),
            availability=Availability.UNKNOWN,
            unavailable_because=f"#{recorded.number} of `gpubroker capacity show` is out of reach: {_REMEDY}",
            interruption_rate=0.0,
            slots=one.gpus // count,
            money=MoneyKind.AMORTISED,
        )


def unreached(
    job: Job, holdings: Sequence[RecordedHolding], offers: Sequence[Offer], now: datetime, assumptions: Assumptions
) -> Iterator[str]:
    """A note on each recorded capacity that the job could use and no engine reaches: its cost per hour, and how to make
    jobs start there."""
    wanted = {machine.accelerator for machine in job.resources if machine.accelerator}
    for recorded in _unreached(holdings, offers, now):
        one = recorded.holding
        if one.accelerator not in wanted:
            continue
        from broker.economics.figures import about

        energy = _energy(one, assumptions)
        power = f"${assumptions.kwh_usd:g} a kWh, PUE {assumptions.pue:g}"
        costs = f"{about(energy)} of electricity a GPU-hour ({power})" if energy else "no further price an hour"
        place = "/".join(filter(None, (one.provider, one.site)))
        yield (
            f"{one.gpus} {one.accelerator} at {place} are paid for until {one.ends:%Y-%m-%d} (#{recorded.number} of "
            f"`gpubroker capacity show`), at {costs}, but no engine reaches them: {_REMEDY}"
        )


def _unreached(
    holdings: Sequence[RecordedHolding], offers: Iterable[Offer], now: datetime
) -> Iterator[RecordedHolding]:
    if not holdings:
        return
    from broker.economics.reserve.holdings import HoldingKind

    # The list price of a commitment has the type reserved, too, but nobody holds it.
    there = {one.accelerator for one in offers if one.engine and one.may_be_free() and one.capacity_type in BOUGHT}
    for recorded in holdings:
        one = recorded.holding
        if one.kind is not HoldingKind.COMMITMENT and one.active(now) and one.accelerator not in there:
            yield recorded


def _energy(holding: Holding, assumptions: Assumptions) -> float:
    """USD of electricity for a GPU-hour in use; 0 if somebody else pays it."""
    return holding.energy_usd_per_gpu_hour(assumptions.kwh_usd, assumptions.pue) if _is_owned(holding) else 0.0


def _is_owned(holding: Holding) -> bool:
    from broker.economics.reserve.holdings import HoldingKind

    return holding.kind is HoldingKind.OWNED
