"""Price histories as tables and as charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.market.price_history import PriceHistories, PriceHistory
from broker.app.results.price_history import unit_price
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import Column, fitted, fitting
from broker.core.market.offers import Availability, Offer
from broker.core.values.money import MICROS_PER_USD, Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.store.records import PastOffer

_CHANGES = 30  # of one series, in a table
_PLACE = (
    Column("provider"),
    Column("region", 2),
    Column("zone", 3),
    Column("machine type", 5),
    Column("GPU"),
    Column("purchase type", 1),
)


def table(console: Console, period: PriceHistories) -> list[RenderableType]:
    """One row per series; if only one series matches, also each of its changes."""
    if not period.histories:
        return [Text(_nothing(period), style="dim")]
    columns = (
        *_PLACE,
        Column("$/GPU-h", align="right"),
        Column("change", align="right"),
        Column("lowest", 4, align="right"),
        Column("highest", 4, align="right"),
        Column("mean", 6, align="right"),
        Column("changes", 8, align="right"),
        Column("availability", 7, align="right"),
        Column("source", 9),
        Column("note"),
    )
    built = fitting(console, columns, [_cells(one, period.now) for one in period.histories])
    alone = [_changes(console, period.histories[0])] if len(period.histories) == period.matching == 1 else []
    return [built, *alone, *_footer(period, built.hidden)]


def _cells(one: PriceHistory, now: datetime) -> list[str | Text]:
    known = [unit_price(one.offer, price) for price in one.known]
    mean = unit_price(one.offer, one.mean)
    ordered = sorted((price for price in known if price is not None), key=lambda price: price.micros)
    return [
        *_place(one.offer),
        formats.rate(known[-1] if known else None),
        _change(one.known),
        formats.rate(ordered[0] if ordered else None),
        formats.rate(ordered[-1] if ordered else None),
        formats.rate(mean),
        f"{one.changes:,}",
        "" if one.available_part is None else formats.percent(one.available_part),
        one.offer.source,
        _note(one, now),
    ]


def _place(offer: Offer) -> list[str | Text]:
    kind = formats.purchase_type(offer.capacity_type, offer.term_months)
    return [offer.provider, offer.region, offer.zone or "", offer.instance_type, offer.machine, kind]


def _change(prices: Sequence[Money]) -> Text:
    """From the first price of the period to the last."""
    if not prices or not prices[0].micros:
        return Text(formats.NOTHING)
    part = prices[-1].micros / prices[0].micros - 1
    return Text(f"{part:+.1%}" if part else "0 %", style="red" if part > 0 else "green" if part < 0 else "dim")


def _note(one: PriceHistory, now: datetime) -> Text:
    if one.offer.reference:
        return Text("ref", style="dim")
    if one.ended is not None:
        return Text(f"ended {formats.age(now - one.ended)} ago", style="yellow")
    if one.offer.max_age is not None and now - one.offer.as_of > one.offer.max_age:
        return Text(f"last seen {formats.age(now - one.offer.as_of)} ago", style="yellow")
    return Text("" if one.offer.count else "per machine-hour", style="dim")


def _changes(console: Console, one: PriceHistory) -> RenderableType:
    columns = (
        Column("from"),
        Column("duration", 2, align="right"),
        Column("$/GPU-h", align="right"),
        Column("$/h", 1, align="right"),
        Column("change", align="right"),
    )
    cells: list[list[str | Text]] = []
    before: Money | None = None
    for stretch in one.stretches:
        per_unit = unit_price(one.offer, stretch.price)
        change = _change([before, stretch.price]) if before is not None and stretch.price is not None else Text("")
        length = formats.length(stretch.end - stretch.start)
        shown = formats.rate(per_unit) if stretch.price is not None else "not offered"
        cells.append([formats.moment(stretch.start), length, shown, formats.rate(stretch.price), change])
        before = stretch.price if stretch.price is not None else before
    return fitting(console, columns, cells[-_CHANGES:])


def _footer(period: PriceHistories, hidden: Sequence[str]) -> list[RenderableType]:
    shown = len(period.histories)
    unpriced = f"; {period.unpriced:,} without a price in this period" if period.unpriced else ""
    tail = "" if shown + period.unpriced == period.matching else "; use --limit to show more"
    lines = [
        f"{shown:,} of {formats.plural(period.matching, 'series', 'series')} shown,"
        f" {formats.moment(period.start)} to {formats.moment(period.end)}{unpriced}{tail}",
    ]
    if "availability" not in hidden and any(one.available_part is not None for one in period.histories):
        lines.append("availability: share of the period in which the provider reported the capacity as available")
    return [Text(line, style="dim") for line in lines]


def _nothing(period: PriceHistories) -> str:
    span = f"{formats.moment(period.start)} to {formats.moment(period.end)}"
    if period.began is None:
        return "no prices are known yet; run `gpubroker prices poll`"
    if period.end <= period.began:
        return f"no prices are known for {span}: the first poll of this store was {formats.moment(period.began)}"
    return f"no matching prices are known for {span}; `gpubroker offers` lists the current offers"


def title(gpus: Sequence[str], kinds: Sequence[str]) -> str:
    """``H100:8 spot``."""
    return f"{', '.join(gpus) or 'Prices'} {' or '.join(kinds)}".strip()


def chart(period: PriceHistories, about: str, most: int) -> Chart:
    """The cheapest ``most`` series as lines, in USD per GPU-hour (per hour of machines without)."""
    chosen = period.histories[:most]
    note = f"The cheapest {len(chosen)} of {period.matching} series. " if len(chosen) < period.matching else ""
    return Chart(
        title=f"{about}, {period.start:%Y-%m-%d} to {period.end:%Y-%m-%d}",
        x_label="time",
        y_label="USD per GPU-hour" if all(one.offer.count for one in chosen) else "USD per GPU-hour (or machine-hour)",
        lines=[_line(one, name) for one, name in zip(chosen, _names(chosen), strict=True)],
        note=f"{note}Prices as recorded by this store; a gap means not offered or not known.",
    )


def _names(chosen: Sequence[PriceHistory]) -> list[str]:
    """The shortest names that distinguish the lines."""
    machines = len({one.offer.machine for one in chosen}) > 1
    short = [_name(one.offer, machines) for one in chosen]
    again = Counter(short)
    return [
        f"{name} by {one.offer.source}" if again[name] > 1 else name for one, name in zip(chosen, short, strict=True)
    ]


def _name(offer: Offer, with_machine: bool) -> str:
    kind = formats.purchase_type(offer.capacity_type, offer.term_months)
    machine = [offer.machine] if with_machine else []
    reference = ["(reference)"] if offer.reference else []
    return " ".join([offer.provider, offer.zone or offer.region, offer.instance_type, *machine, kind, *reference])


def _line(one: PriceHistory, name: str) -> Line:
    offer = one.offer
    stretches = one.stretches
    times = [stretch.start for stretch in stretches]
    values = [_dollars(unit_price(offer, stretch.price)) for stretch in stretches]
    if stretches and stretches[-1].end > stretches[-1].start:
        times.append(stretches[-1].end)
        values.append(values[-1])
    return Line(name, times, values, step=True)


def _dollars(price: Money | None) -> float | None:
    return None if price is None else price.micros / MICROS_PER_USD


def moment_table(
    console: Console, shown: Sequence[PastOffer], matching: int, when: datetime, known: datetime | None
) -> list[RenderableType]:
    """The offers at a point in time. ``known``: only what had been recorded by then."""
    by = f", as recorded until {formats.moment(known)}" if known else ""
    if not shown:
        return [Text(f"no offers are known at {formats.moment(when)}{by}", style="dim")]
    columns = (
        *_PLACE,
        Column("$/GPU-h", align="right"),
        Column("$/h", 3, align="right"),
        Column("available", 5),
        Column("since", 6),
        Column("recorded", 7),
        Column("last seen", 8),
        Column("source", 9),
    )
    tail = "" if len(shown) == matching else "; use --limit to show more"
    below = f"{len(shown):,} of {matching:,} offers at {formats.moment(when)} shown{by}{tail}"
    return [*fitted(console, columns, [_past_cells(past) for past in shown]), Text(below, style="dim")]


def _past_cells(past: PastOffer) -> list[str | Text]:
    offer = past.offer
    return [
        *_place(offer),
        formats.rate(offer.price_per_gpu),
        formats.rate(offer.price),
        "" if offer.availability is Availability.UNKNOWN else offer.availability.value.replace("_", " "),
        formats.moment(past.since),
        formats.moment(past.learned),
        formats.moment(past.seen),
        offer.source,
    ]
