"""Choice of hardware: value for money by the bound of the work, the radar, and measured cost per unit of work."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.market.accelerators import Accelerator
from broker.economics.figures import ExactUsd, Figure, Usd
from broker.economics.kinds import BoundBy
from broker.economics.units import positive


@dataclass(frozen=True, slots=True)
class Candidate:
    """An accelerator at a price: USD to buy one, or USD per hour to rent one (only ratios matter).

    ``marketplace``: offered by private hosts on a marketplace (DePIN)."""

    accelerator: Accelerator
    usd: float
    marketplace: bool = False

    def __post_init__(self) -> None:
        positive(f"{self.accelerator.name}: price", self.usd, "USD")


@dataclass(frozen=True, slots=True)
class Value:
    """A candidate's value for money in its bound (GB/s or TFLOPS per 1000 USD)."""

    accelerator: str
    usd: Usd
    per_kusd: Figure
    linked: bool


def rank(candidates: Iterable[Candidate], bound_by: BoundBy) -> tuple[Value, ...]:
    """Best value first: bandwidth per dollar, or 16-bit compute per dollar; of equals, one with a fast link first.
    Candidates without the figure are left out."""
    values = []
    for candidate in candidates:
        card = candidate.accelerator
        figure = _performance(card, bound_by)
        if figure is not None:
            values.append(Value(card.name, candidate.usd, figure / (candidate.usd / 1000), card.link is not None))
    return tuple(sorted(values, key=lambda value: (-value.per_kusd, not value.linked, value.accelerator)))


@dataclass(frozen=True, slots=True)
class RadarRow:
    """One candidate on four axes from 0 to 1, 1 the best of those compared; None for unknown figures.

    ``cost``: performance per dollar. ``performance``: in the work's bound. ``energy_efficiency``: performance per watt.
    ``maturity``: of the software. ``score``: the mean of the known axes.
    """

    accelerator: str
    cost: Figure | None
    performance: Figure | None
    energy_efficiency: Figure | None
    maturity: Figure
    score: Figure
    caveats: tuple[str, ...]


def radar(candidates: Sequence[Candidate], bound_by: BoundBy) -> tuple[RadarRow, ...]:
    """Cost, performance, energy efficiency and maturity side by side, best score first."""
    performance = [_performance(c.accelerator, bound_by) for c in candidates]
    pairs = list(zip(candidates, performance, strict=True))
    axes = (
        _normalize([p / c.usd if p else None for c, p in pairs]),
        _normalize(performance),
        _normalize([p / c.accelerator.tdp_w if p and c.accelerator.tdp_w else None for c, p in pairs]),
        [c.accelerator.maturity / 5 for c in candidates],
    )
    rows = [
        RadarRow(c.accelerator.name, cost, speed, energy, maturity, _mean([cost, speed, energy, maturity]), _caveats(c))
        for c, cost, speed, energy, maturity in zip(candidates, *axes, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.score, row.accelerator)))


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate measured on the user's own work: price per hour of the machine, and units of work per hour. CPU
    machines are candidates too."""

    name: str
    usd_per_hour: float
    units_per_hour: float


@dataclass(frozen=True, slots=True)
class TrialResult:
    """``usd_per_unit``, and its ratio to the cheapest candidate's."""

    name: str
    usd_per_unit: ExactUsd
    times_cheapest: Figure


def compare(trials: Iterable[Trial]) -> tuple[TrialResult, ...]:
    """Cost per unit of work, cheapest first. Before buying, compare this for three or four candidates, not the price
    per hour."""
    costs = {
        trial.name: positive(f"{trial.name}: price", trial.usd_per_hour, "USD per hour")
        / positive(f"{trial.name}: work", trial.units_per_hour, "units per hour")
        for trial in trials
    }
    cheapest = min(costs.values(), default=1.0)
    return tuple(TrialResult(n, usd, usd / cheapest) for n, usd in sorted(costs.items(), key=lambda item: item[1]))


def _performance(card: Accelerator, bound_by: BoundBy) -> float | None:
    return card.bandwidth_gb_s if bound_by is BoundBy.BANDWIDTH else card.tflops_16bit


def _normalize(values: Sequence[float | None]) -> list[float | None]:
    best = max((value for value in values if value is not None), default=None)
    return [None if value is None or not best else value / best for value in values]


def _mean(axes: Sequence[float | None]) -> float:
    known = [value for value in axes if value is not None]
    return sum(known) / len(known)


def _caveats(candidate: Candidate) -> tuple[str, ...]:
    card = candidate.accelerator
    notes = {
        "amd": ["ROCm: check that each kernel you need exists"],
        "google": ["TPU: JAX or PyTorch/XLA; only in Google Cloud, rented by the slice"],
        "aws": ["Neuron SDK: models must be compiled; only in AWS"],
        "intel": ["SynapseAI: models must be ported; little marketplace supply"],
    }.get(card.vendor, [])
    if card.inference_only:
        notes = [*notes, "inference only"]
    if card.consumer:
        notes = [*notes, "consumer card: no data-center license or ECC; loses speed to heat in dense racks"]
    if candidate.marketplace:
        notes = [*notes, "marketplace host: no confidentiality for data or weights, uneven uptime"]
    return tuple(notes)
