"""Price histories as tables and as charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.price_history import (
    PastOfferList,
    PastOfferResult,
    PricedMachine,
    PriceHistoryList,
    PriceSeries,
)
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import Column, ValueColumn, fitting, listed, listing
from broker.core.market.offers import Availability
from broker.core.values.money import MICROS_PER_USD, Money

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console, RenderableType

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
    stretches = one.stretches(start)
    times = [stretch.start for stretch in stretches]
    units = [one.per_unit(stretch.price) for stretch in stretches]
    values = [None if price is None else price.micros / MICROS_PER_USD for price in units]
    if stretches and stretches[-1].end > stretches[-1].start:
        times.append(stretches[-1].end)
        values.append(values[-1])
    return Line(name, times, values, step=True)


def moment_table(console: Console, found: PastOfferList) -> Iterator[RenderableType]:
    """The offers at a point in time."""
    by = f", as recorded until {formats.moment(found.known_at)}" if found.known_at else ""
    if not found.offers:
        yield Text(f"no offers are known at {formats.moment(found.at)}{by}", style="dim")
        return

    def available(one: PastOfferResult) -> str:
        return "" if one.availability is Availability.UNKNOWN else one.availability.value.replace("_", " ")

    columns: tuple[ValueColumn[PastOfferResult], ...] = (
        *_PLACE,
        ValueColumn("$/GPU-h", lambda one: formats.rate(one.price_per_gpu_hour), align="right"),
        ValueColumn("$/h", lambda one: formats.rate(one.price_per_hour), 3, "right"),
        ValueColumn("available", available, 5),
        ValueColumn("since", lambda one: formats.moment(one.since), 6),
        ValueColumn("recorded", lambda one: formats.moment(one.learned), 7),
        ValueColumn("last seen", lambda one: formats.moment(one.seen), 8),
        ValueColumn("source", lambda one: one.source, 9),
    )
    yield from listed(console, columns, found.offers)
    tail = "" if len(found.offers) == found.matching else "; use --limit to show more"
    yield Text(
        f"{len(found.offers):,} of {found.matching:,} offers at {formats.moment(found.at)} shown{by}{tail}", style="dim"
    )
