"""A catalog file: its layout, and its rows as offers, read lazily."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from broker.core.errors import InvalidInput, Problem, did_you_mean
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from providers.catalogue.fields import Cells
from providers.catalogue.layout import ColumnLayout, RowContext, card, offer, whole_or_part
from providers.catalogue.ours import OURS
from providers.catalogue.skypilot import SKYPILOT
from providers.rows import RowRejected, distinct, name, short

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
