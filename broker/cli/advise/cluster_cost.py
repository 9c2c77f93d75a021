"""`gpubroker advise cluster-cost`: total cost of an owned GPU-hour."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker advise cluster-cost --server-usd 300000 --gpus 8 --cooling-usd 40000 --power-distribution-usd 25000 "
    "--watts 10200 --kwh-usd 0.12 --pue 1.4 --staff-usd-per-gpu-hour 2 --utilisation 0.6",
    "gpubroker advise cluster-cost --server-usd 300000 --gpus 8 --discount-rate 0.08 --resale-usd 40000 --json",
)


def cluster_cost(
    context: typer.Context,
    server_usd: Annotated[
        float, typer.Option("--server-usd", parser=inputs.dollars, metavar="USD", help="Price of all servers.")
    ],
    gpus: Annotated[int, typer.Option("--gpus", help="Number of GPUs in the servers.")] = 8,
    years: Annotated[float, typer.Option("--years", help="Period of ownership in years.")] = 3.0,
    power_distribution_usd: Annotated[
        float, typer.Option("--power-distribution-usd", parser=inputs.dollars, metavar="USD", help="One-time cost.")
    ] = 0.0,
    cooling_usd: Annotated[
        float, typer.Option("--cooling-usd", parser=inputs.dollars, metavar="USD", help="One-time cost.")
    ] = 0.0,
    networking_usd: Annotated[
        float, typer.Option("--networking-usd", parser=inputs.dollars, metavar="USD", help="One-time cost.")
    ] = 0.0,
    watts: Annotated[float, typer.Option("--watts", help="Power draw of the whole cluster.")] = 0.0,
    kwh_usd: Annotated[
        float, typer.Option("--kwh-usd", parser=inputs.dollars, metavar="USD", help="Price per kWh.")
    ] = 0.12,
    pue: Annotated[float, typer.Option("--pue", help="Power usage effectiveness.")] = 1.0,
    staff: Annotated[
        float,
        typer.Option(
            "--staff-usd-per-gpu-hour", parser=inputs.dollars, metavar="USD", help="Staff cost; $2-7 is common."
        ),
    ] = 0.0,
    resale_usd: Annotated[
        float, typer.Option("--resale-usd", parser=inputs.dollars, metavar="USD", help="Resale price at the end.")
    ] = 0.0,
    discount_rate: Annotated[float, typer.Option("--discount-rate", help="Per year; 0.08 is 8 %.")] = 0.0,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Share of hours in use.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Compute the total cost of an owned GPU-hour: servers, building, energy, staff and capital.

    Shows the cost per hour of ownership and per hour in use, and compares it with the range that is often quoted.
    """
    from broker.app.results.cost_advice import ClusterCostAdvice
    from broker.cli.advise import view
    from broker.economics import cluster

    terminal = Terminal.of(context)
    found = cluster.cluster_cost(
        server_usd=server_usd,
        gpus=gpus,
        years=years,
        power_distribution_usd=power_distribution_usd,
        cooling_usd=cooling_usd,
        networking_usd=networking_usd,
        watts=watts,
        kwh_usd=kwh_usd,
        pue=pue,
        staff_usd_per_gpu_hour=staff,
        resale_usd=resale_usd,
        discount_rate=discount_rate,
        utilisation=utilisation,
    )
    rules = (cluster.check_quoted_range(found, found, inputs.thumb(context)),)
    zero = {
        "power distribution": power_distribution_usd, "cooling": cooling_usd, "networking": networking_usd,
        "power": watts, "staff": staff, "resale value": resale_usd, "discount rate": discount_rate,
    }  # fmt: skip
    notes = [f"{name}: 0" for name, value in zero.items() if not value] + [f"{years:g} years of 8,760 hours"]
    if as_json:
        terminal.answer(ClusterCostAdvice.from_parts(found, rules_of_thumb=list(rules), assumptions=notes))
        return
    named = (
        ("servers", found.hardware_usd_per_gpu_hour), ("building", found.facility_usd_per_gpu_hour),
        ("energy", found.energy_usd_per_gpu_hour), ("staff", found.staff_usd_per_gpu_hour),
        ("per hour of ownership", found.usd_per_gpu_hour),
    )  # fmt: skip
    terminal.show(
        view.heading(
            view.dollars(found.usd_per_used_gpu_hour), f" per used GPU-hour, at {utilisation:.0%} utilisation"
        ),
        view.figures((name, view.dollars(amount)) for name, amount in named if amount),
        *view.rules(rules),
        *view.assumptions(notes),
    )
