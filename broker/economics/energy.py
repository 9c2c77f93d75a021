"""Energy and carbon: kWh and kg CO2e of a job, the grid's intensity by region, and a scorecard.

Power model: idle + utilization × (board power − idle), linear, as in Lacoste et al. 2019 and MLPerf practice; the
building's overhead is the PUE. Intensities come from ``grid.toml``, each with its source and year; they are annual
averages of the local grid, so a single hour may differ twofold. Emissions of making the hardware are not counted.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from broker.core.errors import InvalidInput, UnknownName
from broker.core.extras import load_packaged_toml
from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import HIDDEN, Estimate, Figure, Watts
from broker.economics.units import not_negative, overhead, positive, share, whole

GRADES = (("A", 0.85), ("B", 0.70), ("C", 0.50), ("D", 0.30))
"""Grades of the scorecard by the least mean of their points; below all: E."""


@dataclass(frozen=True, slots=True)
class GridIntensity:
    """``grams_per_kwh`` (CO2e) of a region's electricity, with its ``year`` and source."""

    region: str
    grams_per_kwh: Figure
    year: Annotated[int, HIDDEN]
    source: Annotated[str, HIDDEN]


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

    watts: Watts
    kwh: Estimate
    kg_co2e: Estimate
    kg_co2e_low: Estimate
    kg_co2e_high: Estimate
    range_source: Annotated[str, HIDDEN]
    pue: Figure
    intensity: GridIntensity


def average_watts(tdp_w: float, utilization: float, assumptions: Assumptions = DEFAULTS) -> float:
    """Average power of a GPU: idle + utilization × (board power − idle), W; idle as measured (``idle_watts``), else a
    share of the board power."""
    board, idle = positive("board power", tdp_w, "W"), assumptions.idle_watts
    if idle is None:
        idle = board * assumptions.idle_power_share
    not_negative("idle power", idle, "W", most=board)
    return idle + share("utilization", utilization) * (board - idle)


def energy_kwh(watts: float, hours: float, gpus: int = 1, pue: float = 1.0) -> float:
    """kWh of ``gpus`` drawing ``watts`` each for ``hours``, with the building's overhead."""
    power = not_negative("power", watts, "W") * whole("gpus", gpus)
    return power * not_negative("hours", hours) * overhead(pue) / 1000


def energy_usd_per_hour(watts: float, kwh_usd: float, pue: float = 1.0) -> float:
    """Cost of an hour of ``watts`` at the plug of the machine, with the building's overhead (PUE, 1 or more)."""
    not_negative("power", watts, "W", most=1e8)
    not_negative("electricity price", kwh_usd, "USD per kWh", most=100)
    return watts / 1000 * kwh_usd * overhead(pue)


def carbon_kg(kwh: float, grams_per_kwh: float) -> float:
    """kg CO2e of that much electricity."""
    return not_negative("energy", kwh, "kWh") * not_negative("intensity", grams_per_kwh, "g/kWh", most=3000) / 1000


def footprint(
    accelerator: Accelerator, *, gpus: int, hours: float, utilization: float, assumptions: Assumptions = DEFAULTS
) -> Footprint:
    """Energy and carbon of ``gpus`` in use for ``hours`` at the location of the assumptions.

    The PUE is the provider's published average where it has one, unless it is stated. Measured power (``gpu_watts``)
    takes precedence over the power model. Raises InvalidInput when the card's power is not known and none was measured,
    UnknownName for a location without data.
    """
    location = assumptions.location
    if assumptions.gpu_watts is not None:
        watts = assumptions.gpu_watts
    elif accelerator.tdp_w is None:
        raise InvalidInput(
            f"{accelerator.name}: its power is not published",
            hint="`--assume gpu_watts=W` takes the average power measured on one",
        )
    else:
        watts = average_watts(accelerator.tdp_w, utilization, assumptions)
    intensity = grid_intensity(location)
    pue = assumptions.pue if "pue" in assumptions.stated else default_pue(location)
    kwh = energy_kwh(watts, hours, gpus, pue)
    kg = carbon_kg(kwh, intensity.grams_per_kwh)
    factors = grid_range(hours, assumptions)
    return Footprint(watts, kwh, kg, kg * factors.low, kg * factors.high, factors.source, pue, intensity)


def grid_range(hours: float, assumptions: Assumptions = DEFAULTS) -> GridRange:
    """How far the grid's intensity during a run of that many hours may differ from its annual average: in days wind and
    sun count in full, over months only the season does. The source of the factors is in ``grid.toml``."""
    days = hours < assumptions.grid_days_below_hours
    low, high = assumptions.grid_of_days if days else assumptions.grid_of_months
    factors = _data()["ranges"]["days" if days else "months"]
    is_stated = (low, high) != (factors["low"], factors["high"])
    return GridRange(low, high, "your assumptions" if is_stated else factors["source"])


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
    return tuple(_regions())


def default_pue(location: str) -> float:
    """The published average PUE of the provider in ``provider/region``; otherwise the industry average."""
    by_provider = _data()["pue"]
    row = by_provider.get(location.split("/")[0].lower(), by_provider["industry"])
    return float(row["value"])


@dataclass(frozen=True, slots=True)
class ScorecardLine:
    """One line of the scorecard: figure, reference, points from 0 to 1, and the improvement."""

    what: str
    value: Figure
    unit: str
    target: Figure
    points: Figure
    improve: str


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The lines and their mean as a grade from A to E (`GRADES`)."""

    grade: str
    points: Figure
    scores: tuple[ScorecardLine, ...]


def scorecard(
    usage: Footprint,
    accelerator: Accelerator,
    *,
    utilization: float,
    training: bool,
    best_tflops_per_watt: float,
    assumptions: Assumptions = DEFAULTS,
) -> Scorecard:
    """A carbon scorecard of the work: utilization, model size, hardware, grid, and carbon per unit of work. Points
    measure the distance from the best available: ``best_tflops_per_watt``, the clean grid and the smallest sufficient
    model of the assumptions. Without the model's size that line is left out."""
    goal = assumptions.training_utilization if training else assumptions.inference_utilization
    units, clean = assumptions.units_of_work, assumptions.clean_grid_g_per_kwh
    best_kg = max(usage.kwh * clean / 1000 / units, 1e-12)
    efficiency = (accelerator.tflops_16bit or 0.0) / (accelerator.tdp_w or usage.watts)
    grams = usage.intensity.grams_per_kwh
    scores = [
        _line(
            "GPU utilization",
            utilization,
            "",
            goal,
            "batch more, load data faster, pool small jobs",
            is_higher_better=True,
        ),
        _line("hardware", efficiency, "TFLOPS/W", best_tflops_per_watt, "a newer accelerator", is_higher_better=True),
        _line("grid", grams, "g CO2e/kWh", clean, "move to a cleaner region"),
        _line("carbon per unit of work", usage.kg_co2e / units, "kg CO2e", best_kg, "all of the above"),
    ]
    if (size := assumptions.model_parameters) is not None:
        minimum = min(assumptions.smallest_parameters or size, size)
        improve = "use the smallest model that meets the quality, distil or quantize"
        scores.insert(1, _line("model size", size, "parameters", minimum, improve))
    points = sum(score.points for score in scores) / len(scores)
    grade = next((letter for letter, minimum in GRADES if points >= minimum), "E")
    return Scorecard(grade, points, tuple(scores))


def _line(
    label: str, value: float, unit: str, target: float, improve: str, *, is_higher_better: bool = False
) -> ScorecardLine:
    """Points: how near ``value`` is to ``target``, where ``is_higher_better`` (or less) is better."""
    ratio = value / target if is_higher_better else (target / value if value else 1.0)
    return ScorecardLine(label, value, unit, target, min(1.0, max(0.0, ratio)), improve)


def _without_zone(location: str) -> str:
    """``aws/us-east-1a`` → ``aws/us-east-1``; ``gcp/us-central1-a`` → ``gcp/us-central1``."""
    lowered = location.lower()
    if len(lowered) > 2 and lowered[-2] == "-" and lowered[-1].isalpha():
        return lowered[:-2]
    return lowered[:-1] if lowered[-1:].isalpha() and lowered[-2:-1].isdigit() else lowered


@cache
def _data() -> dict[str, Any]:
    return load_packaged_toml("broker.economics", "grid.toml")


@cache
def _regions() -> dict[str, GridIntensity]:
    return {
        region: GridIntensity(region, grams, section["year"], section["source"])
        for section in _data().values()
        if "g_per_kwh" in section
        for region, grams in section["g_per_kwh"].items()
    }
