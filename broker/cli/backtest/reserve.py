"""`gpubroker backtest reserve`: cost of reservation rules on recorded demand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, check_picture, draw, names, progress
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

EXAMPLES = examples(
    "gpubroker backtest reserve demand.csv --term 720h --ratio 0.6",
    "gpubroker backtest reserve a.csv b.csv --term 30d --ratio 0.4 --ratio 0.7 --warmup 14d --json",
    "gpubroker backtest reserve --pattern half-day --pattern burst --ratio 0.6",
    "gpubroker backtest reserve november.csv --history october.csv --policies gpubroker,wang,optimum --chart",
)


class SeriesEnd(StrEnum):
    """Whether the rules know where the series ends."""

    UNKNOWN = "unknown"
    KNOWN = "known"


@dataclass(frozen=True)
class ReserveBacktestOptions:
    """The options of `reserve`."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...", help="Hourly demand: one number per line, or a CSV with one column per series."
        ),
    ] = None
    demand: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Same as FILE. Repeatable.")] = None
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Synthetic demand of a year: constant, half-day, weekday, quarter-end, ramp, stop, burst. Repeatable.",
        ),
    ] = None
    term: Annotated[str, typer.Option(metavar="TIME", help="Term of a reservation.")] = "720h"
    ratio: Annotated[
        list[float] | None,
        typer.Option(help="Reserved price over on-demand price of a unit-hour. Repeatable. Default: 0.6."),
    ] = None
    warmup: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start of each series that is history and costs nothing. Default: 336h, or the term if shorter; 0 with"
            " --history.",
        ),
    ] = None
    history: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="History before each series, in the same order. Repeatable."),
    ] = None
    end: Annotated[
        SeriesEnd,
        typer.Option(help="unknown: the rules do not know where a series ends; the last terms are charged pro rata."),
    ] = SeriesEnd.UNKNOWN
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Separated by commas: gpubroker, mixture, staggered-quantile, wang, wang-randomised, static-best,"
            " on-demand, optimum.",
        ),
    ] = None


@gathered
def reserve(context: typer.Context, given: ReserveBacktestOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Compute the cost of reservation rules on recorded demand: the broker's planner, other rules, and the optimum.

    Every rule starts with nothing reserved, knows only the hours before the present one, and pays for reservations
    whether used or not. Costs are in on-demand unit-hours; the optimum knows the demand in advance.
    """
    from broker.app.results.backtests import ReserveBacktest
    from broker.backtest.reserve.reserve import DEFAULT_POLICIES, ReserveReplay, run_reserve_backtest
    from broker.cli.backtest import reserve_view

    terminal = Terminal.of(context)
    request = ReserveReplay(
        files=[*(given.files or []), *(given.demand or [])],
        term=_hours("--term", given.term),
        ratios=tuple(dict.fromkeys(given.ratio or [0.6])),
        warm_up=None if given.warmup is None else _hours("--warmup", given.warmup),
        history=tuple(given.history or []),
        end_known=given.end is SeriesEnd.KNOWN,
        policies=DEFAULT_POLICIES if given.policies is None else names(given.policies),
        patterns=tuple(dict.fromkeys(given.pattern or [])),
    )
    check_picture(drawing)
    with progress(terminal, "measuring") as told:
        report = run_reserve_backtest(request, told)
    found = ReserveBacktest.of(report, hourly=drawing.asked)
    draw(terminal, lambda: reserve_view.charts(found), drawing)
    terminal.result(found, lambda: reserve_view.tables(terminal.out, found))


def _hours(option: str, text: str) -> int:
    """Whole hours from ``720h`` or ``30d``; a number without unit is hours."""
    found = filters.time_span(option, f"{text}h" if text.strip().isdecimal() else text)
    if found % timedelta(hours=1):
        raise InvalidInput(f"expected whole hours, such as 720h or 30d; got {text!r}", where=option)
    return found // timedelta(hours=1)
