"""`gpubroker prices history`, `import` and `prune`: recorded prices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.drawing import Drawing, draw
from broker.cli.filters import RowFilter
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.formats import age, moment, plural
from broker.cli.render.tables import Column, ValueColumn, build_cell_table, build_table
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.values.provider_names import provider_name

if TYPE_CHECKING:
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.market.price_documents import ImportedPrices, PricedMachine, PriceHistoryList, PriceSeries
    from broker.core.values.money import Money

EXAMPLES = examples(
    "gpubroker prices history --gpu H100:8 --last 7d",
    "gpubroker prices history --gpu H100:8 --where 'capacity_type=spot,region=us-*' --chart",
    "gpubroker prices history --gpu A100-80GB --from 2026-11-01 --to 2026-11-15 --chart",
)
_MAX_ROWS, _MAX_SERVER_ROWS = 30, 100  # a server shows no more
_MAX_LINES = 8  # more lines in one chart cannot be distinguished
_DEFAULT_PERIOD = "30d"
_SERIES_FILTER = RowFilter(
    provider=completion.providers,
    region=completion.regions,
    instance_type=completion.instance_types,
    capacity_type=completion.capacity_types,
)


@dataclass(frozen=True)
class PriceHistoryOptions:
    """The options of `history`."""

    gpu: filters.GpuOption = None
    where: Annotated[list[str] | None, _SERIES_FILTER.option] = None
    start: Annotated[
        str | None,
        typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 2026-11-01, or 7d (ago)."),
    ] = None
    end: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="End of the period. Default: now.")
    ] = None
    last: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Length of the period up to now. Default: {_DEFAULT_PERIOD}.")
    ] = None
    limit: filters.LimitOption = None


@expand_options
def history(context: typer.Context, given: PriceHistoryOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Show how prices changed: one row per series, cheapest first. If only one series matches, also each change.

    A series is the prices of one pool from one source; a chart shows the eight cheapest. Times without a zone are local
    times. Only recorded prices are known, so poll regularly with `gpubroker serve` or `gpubroker prices poll`. A server
    shows at most 100 series.
    """
    from broker.app.market.offer_rows import OfferFilter

    terminal = Terminal.of(context)
    offer_filter = OfferFilter.of({"gpu": given.gpu, **_SERIES_FILTER.read(given.where)}, gpus_from="--gpu")
    price_history = _load_history(terminal, offer_filter, given)
    heading = chart_title(given.gpu or [], sorted(offer_filter.capacity_types))
    draw(terminal, lambda: [history_chart(price_history, heading, _MAX_LINES)], drawing)
    if as_json or not drawing.chart:
        terminal.result(price_history, lambda: history_lines(terminal.out, price_history))


EXPORT_EXAMPLES = examples(
    "gpubroker prices export november.parquet --since 2026-11-01 --until 2026-12-01",
    "gpubroker prices export h100.csv --gpu H100:8 --where provider=aws --last 90d",
)


@expand_options
def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new .csv or .parquet file.")],
    given: PriceHistoryOptions,
    as_json: AsJson = False,
) -> None:
    """Write recorded prices to a table for notebooks: one row for each price of a series, with the time from and to
    which it is known to hold (UTC), USD per hour of the machine and of a GPU.

    Times without a row: not offered, or not known. Parquet needs the extra `parquet`. A server exports at most 100
    series.
    """
    from broker.app.billing.focus import check_output_path, write_table
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.market.price_documents import PRICE_COLUMNS, price_rows

    terminal = Terminal.of(context)
    check_output_path(file)
    offer_filter = OfferFilter.of({"gpu": given.gpu, **_SERIES_FILTER.read(given.where)}, gpus_from="--gpu")
    price_history = _load_history(terminal, offer_filter, given, whole=True)
    rows = list(price_rows(price_history))
    write_table(file, PRICE_COLUMNS, rows)
    left_out = price_history.matching - price_history.unpriced - len(price_history.series)
    more = f"; {plural(left_out, 'series', 'series')} left out" if left_out > 0 else ""
    series = plural(len(price_history.series), "series", "series")
    terminal.result(price_history, lambda: [f"{plural(len(rows), 'price')} of {series} written to {file}{more}"])


def _load_history(
    terminal: Terminal, offer_filter: OfferFilter, given: PriceHistoryOptions, *, whole: bool = False
) -> PriceHistoryList:
    from broker.app.use_cases.market import WantedMachines, price_history

    start, end = _bounds(terminal.now(), given)
    until = end if given.end or not terminal.through_server else None  # the server's clock may be behind
    all_rows = _MAX_SERVER_ROWS if terminal.through_server else sys.maxsize
    max_rows = given.limit or (all_rows if whole or terminal.as_json else _MAX_ROWS)
    return terminal.ask(price_history, WantedMachines.of(offer_filter, given.gpu), start, until, max_rows)


def _bounds(now: datetime, given: PriceHistoryOptions) -> tuple[datetime, datetime]:
    if given.last is not None and (given.start is not None or given.end is not None):
        raise InvalidInput("give --last, or --since and --until", where="--last")
    end = now if given.end is None else filters.moment_option("--until", given.end, now)
    if given.start is not None:
        return filters.moment_option("--since", given.start, now), end
    return end - filters.duration_option("--last", given.last or _DEFAULT_PERIOD), end


_MAX_CHANGES = 30  # of one series, in a table
_PLACE_COLUMNS: tuple[ValueColumn[PricedMachine], ...] = (
    ValueColumn("provider", lambda row: row.provider),
    ValueColumn("region", lambda row: row.region, 2),
    ValueColumn("zone", lambda row: row.zone or "", 3),
    ValueColumn("machine type", lambda row: row.instance_type, 5),
    ValueColumn("GPU", lambda row: row.machine),
    ValueColumn("purchase type", lambda row: formats.purchase_type(row.capacity_type, row.term_months), 1),
)


def history_lines(console: Console, price_history: PriceHistoryList) -> Iterator[RenderableType]:
    """One row per series; if only one series matches, also each of its changes."""
    span = f"{formats.moment(price_history.since)} to {formats.moment(price_history.until)}"
    if not price_history.series:
        yield Text(_no_prices_text(price_history, span), style="dim")
        return

    def note(series: PriceSeries) -> Text:
        if series.reference:
            return Text("ref", style="dim")
        if series.ended is not None:
            return Text(f"ended {formats.age(price_history.as_of - series.ended)} ago", style="yellow")
        age = price_history.as_of - series.as_of
        if series.max_age_seconds is not None and age > series.max_age_seconds:
            return Text(f"last seen {formats.age(age)} ago", style="yellow")
        return Text("" if series.count else "per machine-hour", style="dim")

    def rate(title: str, price: Callable[[PriceSeries], Money | None], rank: int = 0) -> ValueColumn[PriceSeries]:
        return ValueColumn(title, lambda row: formats.rate(row.per_unit(price(row))), rank, "right")

    columns: tuple[ValueColumn[PriceSeries], ...] = (
        *_PLACE_COLUMNS,
        rate("$/GPU-h", lambda series: series.last_price_per_hour),
        ValueColumn(
            "change", lambda row: _change_text(row.first_price_per_hour, row.last_price_per_hour), align="right"
        ),
        rate("lowest", lambda series: series.lowest_price_per_hour, 4),
        rate("highest", lambda series: series.highest_price_per_hour, 4),
        rate("mean", lambda series: series.mean_price_per_hour, 6),
        ValueColumn("changes", lambda row: f"{row.price_changes:,}", 8, "right"),
        ValueColumn(
            "availability",
            lambda row: "" if row.available_part is None else formats.percent(row.available_part),
            7,
            "right",
        ),
        ValueColumn("source", lambda row: row.source, 9),
        ValueColumn("note", note),
    )
    series_table = build_table(console, columns, price_history.series)
    yield series_table
    if len(price_history.series) == price_history.matching == 1:
        yield _changes_table(console, price_history.series[0], price_history.since)
    shown_count = len(price_history.series)
    unpriced = f"; {price_history.unpriced:,} without a price in this period" if price_history.unpriced else ""
    tail = "" if shown_count + price_history.unpriced == price_history.matching else "; use --limit to show more"
    yield Text(
        f"{shown_count:,} of {formats.plural(price_history.matching, 'series', 'series')} shown, "
        f"{span}{unpriced}{tail}",
        style="dim",
    )
    if "availability" not in series_table.hidden and any(
        series.available_part is not None for series in price_history.series
    ):
        availability_note = "availability: share of the period in which the provider reported the capacity as available"
        yield Text(availability_note, style="dim")


def _change_text(first: Money | None, last: Money | None) -> Text:
    if not first or last is None:
        return Text(formats.NO_VALUE)
    change = last.micros / first.micros - 1
    return Text(f"{change:+.1%}" if change else "0 %", style="red" if change > 0 else "green" if change < 0 else "dim")


def _changes_table(console: Console, series: PriceSeries, start: datetime) -> RenderableType:
    columns = (
        Column("from"),
        Column("duration", 2, align="right"),
        Column("$/GPU-h", align="right"),
        Column("$/h", 1, align="right"),
        Column("change", align="right"),
    )
    cells: list[list[str | Text]] = []
    previous_price: Money | None = None
    for stretch in series.stretches(start):
        change = (
            _change_text(previous_price, stretch.price)
            if previous_price is not None and stretch.price is not None
            else Text("")
        )
        length = formats.length(stretch.end - stretch.start)
        price_text = formats.rate(series.per_unit(stretch.price)) if stretch.price is not None else "not offered"
        cells.append([formats.moment(stretch.start), length, price_text, formats.rate(stretch.price), change])
        previous_price = stretch.price if stretch.price is not None else previous_price
    return build_cell_table(console, columns, cells[-_MAX_CHANGES:])


def _no_prices_text(price_history: PriceHistoryList, span: str) -> str:
    if price_history.began is None:
        return "no prices are known yet; run `gpubroker prices poll`"
    if price_history.until <= price_history.began:
        return f"no prices are known for {span}: the first poll of this store was {formats.moment(price_history.began)}"
    return f"no matching prices are known for {span}; `gpubroker offers` lists the current offers"


def chart_title(gpus: Sequence[str], kinds: Sequence[str]) -> str:
    """``H100:8 spot``."""
    return f"{', '.join(gpus) or 'Prices'} {' or '.join(kinds)}".strip()


def history_chart(price_history: PriceHistoryList, heading: str, max_lines: int) -> Chart:
    """The cheapest ``max_lines`` series as lines, in USD per GPU-hour (per hour of machines without)."""
    chosen = price_history.series[:max_lines]
    note = (
        f"The cheapest {len(chosen)} of {price_history.matching} series. "
        if len(chosen) < price_history.matching
        else ""
    )
    return Chart(
        title=f"{heading}, {price_history.since:%Y-%m-%d} to {price_history.until:%Y-%m-%d}",
        x_label="time",
        y_label="USD per GPU-hour" if all(series.count for series in chosen) else "USD per GPU-hour (or machine-hour)",
        lines=[
            _chart_line(series, name, price_history.since)
            for series, name in zip(chosen, _line_names(chosen), strict=True)
        ],
        note=f"{note}Prices as recorded; a gap means not offered or not known.",
    )


def _line_names(chosen: Sequence[PriceSeries]) -> list[str]:
    """The shortest names that distinguish the lines."""
    machines = len({series.machine for series in chosen}) > 1
    short_names = [_series_name(series, machines) for series in chosen]
    name_counts = Counter(short_names)
    return [
        f"{name} by {series.source}" if name_counts[name] > 1 else name
        for series, name in zip(chosen, short_names, strict=True)
    ]


def _series_name(series: PriceSeries, with_machine: bool) -> str:
    kind = formats.purchase_type(series.capacity_type, series.term_months)
    machine = [series.machine] if with_machine else []
    reference = ["(reference)"] if series.reference else []
    return " ".join([series.provider, series.zone or series.region, series.instance_type, *machine, kind, *reference])


def _chart_line(series: PriceSeries, name: str, start: datetime) -> Line:
    from broker.core.values.money import MICROS_PER_USD

    stretches = series.stretches(start)
    times = [stretch.start for stretch in stretches]
    units = [series.per_unit(stretch.price) for stretch in stretches]
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
    kept_time = filters.time_span_option("--keep", keep)
    if kept_time < timedelta(days=1):
        raise InvalidInput(f"expected 1d or more, because planning needs some history; got {keep}", where="--keep")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    cutoff = broker.clock.now() - kept_time
    result = broker.store.market.prune(cutoff, dry_run=dry_run)
    signals, polls = plural(result.signal_changes, "score or rate change"), plural(result.poll_runs, "poll")
    counts = f"{plural(result.price_changes, 'price change')}, {signals}, {polls}"
    lines = [f"{'Would delete' if dry_run else 'Deleted'}, older than {moment(cutoff)}: {counts}."]
    if result.protected:
        lines.append(f"{plural(result.protected, 'older price change')} kept because launched attempts refer to them.")
    terminal.result(result, lambda: lines)


IMPORT_EXAMPLES = examples(
    "gpubroker prices import vms.csv --provider aws",
    "gpubroker prices import quote.csv --provider acme --dated 2026-11-01 --json",
)


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Price table with a header: CSV, UTF-8.")],
    provider: Annotated[
        str, typer.Option("--provider", "-p", parser=provider_name, metavar="NAME", help="Provider of these prices.")
    ],
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
    at = None if dated is None else filters.moment_option("--dated", dated, broker.clock.now())
    imported = import_catalogue(broker, file, provider, at)
    terminal.result(imported, lambda: _import_lines(imported))
    if imported.meant:
        terminal.say(f"note: {imported.provider!r} is a new provider; {imported.meant}")


def _import_lines(imported: ImportedPrices) -> Iterator[Text]:
    counts = f"{plural(imported.offers_seen, 'offer')}, {imported.offers_changed:,} changed"
    yield Text.assemble((f"{imported.provider}: ", "bold"), f"{counts} (layout {imported.layout})")
    date_source = "the file's time" if imported.as_of_from == "file" else "--dated"
    date_text = f"  as of {moment(imported.as_of)}, from {date_source}, {age(imported.age_seconds)} ago"
    yield Text(f"{date_text}; source {', '.join(imported.sources)}", style="dim")
    if imported.offers_stale:
        stale_text = (
            f"  {plural(imported.offers_stale, 'offer')} too old for launches: shown as stale until a newer import"
        )
        yield Text(stale_text, style="yellow")
    if imported.offers_suspicious:
        hint = "gpubroker offers --where price_kind=suspicious"
        suspicious_text = f"  {plural(imported.offers_suspicious, 'offer')} in doubt, not used for launches: {hint}"
        yield Text(suspicious_text, style="yellow")
    for reason, count in sorted(imported.rows_skipped.items(), key=lambda item: -item[1]):
        yield Text(f"  {plural(count, 'row')} skipped, {reason}: {imported.samples[reason]}", style="yellow")
