"""Energy and carbon: kWh and kg CO2e of a job, the grid's intensity by region, and a scorecard.

Power model: idle + utilisation × (board power − idle), linear, as in Lacoste et al. 2019 and MLPerf practice; the
building's overhead is the PUE. Intensities come from ``grid.toml``, each with its source and year; they are annual
averages of the local grid, so a single hour may differ twofold. Emissions of making the hardware are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from broker.core.errors import InvalidInput, UnknownName
from broker.core.packaged import packaged
from broker.core.values.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.units import not_negative, overhead, positive, share, whole

GRADES = (("A", 0.85), ("B", 0.70), ("C", 0.50), ("D", 0.30))
"""Grades of the scorecard by the least mean of their points; below all: E."""


@dataclass(frozen=True, slots=True)
class GridIntensity:
    """``grams_per_kwh`` (CO2e) of a region's electricity, with its ``year`` and source."""

    region: str
    grams_per_kwh: float
    year: int
    source: str


@dataclass(frozen=True, slots=True)
class GridRange:
    """The grid's intensity in some hours as a multiple of its annual average, from ``low`` to ``high``, with the source
    of the factors."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Footprint:
    """``kwh`` at the meter of the building and ``kg_co2e``, from the average ``watts`` of one GPU. ``kg_co2e_low`` and
    ``_high``: the range in which the grid of these hours may differ from its annual average (`grid_range`);
    ``range_source``: the source of that range."""

    watts: float
    kwh: float
    kg_co2e: float
    kg_co2e_low: float
    kg_co2e_high: float
    range_source: str
    pue: float
    intensity: GridIntensity


def average_watts(
    tdp_w: float, utilisation: float, idle_w: float | None = None, rules: Assumptions = DEFAULTS
) -> float:
    """Average power of a GPU: idle + utilisation × (board power − idle), W. ``idle_w``: as measured, else a share of
    the board power."""
    board = positive("board power", tdp_w, "W")
    idle = board * rules.idle_power_share if idle_w is None else not_negative("idle power", idle_w, "W", most=board)
    return idle + share("utilisation", utilisation) * (board - idle)


def energy_kwh(watts: float, hours: float, gpus: int = 1, pue: float = 1.0) -> float:
    """kWh of ``gpus`` drawing ``watts`` each for ``hours``, with the building's overhead."""
    drawn = not_negative("power", watts, "W") * whole("gpus", gpus)
    return drawn * not_negative("hours", hours) * overhead(pue) / 1000


def carbon_kg(kwh: float, grams_per_kwh: float) -> float:
    """kg CO2e of that much electricity."""
    return not_negative("energy", kwh, "kWh") * not_negative("intensity", grams_per_kwh, "g/kWh", most=3000) / 1000


def footprint(
    accelerator: Accelerator,
    *,
    gpus: int,
    hours: float,
    utilisation: float,
    location: str,
    pue: float | None = None,
    idle_w: float | None = None,
    measured_w: float | None = None,
    rules: Assumptions = DEFAULTS,
) -> Footprint:
    """Energy and carbon of ``gpus`` in use for ``hours`` at ``location`` (``aws/us-east-1`` or a country, ``DE``).

    ``pue``: the provider's published average where it has one, else the industry's. ``measured_w``: average power of
    one card, instead of the power model. Raises InvalidInput when the card's power is not known and none was measured,
    UnknownName for a location without data.
    """
    if measured_w is not None:
        watts = positive("measured power", measured_w, "W", most=1e5)
    elif accelerator.tdp_w is None:
        raise InvalidInput(
            f"{accelerator.name}: its power is not published",
            hint="`gpubroker advise eco --watts` takes the average power measured on one",
        )
    else:
        watts = average_watts(accelerator.tdp_w, utilisation, idle_w, rules)
    intensity = grid_intensity(location)
    pue = default_pue(location) if pue is None else pue
    kwh = energy_kwh(watts, hours, gpus, pue)
    kg = carbon_kg(kwh, intensity.grams_per_kwh)
    of = grid_range(hours, rules)
    return Footprint(watts, kwh, kg, kg * of.low, kg * of.high, of.source, pue, intensity)


def grid_range(hours: float, rules: Assumptions = DEFAULTS) -> GridRange:
    """How far the grid's intensity during a run of that many hours may differ from its annual average: in days wind and
    sun count in full, over months only the season does. The source of the factors is in ``grid.toml``."""
    days = hours < rules.grid_days_below_hours
    low, high = rules.grid_of_days if days else rules.grid_of_months
    known = _data()["ranges"]["days" if days else "months"]
    stated = (low, high) != (known["low"], known["high"])
    return GridRange(low, high, "your rules of thumb" if stated else known["source"])


def grid_intensity(location: str) -> GridIntensity:
    """The grid intensity at ``provider/region`` (also of a zone) or in a country (ISO code). Raises UnknownName."""
    table = _regions()
    for candidate in (location, location.lower(), location.upper(), _without_zone(location)):
        if candidate in table:
            return table[candidate]
    raise UnknownName("grid region", location, table)


def grid_near(location: str) -> tuple[GridIntensity, bool]:
    """The grid at ``provider/region`` as `grid_intensity` finds it, else that of a country the region is named after
    (``US``), else the world's average; and whether it is more specific than that average."""
    region = location.rpartition("/")[2]
    for candidate in (location, region.upper(), region[:2].upper() if region[2:3] in ("-", ",", "_") else ""):
        try:
            if candidate:
                return grid_intensity(candidate), True
        except UnknownName:
            continue
    return grid_intensity("world"), False


def known_regions() -> tuple[str, ...]:
    """Every region and country in the table."""
    return tuple(_regions())


def default_pue(location: str) -> float:
    """The published average PUE of the provider in ``provider/region``; otherwise the industry average."""
    by_provider = _data()["pue"]
    found = by_provider.get(location.split("/")[0].lower(), by_provider["industry"])
    return float(found["value"])


@dataclass(frozen=True, slots=True)
class ScorecardLine:
    """One line of the scorecard: figure, reference, points from 0 to 1, and the improvement."""

    what: str
    value: float
    unit: str
    target: float
    points: float
    improve: str


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The lines and their mean as a grade from A to E (`GRADES`)."""

    scores: tuple[ScorecardLine, ...]
    points: float
    grade: str


def scorecard(
    used: Footprint,
    accelerator: Accelerator,
    *,
    utilisation: float,
    training: bool,
    units_of_work: float,
    best_kg_per_unit: float,
    model_parameters: float | None,
    smallest_sufficient_parameters: float | None,
    best_tflops_per_watt: float,
    rules: Assumptions = DEFAULTS,
) -> Scorecard:
    """A carbon scorecard of the work: utilisation, model size, hardware, grid, and carbon per unit of work.

    ``best_kg_per_unit``, ``best_tflops_per_watt`` and ``smallest_sufficient_parameters``: the best available; points
    measure the distance. The grid is compared with the rules' clean grid. Without ``model_parameters`` the model's size
    is left out.
    """
    goal = rules.training_utilization if training else rules.inference_utilization
    per_unit = used.kg_co2e / positive("units of work", units_of_work)
    efficiency = (accelerator.tflops_16bit or 0.0) / (accelerator.tdp_w or used.watts)
    grams = used.intensity.grams_per_kwh
    scores = [
        _line("GPU utilisation", utilisation, "", goal, "batch more, load data faster, pool small jobs", more=True),
        _line("hardware", efficiency, "TFLOPS/W", best_tflops_per_watt, "a newer accelerator", more=True),
        _line("grid", grams, "g CO2e/kWh", rules.clean_grid_g_per_kwh, "move to a cleaner region"),
        _line("carbon per unit of work", per_unit, "kg CO2e", best_kg_per_unit, "all of the above"),
    ]
    if model_parameters is not None:
        least = model_parameters if smallest_sufficient_parameters is None else smallest_sufficient_parameters
        size = _line(
            "model size",
            positive("parameters", model_parameters),
            "parameters",
            positive("smallest sufficient size", least),
            "use the smallest model that meets the quality, distil or quantise",
        )
        scores.insert(1, size)
    points = sum(score.points for score in scores) / len(scores)
    grade = next((letter for letter, least in GRADES if points >= least), "E")
    return Scorecard(tuple(scores), points, grade)


def _line(what: str, value: float, unit: str, target: float, improve: str, *, more: bool = False) -> ScorecardLine:
    """Points: how near ``value`` is to ``target``, where ``more`` (or less) is better."""
    ratio = value / target if more else (target / value if value else 1.0)
    return ScorecardLine(what, value, unit, target, min(1.0, max(0.0, ratio)), improve)


def _without_zone(location: str) -> str:
    """``aws/us-east-1a`` → ``aws/us-east-1``; ``gcp/us-central1-a`` → ``gcp/us-central1``."""
    lowered = location.lower()
    if len(lowered) > 2 and lowered[-2] == "-" and lowered[-1].isalpha():
        return lowered[:-2]
    return lowered[:-1] if lowered[-1:].isalpha() and lowered[-2:-1].isdigit() else lowered


@cache
def _data() -> dict[str, Any]:
    return packaged("broker.economics", "grid.toml")


@cache
def _regions() -> dict[str, GridIntensity]:
    return {
        region: GridIntensity(region, grams, section["year"], section["source"])
        for section in _data().values()
        if "g_per_kwh" in section
        for region, grams in section["g_per_kwh"].items()
    }
