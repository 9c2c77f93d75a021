"""`gpubroker prices history`: how prices changed, and what they were at a point in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal
from broker.cli.where import RowFilter
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.price_history import PriceHistoryList

EXAMPLES = examples(
    "gpubroker prices history --gpu H100:8 --last 7d",
    "gpubroker prices history --gpu H100:8 --where 'capacity_type=spot,region=us-*' --chart",
    "gpubroker prices history --gpu A100-80GB --from 2026-11-01 --to 2026-11-15 --chart",
    "gpubroker prices history --gpu H100:8 --at 2026-11-20T12:00Z --known-at 2026-11-20T12:00Z --json",
)
_ROWS, _ROWS_OF_SERVER = 30, 100  # a server shows no more
_LINES = 8  # more lines in one chart cannot be distinguished
_PERIOD = "30d"
_SERIES = RowFilter(
    provider=completion.providers,
    region=completion.regions,
    instance_type=completion.instance_types,
    capacity_type=completion.capacity_types,
)


@dataclass(frozen=True)
class PriceHistoryOptions:
    """The options of `history`."""

    gpu: filters.Gpus = None
    where: Annotated[list[str] | None, _SERIES.option] = None
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
        str | None,
        typer.Option(metavar="WHEN", help="Show the offers at this time instead of a period; not through a server."),
    ] = None
    known_at: Annotated[
        str | None, typer.Option(metavar="WHEN", help="With --at: use only what had been recorded by this time.")
    ] = None
    limit: filters.Limit = None


@gathered
def history(context: typer.Context, given: PriceHistoryOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Show how prices changed: one row per series, cheapest first. If only one series matches, also each change.

    A series is the prices of one pool from one source; a chart shows the eight cheapest. Times without a zone are local
    times. Only recorded prices are known, so poll regularly with `gpubroker serve` or `gpubroker prices poll`. A server
    shows at most 100 series.
    """
    from broker.app.market.offer_rows import OfferFilter
    from broker.cli.prices import history_view

    terminal = Terminal.of(context)
    terminal.only_here({"--at": given.at, "--known-at": given.known_at})
    wanted = OfferFilter.of({"gpu": given.gpu, **_SERIES.read(given.where)}, gpus_from="--gpu")
    if given.at is not None:
        _show_moment(terminal, wanted, given, drawing)
        return
    if given.known_at is not None:
        raise InvalidInput("needs --at", where="--known-at")
    found = _found(terminal, wanted, given)
    title = history_view.title(given.gpu or [], sorted(wanted.capacity_types))
    draw(terminal, lambda: [history_view.chart(found, title, _LINES)], drawing)
    if as_json or not drawing.chart:
        terminal.result(found, lambda: history_view.table(terminal.out, found))


def _found(terminal: Terminal, wanted: OfferFilter, given: PriceHistoryOptions) -> PriceHistoryList:
    from datetime import UTC, datetime

    from broker.app.results.price_history import PriceHistoryList

    if terminal.through_server:
        first, until = _bounds(datetime.now(UTC), given)
        return terminal.api.fetch(
            PriceHistoryList,
            "/prices/history",
            gpu=given.gpu,
            provider=wanted.providers,
            region=wanted.regions,
            instance_type=wanted.instance_types,
            capacity_type=sorted(wanted.capacity_types),
            since=first.isoformat(),
            until=until.isoformat() if given.end else None,  # the server's clock may be behind
            limit=given.limit or (_ROWS_OF_SERVER if terminal.as_json else _ROWS),
        )
    from broker.app.market.price_history import over

    broker = terminal.broker()
    first, until = _bounds(broker.clock.now(), given)
    most = given.limit if terminal.as_json else given.limit or _ROWS
    return PriceHistoryList.of(over(broker, wanted, first, until, most=most))


def _show_moment(terminal: Terminal, wanted: OfferFilter, given: PriceHistoryOptions, drawing: Drawing) -> None:
    from broker.app.market.price_history import at
    from broker.app.results.price_history import PastOfferList
    from broker.cli.prices import history_view

    others = {"--since": given.start, "--until": given.end, "--last": given.last}
    for name, value in (others | {"--chart": drawing.chart}).items():
        if value:
            raise InvalidInput(f"a point in time cannot be combined with {name}, which needs a period", where="--at")
    broker = terminal.broker()
    now = broker.clock.now()
    when = filters.moment("--at", given.at or "", now)
    known = None if given.known_at is None else filters.moment("--known-at", given.known_at, now)
    past = at(broker, wanted, when, known)
    most = given.limit if terminal.as_json else given.limit or _ROWS
    found = PastOfferList(at=when, known_at=known, matching=len(past), offers=past[:most])
    terminal.result(found, lambda: history_view.moment_table(terminal.out, found))


def _bounds(now: datetime, given: PriceHistoryOptions) -> tuple[datetime, datetime]:
    if given.last is not None and (given.start is not None or given.end is not None):
        raise InvalidInput("give --last, or --since and --until", where="--last")
    until = now if given.end is None else filters.moment("--until", given.end, now)
    if given.start is not None:
        return filters.moment("--since", given.start, now), until
    return until - filters.duration("--last", given.last or _PERIOD), until
