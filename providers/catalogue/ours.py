"""gpubroker's own layout: columns named as the fields of ``gpubroker offers --json``, so that its output can be read.

Derived columns (prices per GPU, ages, discounts) are not read. Rows of owned, prepaid and simulated capacity are
skipped: a catalog does not sell them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer
from providers.catalogue.fields import Cells
from providers.catalogue.layout import ColumnLayout, RowContext, card, offer
from providers.rows import RowRejected, name, short, whole

_MAX_MONTHS = 120
_Kind = TypeVar("_Kind", bound=StrEnum)


def _read_row(cells: Cells, context: RowContext) -> Iterator[Offer | RowRejected]:
    if (row_provider := cells.text("provider") or context.provider) != context.provider:
        raise RowRejected("other_provider", f"a row of {short(row_provider)}")
    machine, region = name(cells.text("instance_type"), "instance_type"), name(cells.text("region"), "region")
    kind = _enum_cell(CapacityType, cells, "capacity_type") or CapacityType.ON_DEMAND
    term = cells.number("term_months")
    if kind is CapacityType.OWNED or (cells.text("money") or "cash") != "cash":
        raise RowRejected("not_for_sale", f"{machine}: {kind}, money {cells.text('money') or 'not named'}")
    if (kind is CapacityType.RESERVED) != (term is not None):
        raise RowRejected("malformed_row", f"{machine}: {kind}, term_months {short(term)}")
    accelerator_name, count = cells.text("accelerator"), cells.count("count")
    if bool(accelerator_name) != bool(count):
        raise RowRejected("malformed_row", f"{count} accelerators, called {short(accelerator_name)}")
    row_offer = offer(
        context,
        name(cells.text("source").removeprefix("csv:") or "gpubroker", "source"),
        region=region,
        zone=name(cells.text("zone") or region, "zone"),
        instance_type=machine,
        accelerator=card(accelerator_name) if accelerator_name else None,
        count=count,
        capacity_type=kind,
        price=cells.price("price_per_hour", f"{machine} in {region}, {kind}"),
        cpus=cells.figure("cpus"),
        memory_gib=cells.figure("memory_gib"),
        engine="skypilot" if term is None and cells.text("engine") == "skypilot" else None,
    )
    availability = _enum_cell(Availability, cells, "availability") or Availability.UNKNOWN
    is_unavailable = availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    reference = cells.flag("reference")
    yield replace(
        row_offer,
        as_of=_price_time(cells.text("as_of"), context),
        term_months=None if term is None else whole(term, "term_months", _MAX_MONTHS),
        interconnect=_enum_cell(Interconnect, cells, "interconnect"),
        availability=availability,
        unavailable_because=(cells.text("unavailable_because") or "the file says so") if is_unavailable else "",
        interruption_rate=cells.figure("interruption_rate"),
        reference=reference,
        max_age=None if reference else row_offer.max_age,
    )


def _enum_cell(kinds: type[_Kind], cells: Cells, column: str) -> _Kind | None:
    text = cells.text(column)
    try:
        return kinds(text) if text else None
    except ValueError as error:
        raise RowRejected("malformed_row", f"{column}: {short(text)} is none of {', '.join(kinds)}") from error


def _price_time(text: str, context: RowContext) -> datetime:
    """The time of the row's price; the file's date if the row has none."""
    if not text:
        return context.dated
    try:
        parsed = datetime.fromisoformat(text)
        time = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RowRejected("malformed_row", f"as_of is not a time: {short(text)}") from error
    if time > context.now:
        raise RowRejected("dated_in_the_future", f"as_of {text}")
    return time


OURS = ColumnLayout(
    name="gpubroker",
    needs=("region", "instance_type", "accelerator", "count", "capacity_type", "price_per_hour"),
    knows=(
        "provider", "zone", "term_months", "availability", "unavailable_because", "interruption_rate", "as_of",
        "source", "engine", "money", "cpus", "memory_gib", "interconnect", "reference",
    ),
    read=_read_row,
)  # fmt: skip
