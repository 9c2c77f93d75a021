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
from providers.catalogue.layout import About, ColumnLayout, card, offer
from providers.rows import Unfit, name, short, whole

_MOST_MONTHS = 120
_Kind = TypeVar("_Kind", bound=StrEnum)


def _read(cells: Cells, about: About) -> Iterator[Offer | Unfit]:
    if (other := cells.text("provider") or about.provider) != about.provider:
        raise Unfit("other_provider", f"a row of {short(other)}")
    machine, region = name(cells.text("instance_type"), "instance_type"), name(cells.text("region"), "region")
    kind = _of(CapacityType, cells, "capacity_type") or CapacityType.ON_DEMAND
    term = cells.number("term_months")
    if kind is CapacityType.OWNED or (cells.text("money") or "cash") != "cash":
        raise Unfit("not_for_sale", f"{machine}: {kind}, money {cells.text('money') or 'not named'}")
    if (kind is CapacityType.RESERVED) != (term is not None):
        raise Unfit("malformed_row", f"{machine}: {kind}, term_months {short(term)}")
    listed, count = cells.text("accelerator"), cells.count("count")
    if bool(listed) != bool(count):
        raise Unfit("malformed_row", f"{count} accelerators, called {short(listed)}")
    sold = offer(
        about,
        name(cells.text("source").removeprefix("csv:") or "gpubroker", "source"),
        region=region,
        zone=name(cells.text("zone") or region, "zone"),
        instance_type=machine,
        accelerator=card(listed) if listed else None,
        count=count,
        capacity_type=kind,
        price=cells.price("price_per_hour", f"{machine} in {region}, {kind}"),
        cpus=cells.figure("cpus"),
        memory_gib=cells.figure("memory_gib"),
        engine="skypilot" if term is None and cells.text("engine") == "skypilot" else None,
    )
    said = _of(Availability, cells, "availability") or Availability.UNKNOWN
    gone = said in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    reference = cells.flag("reference")
    yield replace(
        sold,
        as_of=_moment(cells.text("as_of"), about),
        term_months=None if term is None else whole(term, "term_months", _MOST_MONTHS),
        interconnect=_of(Interconnect, cells, "interconnect"),
        availability=said,
        unavailable_because=(cells.text("unavailable_because") or "the file says so") if gone else "",
        interruption_rate=cells.figure("interruption_rate"),
        reference=reference,
        max_age=None if reference else sold.max_age,
    )


def _of(kinds: type[_Kind], cells: Cells, column: str) -> _Kind | None:
    text = cells.text(column)
    try:
        return kinds(text) if text else None
    except ValueError as error:
        raise Unfit("malformed_row", f"{column}: {short(text)} is none of {', '.join(kinds)}") from error


def _moment(text: str, about: About) -> datetime:
    """The time of the row's price; the file's date if the row has none."""
    if not text:
        return about.dated
    try:
        found = datetime.fromisoformat(text)
        at = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Unfit("malformed_row", f"as_of is not a time: {short(text)}") from error
    if at > about.now:
        raise Unfit("dated_in_the_future", f"as_of {text}")
    return at


OURS = ColumnLayout(
    name="gpubroker",
    needs=("region", "instance_type", "accelerator", "count", "capacity_type", "price_per_hour"),
    knows=(
        "provider", "zone", "term_months", "availability", "unavailable_because", "interruption_rate", "as_of",
        "source", "engine", "money", "cpus", "memory_gib", "interconnect", "reference",
    ),
    read=_read,
)  # fmt: skip
