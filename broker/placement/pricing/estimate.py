"""Expected cost of one job on one offer.

    E[cost] = (remaining work / (x·η)) · price · nodes + start-up billed + egress + keeping checkpoints

``x``: speed of the offer's accelerators for this job, relative to the machine of ``work:``. ``η``: the part of billed
time that becomes progress (`broker.placement.pricing.run_model.expected_run`). Every dollar belongs to a `CostTerm`
with its derivation. Waiting for capacity is not included. Prices are marginal: money paid because of the decision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.job.jobs import MachineRequest
from broker.core.job.placements import CostTerm, Placement, TransferKind
from broker.core.market.offers import Billing, Offer
from broker.core.values.figures import duration_in_hours, gigabytes, hours, hours_of
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import egress_rate
from broker.placement.pricing.run_model import Effort, RunModel, Spell, run_model
from broker.placement.pricing.shares import machines

_MIN_STORAGE_COST = Money(5_000)  # half a cent; lower costs get no line
# Below this useful fraction a job hardly makes progress between interruptions.
MIN_USEFUL_FRACTION = 0.05

Hazard = Callable[[Offer], float]
"""Expected interruptions per hour of one machine of an offer."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """Prices one job on any number of offers, at ``now`` (UTC). Computes once what offers have in common."""

    effort: Effort
    now: datetime
    hazard: Hazard
    _models: dict[tuple[str | None, int, float, float], RunModel] = field(default_factory=dict, repr=False)
    _extras: dict[tuple[RunModel, str, Billing], tuple[Spell | None, list[CostTerm]]] = field(
        default_factory=dict, repr=False
    )

    def placement(self, offer: Offer, machine: MachineRequest) -> Placement | None:
        """The placement on this offer, which must be feasible and serve ``machine``.

        None when less than `MIN_USEFUL_FRACTION` of the billed time would become progress: the job would hardly ever
        finish there. When the work is not known, ``expected_cost`` is the cost of one hour and of reading the data
        once: each start reads the data, however long it runs.
        """
        assert offer.price is not None
        model = self._model(offer, machine)
        useful = model.run.useful_fraction
        if useful < MIN_USEFUL_FRACTION:
            return None
        nodes = machines(offer, self.effort.nodes)
        rate = offer.price if nodes == 1 else offer.price * nodes
        price = f"{rate}/h" if nodes == 1 else f"{rate}/h for {nodes} machines"
        terms = [_term(spell, rate, price) for spell in model.spells]
        if model.duration is not None:
            unused, other_terms = self._extra(model, offer)
            if unused is not None:
                terms.append(_term(unused, rate, price))
            terms += other_terms
        else:
            terms += _data_egress(self.effort, offer.location, 1)
        duration = model.duration
        return Placement(
            offer=offer,
            nodes=nodes,
            rate=rate,
            expected_cost=Money(sum([term.amount.micros for term in terms])),
            terms=tuple(terms),
            duration=duration,
            finish=None if duration is None else self.now + duration,
            useful_fraction=useful,
            throughput=model.throughput,
            interruptions_per_hour=model.interruptions,
        )

    def _model(self, offer: Offer, machine: MachineRequest) -> RunModel:
        nodes = machines(offer, self.effort.nodes)
        interruptions = self.hazard(offer) * nodes
        per_node = offer.count * nodes // self.effort.nodes
        used = machine.count if machine.accelerator and not machine.at_least else per_node
        key = (offer.accelerator, used, interruptions, self.effort.start_on(offer.capacity_type))
        cached = self._models.get(key)
        if cached is None:
            cached = self._models[key] = run_model(self.effort, *key)
        return cached

    def _extra(self, model: RunModel, offer: Offer) -> tuple[Spell | None, list[CostTerm]]:
        key = (model, offer.location, offer.billing)
        cached = self._extras.get(key)
        if cached is None:
            other_terms = [*_egress(self.effort, *key[:2]), *_storage_terms(self.effort, model)]
            cached = self._extras[key] = (_unused_time(model, offer.billing), other_terms)
        return cached


def margin(placement: Placement, effort: Effort) -> timedelta:
    """Time to keep free before a deadline: one changeover (start-up and restore) × the probability of at least one
    interruption, 1 - e^(-rate·duration). Zero if the duration is unknown."""
    if placement.duration is None:
        return timedelta(0)
    chance = -math.expm1(-placement.interruptions_per_hour * hours_of(placement.duration))
    return timedelta(hours=chance * (effort.start_on(placement.offer.capacity_type) + effort.restart))


def effective_price(placement: Placement) -> Money:
    """USD for one useful hour on the job's reference machine: price · nodes / (x·η)."""
    return Money(round(placement.rate.micros / (placement.throughput * placement.useful_fraction)))


def _term(spell: Spell, rate: Money, price: str) -> CostTerm:
    # An estimate; bills use `Money.for_duration`.
    return CostTerm(spell.name, Money(round(rate.micros * spell.hours)), f"{spell.how} × {price}")


def _unused_time(model: RunModel, billing: Billing) -> Spell | None:
    """Billed time that is not used, because of a minimum or of long billing steps; None below a second."""
    duration = model.duration
    assert duration is not None
    steps = -(-duration // billing.granularity) * billing.granularity
    extra = hours_of(max(steps, billing.minimum) - duration)
    if billing.granularity > timedelta(minutes=1):
        # Each interruption leaves half a step unused, on average.
        extra += model.run.interruptions * hours_of(billing.granularity) / 2
    if extra * 3600 < 1:
        return None
    minimum = f", at least {duration_in_hours(billing.minimum)}" if billing.minimum else ""
    explanation = (
        f"{hours(extra)} billed but not used (billed in steps of {duration_in_hours(billing.granularity)}{minimum})"
    )
    return Spell("billing steps", extra, explanation)


def _egress(effort: Effort, model: RunModel, place: str) -> list[CostTerm]:
    """Data is read once per start, by all nodes together; each checkpoint is written once and read once per restart."""
    terms: list[CostTerm] = []
    run = model.run
    terms += _data_egress(effort, place, 1 + run.interruptions)
    if effort.size and effort.store_location and effort.store_location != place:
        writes = run.work / model.interval
        restored = 1 if effort.resuming else 0
        reads = run.interruptions + restored
        terms += _transfer(TransferKind.CHECKPOINT, place, effort.store_location, effort.size, writes, "checkpoints")
        terms += _transfer(
            TransferKind.RESTORE, effort.store_location, place, effort.size, reads, "restores", per_start=restored
        )
    return terms


def _data_egress(effort: Effort, place: str, starts: float) -> list[CostTerm]:
    """For all data, at the rate from the dearest of its places: how much is where is not known."""
    if not effort.data_size:
        return []
    origin = max(effort.data_origins, key=lambda origin: egress_rate(origin, place).per_gb)
    return _transfer(TransferKind.DATA, origin, place, effort.data_size, starts, "starts", per_start=1)


def _storage_terms(effort: Effort, model: RunModel) -> list[CostTerm]:
    """The cost of storing the newest checkpoints during the job, at their maximum number from the first hour."""
    duration = model.duration
    if effort.keeping is None or not effort.size or duration is None:
        return []
    count = min(effort.keep, max(1, math.ceil(model.run.work / model.interval)))
    amount = effort.keeping.cost(effort.size * count, duration)
    if amount < _MIN_STORAGE_COST:
        return []
    price = f"{effort.keeping.per_gb_month}/GB and month"
    return [
        CostTerm(
            "keeping checkpoints",
            amount,
            f"{count} × {gigabytes(effort.size)} × {duration_in_hours(duration)} × {price}",
        )
    ]


def _transfer(
    kind: TransferKind,
    origin: str,
    destination: str,
    size: int,
    times: float,
    unit: str,
    per_start: float | None = None,
) -> list[CostTerm]:
    """The cost of moving ``size`` bytes ``times`` times. ``per_start``: how many of these belong to one start; None:
    unknown."""
    per_gb = egress_rate(origin, destination).per_gb

    def cost(times: float) -> Money:
        return Money(round(per_gb.micros * size / 1e9 * times))

    if not (amount := cost(times)):
        return []
    explanation = f"{gigabytes(size)} × {times:.3g} {unit} × {per_gb}/GB, {origin} to {destination}"
    return [CostTerm(f"{kind} egress", amount, explanation, None if per_start is None else cost(per_start), kind)]
