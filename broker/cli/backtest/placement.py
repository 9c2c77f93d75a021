"""`gpubroker backtest placement`: cost of placement strategies on recorded spot markets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, Progress, check_picture, draw, names, progress
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.market.strategy_backtest import JobBacktest
    from broker.backtest.placement.run import PlacementReplay

EXAMPLES = examples(
    "gpubroker backtest placement traces/ --work 48h --deadline 52h --deadline 70h",
    "gpubroker backtest placement a.json b.json --changeover 2m --changeover 30m --starts 30 --per-window --json",
    "gpubroker backtest placement --job job.yaml --days 30 --starts 50",
    "gpubroker backtest placement h100/ --zones together --policies gpubroker,eager-next-region,omniscient --chart",
)


# Options without effect with --job, because the job file or the store determines the value.
_OF_TRACES = {
    "work": "the job file states the work",
    "changeover": "it follows from the job's checkpoints",
    "from_fraction": "--days sets where windows start",
    "to_fraction": "--days sets where windows start",
    "zones": "a job may use all pools that match it",
    "pools": "the job's `resources` and `constraints` select the pools",
    "on_demand_price": "the store has prices",
    "spot_price": "the store has prices",
    "gang": "the job's `num_nodes` sets it",
}


class Zones(StrEnum):
    """Whether a job may move between the pools of a family."""

    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True)
class PlacementBacktestOptions:
    """The options of `placement`."""

    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACE...", help="JSON traces, CSV files of machine counts, or folders of them."),
    ] = None
    traces: Annotated[list[Path] | None, typer.Option(metavar="TRACE", help="Same as TRACE. Repeatable.")] = None
    job: Annotated[
        Path | None,
        typer.Option(metavar="JOB.yaml", help="Replay this job on the store's price history, instead of traces."),
    ] = None
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="With --job: start at each full hour of this many days.")
    ] = 30
    work: Annotated[str | None, typer.Option(metavar="TIME", help="Work of the job. Default: 48h.")] = None
    deadline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME", help="Deadline after the start. Repeatable. Default: 60h; with --job the job's own."
        ),
    ] = None
    changeover: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="Billed time to boot and restore. Repeatable. Default: 12m."),
    ] = None
    starts: Annotated[int, typer.Option(help="Number of windows per pool.")] = 100
    seed: Annotated[int, typer.Option(help="Random seed for the choice of windows.")] = 7
    from_fraction: Annotated[
        float,
        typer.Option(
            "--from-part",
            "--from",
            metavar="PART",
            help="Windows start after this fraction of the trace; the part before is history.",
        ),
    ] = 0.5
    to_fraction: Annotated[
        float, typer.Option("--to-part", "--to", metavar="PART", help="Windows end before this fraction of the trace.")
    ] = 1.0
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Separated by commas: gpubroker, uniform-progress, greedy, on-demand, omniscient, eager-next-region,"
            " time-sliced.",
        ),
    ] = None
    zones: Annotated[Zones, typer.Option(help="together: a job may move between the pools of a folder.")] = Zones.APART
    pools: Annotated[list[str] | None, typer.Option("--pool", metavar="NAME", help="Only this pool. Repeatable.")] = (
        None
    )
    on_demand_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Per machine-hour, if the trace has no price. Default: 3.06.")
    ] = None
    spot_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Per machine-hour, if the trace has no price. Default: 0.9731.")
    ] = None
    gang: Annotated[
        int,
        typer.Option(
            help="Machines that the job needs at once; fewer count as no capacity. Costs are for all of them."
        ),
    ] = 1
    per_window: Annotated[
        bool, typer.Option("--per-window", help="With --json: include start and cost of every window.")
    ] = False
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: number of CPUs.")] = None


@gathered
def placement(
    context: typer.Context, given: PlacementBacktestOptions, drawing: Drawing, as_json: AsJson = False
) -> None:
    """Compute the cost of placement strategies on recorded spot markets: the broker's, others, and the optimum.

    At the start of a tick a strategy knows that tick and the past; a changeover is billed and makes no progress. The
    optimum knows the whole window in advance. The broker's strategy runs the broker's own decision code.

    The same traces, options and seed give the same document. With --job the result depends on the store and the last
    full hour: the record ends there, and a deadline given as a point in time counts from there.
    """
    from broker.app.results.backtests import PlacementBacktest
    from broker.backtest.placement.run import DEFAULT_POLICIES, PlacementReplay, run_backtest
    from broker.backtest.placement.trace_files import TracePrices
    from broker.cli.backtest import placement_view

    terminal = Terminal.of(context)
    traces = [*(given.paths or []), *(given.traces or [])]
    if (given.job is None) != bool(traces):
        raise InvalidInput(
            "traces and a job cannot be combined" if traces else "expected traces or a job",
            where="--traces, --job",
            hint="gpubroker backtest placement FOLDER, or gpubroker backtest placement --job JOB.yaml",
        )
    _refuse_what_means_nothing(context, with_job=given.job is not None, as_json=as_json)
    request = PlacementReplay(
        traces=traces,
        work=48 * 3600.0 if given.work is None else _seconds("--work", given.work),
        deadlines=_distinct("--deadline", given.deadline or ["60h"]),
        changeovers=_distinct("--changeover", given.changeover or ["12m"]),
        policies=DEFAULT_POLICIES if given.policies is None else names(given.policies),
        starts=given.starts,
        seed=given.seed,
        from_fraction=given.from_fraction,
        to_fraction=given.to_fraction,
        together=given.zones is Zones.TOGETHER,
        zones=tuple(given.pools or ()),
        prices=TracePrices.given(given.on_demand_price, given.spot_price, given.gang),
    )
    check_picture(drawing)
    processes = given.workers or _processors()
    about: JobBacktest | None = None
    with progress(terminal, "replaying") as told:
        if given.job is None:
            report = run_backtest(request, told, workers=processes)
        else:
            about = _of_job(terminal, given.job, request, given.days, given.deadline, told, processes)
            report = about.report
    found = PlacementBacktest.of(report, about, per_window=given.per_window)
    draw(terminal, lambda: placement_view.charts(found), drawing)
    terminal.result(found, lambda: placement_view.tables(terminal.out, found))


def _processors() -> int:
    """The number of CPUs that this process may use; if unknown, of all CPUs."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _refuse_what_means_nothing(context: typer.Context, *, with_job: bool, as_json: bool) -> None:
    """Raises `InvalidInput` for an option that was given but has no effect."""
    said = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and (source := context.get_parameter_source(parameter.name)) and source.name != "DEFAULT"
    }
    if with_job:
        for name, why in _OF_TRACES.items():
            if name in said:
                raise InvalidInput(f"not with --job: {why}", where=said[name])
    elif "days" in said:
        raise InvalidInput("only with --job", where="--days", hint="--from and --to select a part of a trace")
    if "per_window" in said and not as_json:
        raise InvalidInput("only with --json", where="--per-window", hint="add --json")
    if "force" in said and "picture" not in said:
        raise InvalidInput("only with --picture", where="--force")


def _of_job(
    terminal: Terminal,
    path: Path,
    request: PlacementReplay,
    days: int,
    deadlines: list[str] | None,
    progress: Progress | None,
    workers: int,
) -> JobBacktest:
    """Replay the job of that file on the store's records. Work and changeover are the job's own."""
    from broker.app.jobs.job_input import read_job
    from broker.app.market.strategy_backtest import job_backtest

    if deadlines is not None and len(deadlines) > 1:
        raise InvalidInput("expected one deadline with --job", where="--deadline")
    broker = terminal.broker(look_after=False)
    asked = None if deadlines is None else _seconds("--deadline", deadlines[0])
    found = read_job(path, broker.clock.now())
    return job_backtest(broker, found, request, days=days, deadline=asked, progress=progress, workers=workers)


def _distinct(option: str, texts: list[str]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(_seconds(option, text) for text in texts))


def _seconds(option: str, text: str) -> float:
    """Seconds from ``48h`` or ``12m``; a number without unit is refused, because it is ambiguous."""
    return filters.time_span(option, text) / timedelta(seconds=1)
