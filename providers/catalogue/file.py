"""A catalog file: its layout, and its rows as offers, read lazily.

gpubroker's own layout has columns named as the fields of ``gpubroker offers --json``, so that its output can be read.
Derived columns (prices per GPU, ages, discounts) are not read. Rows of owned, prepaid and simulated capacity are
skipped: a catalog does not sell them.

In SkyPilot's ``vms.csv`` (skypilot-catalog, schema 5 and later), a row is a machine in a zone, with both its prices.
Pitfalls: the on-demand price repeats for every zone; Google's accelerators are priced separately from their machines,
so neither row is the price of something that can be rented; a part of a card counts as 0.125 (``L4-1of8`` here);
RunPod's ``H100`` is the PCIe card; Vast's memory of one card is that of all cards of the machine.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TextIO, TypeVar

from broker.core.errors import InvalidInput, Problem, did_you_mean
from broker.core.market.accelerators import part_of
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers.catalogue.layout import SKYPILOT_CLOUDS, Cells, ColumnLayout, RowContext, card, offer, whole_or_part
from providers.rows import RowRejected, distinct, name, short, whole

_NAME = re.compile(r"'Name':\s*'([^']{1,60})'")
_MEMORY = re.compile(r"'SizeInMiB':\s*(\d{3,7})\b", re.ASCII)
_TOTAL = re.compile(r"'TotalGpuMemoryInMiB':\s*(\d{3,8})\b", re.ASCII)
_GOOGLE_GPU_HOST = re.compile(r"[ag]\d[a-z]*-")


def _read_skypilot_row(cells: Cells, context: RowContext) -> Iterator[Offer | RowRejected]:
    """The row's offers: on demand without a zone, because a list price applies to the region; spot with the zone."""
    accelerator_name, (count, parts) = cells.text("acceleratorname"), cells.count_or_part("acceleratorcount")
    if bool(accelerator_name) != bool(count):
        raise RowRejected("malformed_row", f"{count} accelerators, called {short(accelerator_name)}")
    type_name = cells.text("instancetype")
    if not type_name and not accelerator_name.lower().startswith("tpu-"):
        raise RowRejected(
            "part_of_a_machine", f"{accelerator_name or 'nothing'}: priced apart from the machine it is in"
        )
    if not accelerator_name and context.provider == "gcp" and _GOOGLE_GPU_HOST.match(type_name):
        raise RowRejected("part_of_a_machine", f"{type_name}: the price without its accelerators")
    machine = name(type_name or accelerator_name, "InstanceType")
    region = name(cells.text("region"), "Region")
    zone = name(cells.text("availabilityzone") or region, "AvailabilityZone")
    card_name = _card(accelerator_name, cells.text("gpuinfo"), machine, count) if accelerator_name else None
    if card_name is not None and parts > 1:
        card_name = part_of(card_name, parts)
    if not cells.text("price") and not cells.text("spotprice"):
        raise RowRejected("no_price", f"{machine} in {region}: no price")
    for kind, column, place in ((CapacityType.ON_DEMAND, "price", None), (CapacityType.SPOT, "spotprice", zone)):
        if not cells.text(column):
            continue
        try:
            yield offer(
                context,
                "skypilot",
                region=region,
                zone=place,
                instance_type=machine,
                accelerator=card_name,
                count=count,
                capacity_type=kind,
                price=cells.price(column, f"{machine} in {region}, {kind}"),
                cpus=cells.figure("vcpus"),
                memory_gib=cells.figure("memorygib"),
                engine="skypilot" if context.provider in SKYPILOT_CLOUDS else None,
            )
        except RowRejected as error:
            yield error


def _card(accelerator_name: str, info: str, machine: str, count: int) -> str:
    """The column's name, made more exact by the name and the memory in ``GpuInfo`` (a Python literal)."""
    memory, total, description = _MEMORY.search(info), _TOTAL.search(info), _NAME.search(info)
    sharing = count if memory and total and memory[1] == total[1] else 1
    gib = int(memory[1]) / 1024 / sharing if memory else None
    return card(accelerator_name, memory_gib=gib, description=description[1] if description else "", machine=machine)


SKYPILOT = ColumnLayout(
    name="skypilot",
    needs=("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"),
    knows=("vCPUs", "MemoryGiB", "GpuInfo", "SpotPrice", "AvailabilityZone"),
    read=_read_skypilot_row,
)


_MAX_MONTHS = 120
_Kind = TypeVar("_Kind", bound=StrEnum)


def _read_own_row(cells: Cells, context: RowContext) -> Iterator[Offer | RowRejected]:
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
    read=_read_own_row,
)  # fmt: skip


# gpuhunt's catalog files (versions 1 to 3): a row is a machine in one place with one capacity type.
#
# Pitfalls: Google's places are zones, all others regions; only the memory distinguishes an A100 from an A100-80GB; a
# TPU is ``tpu-v5p-8`` in old files, and ``v5p-8`` of the vendor ``google`` in new ones.
_GOOGLE_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
# The clouds for which gpuhunt and SkyPilot use the same names of machines.
_SKYPILOT_CLOUDS = ("aws", "azure", "gcp", "oci")


def _read_row(cells: Cells, context: RowContext) -> Iterator[Offer | RowRejected]:
    machine, place = name(cells.text("instance_name"), "instance_name"), name(cells.text("location"), "location")
    zone = _GOOGLE_ZONE.fullmatch(place) if context.provider == "gcp" else None
    kind = CapacityType.SPOT if cells.flag("spot") else CapacityType.ON_DEMAND
    gpu_name, count = cells.text("gpu_name"), cells.count("gpu_count")
    if count and not gpu_name:
        raise RowRejected("malformed_row", f"{machine}: {count} accelerators without a name")
    names = [f"tpu-{gpu_name}", gpu_name] if cells.text("gpu_vendor").lower() == "google" else [gpu_name]
    memory = cells.figure("gpu_memory")
    accelerator_name = whole_or_part(card(*names, memory_gib=memory, machine=machine), memory) if count else None
    yield offer(
        context,
        "gpuhunt",
        region=zone[1] if zone else place,
        zone=place,
        instance_type=machine,
        accelerator=accelerator_name,
        count=count,
        capacity_type=kind,
        price=cells.price("price", f"{machine} in {place}, {kind}"),
        cpus=cells.figure("cpu"),
        memory_gib=cells.figure("memory"),
        engine="skypilot" if context.provider in _SKYPILOT_CLOUDS else None,
    )


GPUHUNT = ColumnLayout(
    name="gpuhunt",
    needs=("instance_name", "location", "price", "gpu_count", "gpu_name", "spot"),
    knows=("cpu", "memory", "gpu_memory", "gpu_vendor"),
    read=_read_row,
)


LAYOUTS = (SKYPILOT, GPUHUNT, OURS)
_CURRENCY_COLUMNS = frozenset({"currency", "currency_code", "currencycode", "price_currency", "pricecurrency"})
_FOREIGN_PRICE = re.compile(
    r"(?i:price|cost|rate).*?(?:[_\W]|(?<=[a-z]))((?i:eur|gbp|chf|jpy|cny|inr|cad|aud|sek|nok|dkk|pln|brl|krw)|€|£|¥)(?![a-z])"
)


class CatalogueFile:
    """A file of prices of one provider, valid at ``dated``.

    The header determines the layout. A file can be read repeatedly; one row at a time is in memory.
    """

    name = "csv"

    def __init__(self, file: Path, *, provider: str, dated: datetime, now: datetime) -> None:
        """Raises `InvalidInput` for a file that cannot be read, is empty, is in none of the layouts, or prices in
        another currency than USD."""
        self.file = file
        self._about = RowContext(provider, dated, now)
        with self._open() as text:
            header = next(self._rows(text), None)
        if header is None:
            raise InvalidInput("the file is empty: no header, no rows", where=str(file))
        if len(header) == 1 and (separator := next((mark for mark in ";\t|" if mark in header[0]), None)):
            raise InvalidInput(
                f"line 1: columns are separated by {separator!r}; expected commas",
                where=str(file),
                hint="save it as CSV with commas, and with points in numbers",
                problems=[Problem(1, 0, "", f"{separator!r} where commas were expected")],
            )
        self._columns = [column.strip().lower() for column in header]
        self._reject_foreign_columns(header)
        self._layout = self._find_layout(header)
        self._currency = next((n for n, column in enumerate(self._columns) if column in _CURRENCY_COLUMNS), None)

    @property
    def layout(self) -> str:
        """The name of the layout it is in."""
        return self._layout.name

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """Every row, whatever the query; an offer with several dates comes several times. Raises `InvalidInput` for a
        price in another currency, or where the file ends before its first row or stops being text."""
        yield from distinct(self._read(), lambda offer: (offer.id, offer.as_of))

    def _read(self) -> Iterator[Offer | SkippedRow]:
        width = len(self._columns)
        with self._open() as text:
            rows = csv.reader(text)
            next(rows)
            number = 0
            while True:
                try:
                    row = next(rows, None)
                except csv.Error as error:
                    yield SkippedRow("malformed_row", f"line {rows.line_num}: {error}")
                    continue
                except UnicodeDecodeError as error:
                    raise self._not_text_error(error) from error
                if row is None:
                    break
                if not row:
                    continue
                number += 1
                line = rows.line_num
                if len(row) != width:
                    yield SkippedRow("malformed_row", f"line {line}: {len(row)} cells under {width} columns")
                    continue
                self._reject_foreign_row(row, line)
                yield from self._of(Cells(dict(zip(self._columns, row, strict=True))), line)
        if not number:
            raise InvalidInput("the file has a header and no rows", where=str(self.file))

    def _of(self, cells: Cells, line: int) -> Iterator[Offer | SkippedRow]:
        try:
            for result in self._layout.read(cells, self._about):
                yield (
                    SkippedRow(result.reason, f"line {line}: {result.detail}")
                    if isinstance(result, RowRejected)
                    else result
                )
        except RowRejected as error:
            yield SkippedRow(error.reason, f"line {line}: {error.detail}")

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        try:
            with self.file.open(encoding="utf-8-sig", newline="") as text:
                yield text
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(self.file)) from error

    def _rows(self, text: TextIO) -> Iterator[list[str]]:
        try:
            yield from (row for row in csv.reader(text) if row)
        except UnicodeDecodeError as error:
            raise self._not_text_error(error) from error
        except csv.Error as error:
            raise InvalidInput(f"the header cannot be read: {error}", where=str(self.file)) from error

    def _not_text_error(self, error: UnicodeDecodeError) -> InvalidInput:
        return InvalidInput(
            f"not UTF-8 text: {error.reason}",
            where=str(self.file),
            hint="unpack it if it is compressed, save it as CSV if it is a spreadsheet",
        )

    def _find_layout(self, header: Sequence[str]) -> ColumnLayout:
        """The layout whose required columns are all present. Raises `InvalidInput`, which names the nearest layout."""
        columns = set(self._columns)

        def missing(layout: ColumnLayout) -> list[str]:
            return [column for column in layout.needs if column.lower() not in columns]

        nearest = min(LAYOUTS, key=lambda layout: len(missing(layout)) / len(layout.needs))
        if not missing(nearest):
            if len(columns) < len(self._columns):
                duplicates = sorted({column for column in self._columns if self._columns.count(column) > 1})
                raise InvalidInput(
                    f"line 1: duplicate columns: {', '.join(map(repr, duplicates))}", where=str(self.file)
                )
            return nearest
        known_columns = {column.lower() for column in (*nearest.needs, *nearest.knows)}
        unknown_columns = [column for column in header if column.strip().lower() not in known_columns]
        problems = [
            Problem(1, 0, column, f"this column is missing{did_you_mean(column, unknown_columns)}")
            for column in missing(nearest)
        ]
        likeness = (
            f"nearest to the layout {nearest.name!r}, but without {', '.join(missing(nearest))}"
            if len(missing(nearest)) < len(nearest.needs)
            else "in no known layout"
        )
        raise InvalidInput(
            f"line 1: {likeness}; found {short(', '.join(header))}",
            where=str(self.file),
            hint="; ".join(f"{layout.name}: {', '.join(layout.needs)}" for layout in LAYOUTS),
            problems=problems,
        )

    def _reject_foreign_columns(self, header: Sequence[str]) -> None:
        for column in header:
            if match := _FOREIGN_PRICE.search(column):
                raise self._currency_error(f"the column {column!r} is in {match[1].upper()}", 1)

    def _reject_foreign_row(self, row: Sequence[str], line: int) -> None:
        if self._currency is not None and row[self._currency].strip().upper() not in ("USD", "US$", "$", ""):
            raise self._currency_error(f"a price in {short(row[self._currency].strip())}", line)

    def _currency_error(self, reason: str, line: int) -> InvalidInput:
        return InvalidInput(
            f"line {line}: {reason}, and prices are compared in US dollars",
            where=str(self.file),
            hint="convert the prices to USD, and put the date and the exchange rate in the file name",
            problems=[Problem(line, 0, "", reason)],
        )
