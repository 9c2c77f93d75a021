"""A simulation over time as charts: GPUs in use, jobs that wait, spend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from broker.app.results.simulations import SimulationReport
from broker.cli.render.charts.chart import Chart, Line

_NAMES = {"amortised": "owned and reserved"}  # as the table of totals calls it
_SIMULATED = "Simulated market, machines and money."


def charts(report: SimulationReport) -> list[Chart]:
    """Three charts over the days in which jobs arrive; none for the report of an earlier version."""
    found = report.over_time
    if found is None:
        return []
    times = [report.start + timedelta(seconds=found.step_s * slot) for slot in range(len(found.waiting))]
    name = f"{report.workload}, seed {report.seed}"
    return [
        Chart(
            f"{name}: accelerators in use", "time", "accelerators", _lines(found.gpus_in_use, times), note=_SIMULATED
        ),
        Chart(f"{name}: jobs that wait", "time", "jobs", [Line("waiting", times, found.waiting, step=True)]),
        Chart(f"{name}: spend", "time", "USD per hour", _lines(_rented_first(found.usd_per_hour), times)),
    ]


def _rented_first(spend: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """The spend by kind, in the order of the chart of GPUs in use, so that owned machines have the same sign in both
    charts."""
    return {_NAMES.get(kind, kind): spend[kind] for kind in sorted(spend, key="amortised".__eq__)}


def _lines(values: Mapping[str, Sequence[float]], times: Sequence[datetime]) -> list[Line]:
    return [Line(kind.replace("_", " "), times, series, step=True) for kind, series in values.items()]
