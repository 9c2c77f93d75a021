"""Hardware compared at current prices: value for money, a radar of scores, measured candidates, energy and carbon."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.app.advise.prices import CurrentPrices
from broker.app.advise.size import accelerators_or_all
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator, lookup
from broker.core.market.offers import CapacityType
from broker.economics.assumptions import Assumptions, named_numbers
from broker.economics.energy import (
    Footprint,
    Scorecard,
    carbon_kg,
    footprint,
    grid_intensity,
    known_regions,
    scorecard,
)
from broker.economics.figures import Estimate, Figure, Hours, Share, number_text
from broker.economics.hardware import Candidate, RadarRow, Trial, TrialResult, Value, compare, radar, rank
from broker.economics.kinds import BoundBy

_MAX_SOURCES = 5  # prices whose source is shown
_MAX_CLEANER = 5


@dataclass(frozen=True, slots=True)
class CleanerLocation:
    """A cleaner location, and the emissions of the same energy there."""

    location: str
    kg_co2e: Estimate
    grams_per_kwh: Figure


@dataclass(frozen=True, slots=True)
class EcoAdvice:
    """Energy and carbon of GPU work, a scorecard, and cleaner locations."""

    gpu: str
    gpus: int
    hours: Hours
    utilization: Share
    location: str
    footprint: Footprint
    scorecard: Scorecard
    cleaner: tuple[CleanerLocation, ...]

    @property
    def title(self) -> str:
        energy_use = self.footprint
        span = f"{number_text(energy_use.kg_co2e_low)} to {number_text(energy_use.kg_co2e_high)} kg"
        work = f"{self.gpus} × {self.gpu} for {self.hours:g} h"
        return f"{number_text(energy_use.kg_co2e)} kg CO2e: {span} from {number_text(energy_use.kwh)} kWh, {work}"


@dataclass(frozen=True, slots=True)
class HardwareAdvice:
    """Hardware compared. ``per``: what the prices are; ``ranking``: performance per 1000 USD in the limiting resource;
    ``radar``: scores from 0 to 1, the best of those compared; ``eco``: only for stated hours of work."""

    bound_by: BoundBy
    per: str
    trials: tuple[TrialResult, ...]
    ranking: tuple[Value, ...]
    radar: tuple[RadarRow, ...]
    eco: EcoAdvice | None
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        if self.trials:
            return f"{self.trials[0].name} is the cheapest per unit of your work"
        unit = "TFLOPS" if self.bound_by is BoundBy.COMPUTE else "GB/s"
        return f"By {unit} per $1,000 of {self.per}: {self.ranking[0].accelerator} is best"


def hardware(
    bound_by: BoundBy,
    accelerators: Sequence[str],
    trials: Sequence[str],
    prices: CurrentPrices,
    assumptions: Assumptions,
    *,
    buy: bool = False,
    hours: float | None = None,
) -> HardwareAdvice:
    """The advice on the named accelerators, or on all. ``trials``: measured candidates, as
    ``NAME:USD_PER_HOUR:UNITS_PER_HOUR``; ``buy``: at street prices; ``hours``: of work, whose energy and carbon are
    told for the first accelerator. Raises `InvalidInput` if no price is known and nothing was measured, `UnknownName`.
    """
    trial_results = compare(map(_trial, trials))
    candidates, unpriced = _candidates(accelerators_or_all(accelerators), prices, buy=buy)
    if not candidates and not trial_results and hours is None:
        raise InvalidInput(
            "no price is known for these accelerators", hint="give --price NAME=USD, or --buy for street prices"
        )
    notes = _street_sources(candidates) if buy else _price_sources(candidates, prices)
    price_notes = {name: lookup(name).price_note for name in unpriced}
    notes += [f"no price of {name}: {note}" for name, note in price_notes.items() if note]
    if accelerators and not all(price_notes.values()):
        notes.append(f"omitted, no price known: {', '.join(name for name, note in price_notes.items() if not note)}")
    ranking = rank(candidates, bound_by)
    eco = None
    if hours is not None:
        card = lookup(accelerators[0] if accelerators else ranking[0].accelerator)
        eco = emissions(card, hours, bound_by is BoundBy.COMPUTE, assumptions, notes)
    return HardwareAdvice(
        bound_by=bound_by,
        per="purchase price" if buy else "rent",
        trials=trial_results,
        ranking=ranking,
        radar=radar(candidates, bound_by),
        eco=eco,
        assumptions=tuple(notes),
    )


def _trial(text: str) -> Trial:
    name, figures = named_numbers(text, "--trial", "NAME:USD_PER_HOUR:UNITS_PER_HOUR", 2)
    return Trial(name, *figures)


def emissions(card: Accelerator, hours: float, training: bool, assumptions: Assumptions, notes: list[str]) -> EcoAdvice:
    """Energy and carbon of that many hours, with a note on each assumption."""
    target = assumptions.training_utilization if training else assumptions.inference_utilization
    utilization, gpus = assumptions.gpu_utilization or target, assumptions.gpus or 1
    energy_use = footprint(card, gpus=gpus, hours=hours, utilization=utilization, assumptions=assumptions)
    accelerators = accelerators_or_all(())
    notes += [
        f"GPU utilization {utilization:.0%}, PUE {energy_use.pue:g}",
        f"grid: {energy_use.intensity.grams_per_kwh:g} g CO2e/kWh in {energy_use.intensity.year} "
        f"({energy_use.intensity.source})",
        f"the range: the grid of these hours against that of its year ({energy_use.range_source})",
        "manufacture of the hardware and the host around the GPU are not counted",
    ]
    if assumptions.model_parameters is None:
        notes.append("model size is not scored without --assume model_parameters=N")
    elif assumptions.smallest_parameters is None:
        notes.append("the model is the smallest sufficient one (smallest_parameters)")
    return EcoAdvice(
        gpu=card.name,
        gpus=gpus,
        hours=hours,
        utilization=utilization,
        location=assumptions.location,
        footprint=energy_use,
        scorecard=scorecard(
            energy_use,
            card,
            utilization=utilization,
            training=training,
            best_tflops_per_watt=max(
                accelerator.tflops_16bit / accelerator.tdp_w
                for accelerator in accelerators
                if accelerator.tflops_16bit and accelerator.tdp_w
            ),
            assumptions=assumptions,
        ),
        cleaner=cleaner_locations(energy_use, assumptions.location),
    )


def cleaner_locations(energy_use: Footprint, location: str) -> tuple[CleanerLocation, ...]:
    """The cleanest regions of the same provider (or countries), with the emissions of the same energy there."""
    provider = location.split("/")[0].lower() + "/" if "/" in location else ""
    location_names = [name for name in known_regions() if name.startswith(provider) and ("/" in name) == bool(provider)]
    grids = sorted((grid_intensity(name) for name in location_names), key=lambda grid: grid.grams_per_kwh)
    return tuple(
        CleanerLocation(grid.region, carbon_kg(energy_use.kwh, grid.grams_per_kwh), grid.grams_per_kwh)
        for grid in grids[:_MAX_CLEANER]
        if grid.grams_per_kwh < energy_use.intensity.grams_per_kwh
    )


def _candidates(cards: Iterable[Accelerator], prices: CurrentPrices, *, buy: bool) -> tuple[list[Candidate], list[str]]:
    """Accelerators with a price, and the names of those without one."""
    candidates, missing = [], []
    for card in cards:
        quote = prices.gpu_hour(card.name) or prices.gpu_hour(card.name, CapacityType.SPOT)
        usd = prices.stated.get(card.name)
        if usd is None and buy:
            usd = sum(card.street_price) / 2 if card.street_price else None
        elif usd is None and quote is not None:
            usd = quote.usd_per_gpu_hour
        if usd is None:
            missing.append(card.name)
            continue
        candidates.append(Candidate(card, usd, marketplace=not buy and quote is not None and quote.private))
    return candidates, missing


def _street_sources(candidates: Sequence[Candidate]) -> list[str]:
    """The sources of street prices, where they are known."""
    cards = [candidate.accelerator for candidate in candidates if candidate.accelerator.street_price_source]
    return [
        "prices: the middle of street prices per GPU",
        *(f"{card.name}: {card.street_price_source}" for card in cards),
    ]


def _price_sources(candidates: Sequence[Candidate], prices: CurrentPrices) -> list[str]:
    """The sources of the prices, of the first few."""
    quotes = {
        candidate.accelerator.name: prices.gpu_hour(candidate.accelerator.name)
        for candidate in candidates[:_MAX_SOURCES]
    }
    sources = [f"{name}: {quote.basis}" for name, quote in quotes.items() if quote is not None]
    hidden_count = len(candidates) - _MAX_SOURCES
    remainder = [f"and {hidden_count} more: `gpubroker offers --gpu NAME` shows each"] if hidden_count > 0 else []
    return ["prices: the cheapest on-demand GPU-hour", *sources, *remainder]
