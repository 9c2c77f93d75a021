"""`gpubroker prices history`, `import` and `prune`: recorded prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.figures import Drawing, draw
from broker.cli.render.tables import Column, ValueColumn, fitting, listing
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from rich.console import Console, RenderableType
    from rich.text import Text

    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.price_history import (
        ImportedPrices,
        PricedMachine,
        PriceHistoryList,
        PriceSeries,
    )
    from broker.core.values.money import Money

EXAMPLES = examples(
    "gpubroker prices history --gpu H100:8 --last 7d",
    "gpubroker prices history --gpu H100:8 --where 'capacity_type=spot,region=us-*' --chart",
    "gpubroker prices history --gpu A100-80GB --from 2026-11-01 --to 2026-11-15 --chart",
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
    limit: filters.Limit = None


@gathered
def history(context: typer.Context, given: PriceHistoryOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Show how prices changed: one row per series, cheapest first. If only one series matches, also each change.

    A series is the prices of one pool from one source; a chart shows the eight cheapest. Times without a zone are local
    times. Only recorded prices are known, so poll regularly with `gpubroker serve` or `gpubroker prices poll`. A server
    shows at most 100 series.
    """
    from broker.app.market.offer_rows import OfferFilter

    terminal = Terminal.of(context)
    wanted = OfferFilter.of({"gpu": given.gpu, **_SERIES.read(given.where)}, gpus_from="--gpu")
    found = _found(terminal, wanted, given)
    heading = title(given.gpu or [], sorted(wanted.capacity_types))
    draw(terminal, lambda: [chart(found, heading, _LINES)], drawing)
    if as_json or not drawing.chart:
        terminal.result(found, lambda: table(terminal.out, found))


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


def _bounds(now: datetime, given: PriceHistoryOptions) -> tuple[datetime, datetime]:
    if given.last is not None and (given.start is not None or given.end is not None):
        raise InvalidInput("give --last, or --since and --until", where="--last")
    until = now if given.end is None else filters.moment("--until", given.end, now)
    if given.start is not None:
        return filters.moment("--since", given.start, now), until
    return until - filters.duration("--last", given.last or _PERIOD), until


_CHANGES = 30  # of one series, in a table
_PLACE: tuple[ValueColumn[PricedMachine], ...] = (
    ValueColumn("provider", lambda one: one.provider),
    ValueColumn("region", lambda one: one.region, 2),
    ValueColumn("zone", lambda one: one.zone or "", 3),
    ValueColumn("machine type", lambda one: one.instance_type, 5),
    ValueColumn("GPU", lambda one: one.machine),
    ValueColumn("purchase type", lambda one: formats.purchase_type(one.capacity_type, one.term_months), 1),
)


def table(console: Console, found: PriceHistoryList) -> Iterator[RenderableType]:
    """One row per series; if only one series matches, also each of its changes."""
    span = f"{formats.moment(found.since)} to {formats.moment(found.until)}"
    if not found.series:
        yield Text(_nothing(found, span), style="dim")
        return

    def note(one: PriceSeries) -> Text:
        if one.reference:
            return Text("ref", style="dim")
        if one.ended is not None:
            return Text(f"ended {formats.age(found.as_of - one.ended)} ago", style="yellow")
        age = found.as_of - one.as_of
        if one.max_age_seconds is not None and age > one.max_age_seconds:
            return Text(f"last seen {formats.age(age)} ago", style="yellow")
        return Text("" if one.count else "per machine-hour", style="dim")

    def rate(title: str, price: Callable[[PriceSeries], Money | None], rank: int = 0) -> ValueColumn[PriceSeries]:
        return ValueColumn(title, lambda one: formats.rate(one.per_unit(price(one))), rank, "right")

    columns: tuple[ValueColumn[PriceSeries], ...] = (
        *_PLACE,
        rate("$/GPU-h", lambda one: one.last_price_per_hour),
        ValueColumn("change", lambda one: _change(one.first_price_per_hour, one.last_price_per_hour), align="right"),
        rate("lowest", lambda one: one.lowest_price_per_hour, 4),
        rate("highest", lambda one: one.highest_price_per_hour, 4),
        rate("mean", lambda one: one.mean_price_per_hour, 6),
        ValueColumn("changes", lambda one: f"{one.price_changes:,}", 8, "right"),
        ValueColumn(
            "availability",
            lambda one: "" if one.available_part is None else formats.percent(one.available_part),
            7,
            "right",
        ),
        ValueColumn("source", lambda one: one.source, 9),
        ValueColumn("note", note),
    )
    built = listing(console, columns, found.series)
    yield built
    if len(found.series) == found.matching == 1:
        yield _changes(console, found.series[0], found.since)
    shown = len(found.series)
    unpriced = f"; {found.unpriced:,} without a price in this period" if found.unpriced else ""
    tail = "" if shown + found.unpriced == found.matching else "; use --limit to show more"
    yield Text(
        f"{shown:,} of {formats.plural(found.matching, 'series', 'series')} shown, {span}{unpriced}{tail}", style="dim"
    )
    if "availability" not in built.hidden and any(one.available_part is not None for one in found.series):
        told = "availability: share of the period in which the provider reported the capacity as available"
        yield Text(told, style="dim")


def _change(first: Money | None, last: Money | None) -> Text:
    if not first or last is None:
        return Text(formats.NOTHING)
    part = last.micros / first.micros - 1
    return Text(f"{part:+.1%}" if part else "0 %", style="red" if part > 0 else "green" if part < 0 else "dim")


def _changes(console: Console, one: PriceSeries, start: datetime) -> RenderableType:
    columns = (
        Column("from"),
        Column("duration", 2, align="right"),
        Column("$/GPU-h", align="right"),
        Column("$/h", 1, align="right"),
        Column("change", align="right"),
    )
    cells: list[list[str | Text]] = []
    before: Money | None = None
    for stretch in one.stretches(start):
        change = _change(before, stretch.price) if before is not None and stretch.price is not None else Text("")
        length = formats.length(stretch.end - stretch.start)
        shown = formats.rate(one.per_unit(stretch.price)) if stretch.price is not None else "not offered"
        cells.append([formats.moment(stretch.start), length, shown, formats.rate(stretch.price), change])
        before = stretch.price if stretch.price is not None else before
    return fitting(console, columns, cells[-_CHANGES:])


def _nothing(found: PriceHistoryList, span: str) -> str:
    if found.began is None:
        return "no prices are known yet; run `gpubroker prices poll`"
    if found.until <= found.began:
        return f"no prices are known for {span}: the first poll of this store was {formats.moment(found.began)}"
    return f"no matching prices are known for {span}; `gpubroker offers` lists the current offers"


def title(gpus: Sequence[str], kinds: Sequence[str]) -> str:
    """``H100:8 spot``."""
    return f"{', '.join(gpus) or 'Prices'} {' or '.join(kinds)}".strip()


def chart(found: PriceHistoryList, about: str, most: int) -> Chart:
    """The cheapest ``most`` series as lines, in USD per GPU-hour (per hour of machines without)."""
    chosen = found.series[:most]
    note = f"The cheapest {len(chosen)} of {found.matching} series. " if len(chosen) < found.matching else ""
    return Chart(
        title=f"{about}, {found.since:%Y-%m-%d} to {found.until:%Y-%m-%d}",
        x_label="time",
        y_label="USD per GPU-hour" if all(one.count for one in chosen) else "USD per GPU-hour (or machine-hour)",
        lines=[_line(one, name, found.since) for one, name in zip(chosen, _names(chosen), strict=True)],
        note=f"{note}Prices as recorded; a gap means not offered or not known.",
    )


def _names(chosen: Sequence[PriceSeries]) -> list[str]:
    """The shortest names that distinguish the lines."""
    machines = len({one.machine for one in chosen}) > 1
    short = [_name(one, machines) for one in chosen]
    again = Counter(short)
    return [f"{name} by {one.source}" if again[name] > 1 else name for one, name in zip(chosen, short, strict=True)]


def _name(one: PriceSeries, with_machine: bool) -> str:
    kind = formats.purchase_type(one.capacity_type, one.term_months)
    machine = [one.machine] if with_machine else []
    reference = ["(reference)"] if one.reference else []
    return " ".join([one.provider, one.zone or one.region, one.instance_type, *machine, kind, *reference])


def _line(one: PriceSeries, name: str, start: datetime) -> Line:
    from broker.core.values.money import MICROS_PER_USD

    stretches = one.stretches(start)
    times = [stretch.start for stretch in stretches]
    units = [one.per_unit(stretch.price) for stretch in stretches]
    values = [None if price is None else price.micros / MICROS_PER_USD for price in units]
    if stretches and stretches[-1].end > stretches[-1].start:
        times.append(stretches[-1].end)
        values.append(values[-1])
    return Line(name, times, values, step=True)


PRUNE_EXAMPLES = examples("gpubroker prices prune --keep 400d --dry-run", "gpubroker prices prune --keep 400d")


def prune(
    context: typer.Context,
    keep: Annotated[str, typer.Option(metavar="TIME", help="History to keep: 1d or more.")] = "400d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete price changes and polls older than --keep.

    Prices in force at the cut-off time are kept, and so is every price that a launched attempt refers to.
    """
    from datetime import timedelta

    from broker.app.results.price_history import PrunedPriceHistory
    from broker.cli.render.formats import moment, plural
    from broker.core.errors import InvalidInput

    kept = filters.time_span("--keep", keep)
    if kept < timedelta(days=1):
        raise InvalidInput(f"expected 1d or more, because planning needs some history; got {keep}", where="--keep")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - kept
    done = PrunedPriceHistory.of(broker.store.market.prune(before, dry_run=dry_run), before, dry_run=dry_run)
    signals, polls = plural(done.signal_changes, "score or rate change"), plural(done.poll_runs, "poll")
    counts = f"{plural(done.price_changes, 'price change')}, {signals}, {polls}"
    said = [f"{'Would delete' if dry_run else 'Deleted'}, older than {moment(before)}: {counts}."]
    if done.protected:
        said.append(f"{plural(done.protected, 'older price change')} kept because launched attempts refer to them.")
    terminal.result(done, lambda: said)


IMPORT_EXAMPLES = examples(
    "gpubroker prices import vms.csv --provider aws",
    "gpubroker prices import quote.csv --provider acme --dated 2026-11-01 --json",
)


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Price table with a header: CSV, UTF-8.")],
    provider: Annotated[str, typer.Option("--provider", "-p", help="Provider of these prices.")],
    dated: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Date of the prices: 2026-11-01, 2026-11-01T12:00Z or 7d (ago). Default: the file's time.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import a price catalog of one provider: SkyPilot's vms.csv, a gpuhunt file, or columns as in `offers --json`.

    Imported prices carry the file's date and age like live prices: once stale, they are shown but not used for
    launches. A newer file of the same provider replaces the earlier import. Files of several dates, imported oldest
    first, become the history that `prices history` reads.
    """
    from broker.app.market.imports import import_catalogue

    terminal = Terminal.of(context)
    broker = terminal.broker()
    at = None if dated is None else filters.moment("--dated", dated, broker.clock.now())
    done = import_catalogue(broker, file, provider, at)
    terminal.result(done, lambda: _told(done))
    if done.meant:
        terminal.say(f"note: {done.provider!r} is a new provider; {done.meant}")


def _told(done: ImportedPrices) -> Iterator[Text]:
    from rich.text import Text

    from broker.cli.render.formats import age, moment, plural

    counts = f"{plural(done.offers_seen, 'offer')}, {done.offers_changed:,} changed"
    yield Text.assemble((f"{done.provider}: ", "bold"), f"{counts} (layout {done.layout})")
    whence = "the file's time" if done.as_of_from == "file" else "--dated"
    dated = f"  as of {moment(done.as_of)}, from {whence}, {age(done.age_seconds)} ago"
    yield Text(f"{dated}; source {', '.join(done.sources)}", style="dim")
    if done.offers_stale:
        stale = f"  {plural(done.offers_stale, 'offer')} too old for launches: shown as stale until a newer import"
        yield Text(stale, style="yellow")
    if done.offers_doubted:
        hint = "gpubroker offers --where price_kind=doubted"
        doubted = f"  {plural(done.offers_doubted, 'offer')} in doubt, not used for launches: {hint}"
        yield Text(doubted, style="yellow")
    for reason, count in sorted(done.rows_skipped.items(), key=lambda item: -item[1]):
        yield Text(f"  {plural(count, 'row')} skipped, {reason}: {done.samples[reason]}", style="yellow")
