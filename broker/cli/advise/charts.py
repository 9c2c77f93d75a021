"""Answers as charts: cost by hours in use, utilization by cluster size, the radar as bars."""

from __future__ import annotations

from broker.app.advise.buy_or_rent import BuyOrRentAdvice
from broker.app.advise.hardware import HardwareAdvice
from broker.app.advise.speed import SpeedAdvice
from broker.cli.render.charts.chart import Bars, Chart, Line

_POINTS = 60  # of a curve


def costs_by_hours(found: BuyOrRentAdvice) -> Chart:
    """The present values of owning and of the cheapest rent, over the hours in use per day."""
    hours = [one.hours_per_day for one in found.by_hours]
    return Chart(
        title="Owning and renting",
        x_label="hours in use per day",
        y_label="USD, present value",
        lines=(
            Line("owning", hours, [one.owned_usd for one in found.by_hours]),
            Line("renting", hours, [one.rented_usd for one in found.by_hours]),
        ),
        note=found.comparison.why,
    )


def utilization_by_size(found: SpeedAdvice) -> list[Chart]:
    """Utilization over cluster size, with the cheapest size and diminishing returns marked; none without sizes."""
    scaling = found.scaling
    if scaling is None:
        return []
    first, last = scaling.sizes[0].gpus, scaling.sizes[-1].gpus
    xs = [first + index * (last - first) / _POINTS for index in range(_POINTS + 1)]
    lines = [Line("utilization", xs, [scaling.model.speedup(x) / x * 100 for x in xs])]
    for name, gpus in (("cheapest on time", scaling.efficient_gpus), ("diminishing returns", scaling.diminishing_gpus)):
        if gpus is not None:
            height = scaling.model.speedup(gpus) / gpus * 100
            lines.append(Line(f"{name}: {gpus} GPUs", [float(gpus), float(gpus)], [0.0, height]))
    return [
        Chart(
            title=f"Utilization of {found.gpu} clusters",
            x_label="GPUs",
            y_label="utilization, % of perfect scaling",
            lines=lines,
            note="; ".join(found.assumptions),
        )
    ]


def radar(found: HardwareAdvice) -> Chart:
    """The radar as bars, because terminals cannot draw a radar chart."""
    rows = found.radar[:8]
    axes = ("cost", "performance", "energy_efficiency", "maturity")
    heights = {axis: [getattr(row, axis) for row in rows] for axis in axes}
    return Chart(
        title="Hardware compared",
        x_label="accelerator",
        y_label="share of the best, 0 to 1",
        bars=[
            Bars(axis.replace("_", " "), [row.accelerator for row in rows], [v and round(v, 2) for v in values])
            for axis, values in heights.items()
        ],
        note=f"cost is performance per dollar of {found.per}; best scores first",
    )
