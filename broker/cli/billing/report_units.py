"""`gpubroker report units`: what a run, a busy GPU-hour and a million tokens cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, NamedPeriod, OnlyTeam, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.results.units import UnitMetrics
    from broker.core.values.money import Money

EXAMPLES = examples(
    "gpubroker report units",
    "gpubroker report units --metric loss",
    "gpubroker report units --period last-month --team nlp --json",
)


def units(
    context: typer.Context,
    period: NamedPeriod = "month",
    team: OnlyTeam = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="Also show the cost per difference of 1 in this figure."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of a successful run, a GPU-hour, a busy GPU-hour and a million tokens, for bought and for rented
    capacity.

    Utilisation is that of the agents' samples: of each machine the busiest GPU. Tokens are those that programs report
    with `gpubroker_checkpoint.report`. A figure without its denominator is unknown.
    """
    from broker.app.billing.units import units as measured
    from broker.app.results.units import UnitMetrics

    terminal = Terminal.of(context)
    found = UnitMetrics.of(measured(terminal.broker(), period, team, metric))
    if as_json:
        terminal.answer(found)
        return
    if metric is not None and not found.quality:
        terminal.say(f"no project has two successful runs that reported {metric}")
    terminal.show(*(f"{name + ':':<28} {text}" for name, text in _lines(found)))


def _lines(one: UnitMetrics) -> list[tuple[str, str]]:
    from broker.cli.render import formats

    def money(amount: Money | None) -> str:
        return "unknown" if amount is None else formats.money(amount)

    def share(value: float | None, what: str) -> str:
        return "unknown" if value is None else f"{formats.percent(value)} {what}"

    spot = one.spot_hours / one.gpu_hours if one.gpu_hours else None
    samples = f"of {one.measured_hours:,.1f} GPU-hours with samples"
    idle = f"{one.idle_hours:,.1f} {samples}, {money(one.idle_cost)}" if one.measured_hours else "unknown"
    lines = [
        ("spent", money(one.spent)),
        ("bought (owned, reserved)", money(one.bought)),
        ("rented (on-demand, spot)", money(one.rented)),
        ("successful runs", f"{one.runs:,}"),
        ("cost of a successful run", money(one.per_run)),
        ("GPU-hours", f"{one.gpu_hours:,.1f}"),
        ("cost of a GPU-hour", money(one.per_gpu_hour)),
        ("cost of a busy GPU-hour", money(one.per_busy_hour)),
        ("busy GPU-hours", f"{one.busy_hours:,.1f} {samples}" if one.measured_hours else "unknown"),
        ("idle GPU-hours (below 5 %)", idle),
        ("cost of a million tokens", money(one.per_million_tokens)),
        ("lost work", money(one.wasted)),
        ("on spot", share(spot, f"of GPU-hours, {money(one.spot_spent)}")),
        ("use of held capacity", share(one.capacity_use, "of the hours held")),
        ("on held capacity", share(one.coverage, "of GPU-hours")),
        ("tagged with a team", share(one.tagged, "of spending")),
    ]
    for owner in one.quality:
        runs = " and ".join(
            f"{run.job_id} ({run.value:g}, {money(run.cost)})" for run in (owner.cheapest, owner.dearest)
        )
        lines.append((f"a difference of 1, {owner.owner}", f"{money(owner.per_point)}, from {runs}"))
    return [*lines, ("samples out of reach", f"{one.unread:,} attempts")] if one.unread else lines
