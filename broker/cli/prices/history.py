"""`gpubroker prices history`: how prices changed, and what they were at a point in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from broker.core.market.offers import OfferQuery

EXAMPLES = examples(
    "gpubroker prices history --gpu H100:8 --last 7d",
    "gpubroker prices history --gpu H100:8 --capacity-type spot --region 'us-*' --chart",
    "gpubroker prices history --gpu A100-80GB --from 2026-11-01 --to 2026-11-15 --picture a100.html",
    "gpubroker prices history --gpu H100:8 --at 2026-11-20T12:00Z --known-at 2026-11-20T12:00Z --json",
)
_ROWS = 30
_LINES = 8  # more lines in one chart cannot be distinguished
_PERIOD = "30d"


@dataclass(frozen=True)
class PriceHistoryOptions:
    """The options of `history`."""

    gpu: filters.Gpus = None
    provider: filters.Providers = None
    region: filters.Regions = None
    capacity_type: filters.CapacityTypes = None
    start: Annotated[
        str | None,
        typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 2026-11-01, or 7d (ago)."),
    ] = None
    end: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="End of the period. Default: now.")
    ] = None
    last: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Length of the period up to now. Default: {_PERIOD}.")
    ] = None
    at: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Show the offers at this time instead of a period.")
    ] = None
    known_at: Annotated[
        str | None, typer.Option(metavar="WHEN", help="With --at: use only what had been recorded by this time.")
    ] = None
    limit: filters.Limit = None


@gathered
def history(context: typer.Context, given: PriceHistoryOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Show how prices changed: one row per series, cheapest first. If only one series matches, also each change.

    A series is the prices of one pool from one source; a chart shows the eight cheapest. Times without a zone are local
    times. Only prices recorded by this store are known, so poll regularly with `gpubroker serve` or `gpubroker prices
    poll`.
    """
    from broker.app.market.price_history import over
    from broker.app.results.price_history import PriceHistoryList
    from broker.cli.prices import history_view
    from broker.core.market.offers import OfferQuery

    terminal = Terminal.of(context)
    machines = filters.machines(given.gpu or [])
    query = OfferQuery(
        accelerators=tuple(sorted(machines)),
        capacity_types=filters.capacity_types(given.capacity_type or []),
        providers=tuple(given.provider or []),
        regions=tuple(given.region or []),
    )

    if given.at is not None:
        _no_others(
            {
                "--since": given.start,
                "--until": given.end,
                "--last": given.last,
                "--chart": drawing.chart,
                "--picture": drawing.picture,
            }
        )
        _show_moment(terminal, query, machines, given.at, given.known_at, given.limit)
        return
    if given.known_at is not None:
        raise InvalidInput("needs --at", where="--known-at")
    broker = terminal.broker()
    first, until = _bounds(broker.clock.now(), given.start, given.end, given.last)
    most = given.limit if as_json else given.limit or _ROWS
    period = over(broker, query, first, until, lambda offer: filters.fits(offer, machines), most=most)
    title = history_view.title(given.gpu or [], given.capacity_type or [])
    draw(terminal, lambda: [history_view.chart(period, title, _LINES)], drawing)
    if as_json:
        terminal.answer(PriceHistoryList.of(period))
    elif not drawing.chart:
        terminal.show(*history_view.table(terminal.out, period))


def _show_moment(
    terminal: Terminal,
    query: OfferQuery,
    machines: dict[str, set[int]],
    at: str,
    known_at: str | None,
    limit: int | None,
) -> None:
    from broker.app.market.price_history import at as offered_at
    from broker.app.results.price_history import PastOfferList
    from broker.cli.prices import history_view

    broker = terminal.broker()
    now = broker.clock.now()
    when = filters.moment("--at", at, now)
    known = None if known_at is None else filters.moment("--known-at", known_at, now)
    found = offered_at(broker, query, when, lambda offer: filters.fits(offer, machines), known)
    if terminal.as_json:
        terminal.answer(PastOfferList.of(found[:limit], len(found), when, known))
    else:
        terminal.show(*history_view.moment_table(terminal.out, found[: limit or _ROWS], len(found), when, known))


def _bounds(now: datetime, start: str | None, end: str | None, last: str | None) -> tuple[datetime, datetime]:
    if last is not None and (start is not None or end is not None):
        raise InvalidInput("give --last, or --since and --until", where="--last")
    until = now if end is None else filters.moment("--until", end, now)
    if start is not None:
        return filters.moment("--since", start, now), until
    return until - filters.duration("--last", last or _PERIOD), until


def _no_others(options: dict[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise InvalidInput(f"a point in time cannot be combined with {name}, which needs a period", where="--at")
