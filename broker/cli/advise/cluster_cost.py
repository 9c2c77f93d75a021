"""`gpubroker advise cluster-cost`: total cost of an owned GPU-hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.cost_advice import ClusterCostAdvice

EXAMPLES = examples(
    "gpubroker advise cluster-cost --server-usd 300000 --gpus 8 --cooling-usd 40000 --power-distribution-usd 25000 "
    "--watts 10200 --kwh-usd 0.12 --pue 1.4 --staff-usd-per-gpu-hour 2 --utilisation 0.6",
    "gpubroker advise cluster-cost --server-usd 300000 --gpus 8 --discount-rate 0.08 --resale-usd 40000 --json",
)


@dataclass(frozen=True)
class ClusterCostOptions:
    """The options of `cluster-cost`."""

    server_usd: Annotated[float, inputs.usd("Price of all servers.")]
    gpus: Annotated[int, typer.Option(help="Number of GPUs in the servers.")] = 8
    years: Annotated[float, typer.Option(help="Period of ownership in years.")] = 3.0
    power_distribution_usd: Annotated[float, inputs.usd("One-time cost.")] = 0.0
    cooling_usd: Annotated[float, inputs.usd("One-time cost.")] = 0.0
    networking_usd: Annotated[float, inputs.usd("One-time cost.")] = 0.0
    watts: Annotated[float, typer.Option(help="Power draw of the whole cluster.")] = 0.0
    kwh_usd: Annotated[float, inputs.usd("Price per kWh.")] = 0.12
    pue: Annotated[float, typer.Option(help="Power usage effectiveness.")] = 1.0
    staff_usd_per_gpu_hour: Annotated[float, inputs.usd("Staff cost; $2-7 is common.")] = 0.0
    resale_usd: Annotated[float, inputs.usd("Resale price at the end.")] = 0.0
    discount_rate: Annotated[float, typer.Option(help="Per year; 0.08 is 8 %.")] = 0.0
    utilisation: Annotated[float, typer.Option(help="Share of hours in use.")] = 1.0


@gathered
def cluster_cost(context: typer.Context, given: ClusterCostOptions, as_json: AsJson = False) -> None:
    """Compute the total cost of an owned GPU-hour: servers, building, energy, staff and capital.

    Shows the cost per hour of ownership and per hour in use, and compares it with the range that is often quoted.
    """
    from broker.app.results.cost_advice import ClusterCostAdvice
    from broker.economics import cluster

    terminal = Terminal.of(context)
    found = applied(cluster.cluster_cost, given)
    rules = (cluster.check_quoted_range(found, found, inputs.thumb(context)),)
    zero = {
        "power distribution": given.power_distribution_usd, "cooling": given.cooling_usd,
        "networking": given.networking_usd, "power": given.watts, "staff": given.staff_usd_per_gpu_hour,
        "resale value": given.resale_usd, "discount rate": given.discount_rate,
    }  # fmt: skip
    notes = [f"{name}: 0" for name, value in zero.items() if not value] + [f"{given.years:g} years of 8,760 hours"]
    advice = ClusterCostAdvice.from_parts(found, utilisation=given.utilisation, rules_of_thumb=rules, assumptions=notes)
    terminal.result(advice, lambda: _screen(advice))


def _screen(found: ClusterCostAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view

    used = f" per used GPU-hour, at {found.utilisation:.0%} utilisation"
    yield view.heading(view.estimate(found.usd_per_used_gpu_hour), used)
    named = {
        "servers": found.hardware_usd_per_gpu_hour,
        "building": found.facility_usd_per_gpu_hour,
        "energy": found.energy_usd_per_gpu_hour,
        "staff": found.staff_usd_per_gpu_hour,
        "per hour of ownership": found.usd_per_gpu_hour,
    }
    yield view.figures((name, view.estimate(amount)) for name, amount in named.items() if amount)
    yield from view.rules(found.rules_of_thumb)
    yield from view.assumptions(found.assumptions)
