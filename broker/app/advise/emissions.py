"""Energy and carbon of GPU work: a scorecard, and cleaner locations."""

from __future__ import annotations

from broker.app.advise.compared import named_or_all
from broker.app.results.hardware_advice import CleanerLocation
from broker.core.values.accelerators import Accelerator
from broker.economics.assumptions import Assumptions
from broker.economics.energy import Footprint, Scorecard, carbon_kg, grid_intensity, known_regions, scorecard
from broker.economics.units import positive

_CLEANEST = 5


def cleaner(used: Footprint, location: str) -> list[CleanerLocation]:
    """The cleanest regions of the same provider (or countries), with the emissions of the same energy there."""
    provider = location.split("/")[0].lower() + "/" if "/" in location else ""
    alike = [name for name in known_regions() if name.startswith(provider) and ("/" in name) == bool(provider)]
    found = sorted((grid_intensity(name) for name in alike), key=lambda grid: grid.grams_per_kwh)
    return [
        CleanerLocation(
            location=grid.region, kg_co2e=carbon_kg(used.kwh, grid.grams_per_kwh), grams_per_kwh=grid.grams_per_kwh
        )
        for grid in found[:_CLEANEST]
        if grid.grams_per_kwh < used.intensity.grams_per_kwh
    ]


def scores(
    used: Footprint,
    card: Accelerator,
    rules: Assumptions,
    *,
    utilisation: float,
    training: bool,
    units: float,
    parameters: float | None,
    smallest: float | None,
) -> Scorecard:
    """The scorecard relative to the best case: the most efficient known GPU on a clean grid (rule of thumb).
    ``smallest``: parameters of the smallest sufficient model."""
    every = named_or_all(None)
    best = max((one.tflops_16bit / one.tdp_w for one in every if one.tflops_16bit and one.tdp_w), default=1.0)
    clean_kg = used.kwh * rules.clean_grid_g_per_kwh / 1000
    return scorecard(
        used,
        card,
        utilisation=utilisation,
        training=training,
        units_of_work=units,
        best_kg_per_unit=max(clean_kg / positive("--units", units), 1e-12),
        model_parameters=parameters,
        smallest_sufficient_parameters=None if parameters is None or smallest is None else min(smallest, parameters),
        best_tflops_per_watt=best,
        rules=rules,
    )
