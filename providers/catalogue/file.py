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
from providers.catalogue.layout import About, ColumnLayout, card, offer, whole_or_part
from providers.catalogue.ours import OURS
from providers.catalogue.skypilot import SKYPILOT
from providers.rows import Unfit, distinct, name, short

# gpuhunt's catalog files (versions 1 to 3): a row is a machine in one place with one capacity type.
#
# Pitfalls: Google's places are zones, all others regions; only the memory distinguishes an A100 from an A100-80GB; a
# TPU is ``tpu-v5p-8`` in old files, and ``v5p-8`` of the vendor ``google`` in new ones.
_GOOGLE_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
# The clouds for which gpuhunt and SkyPilot use the same names of machines.
_STARTED_BY_SKYPILOT = ("aws", "azure", "gcp", "oci")


def _read(cells: Cells, about: About) -> Iterator[Offer | Unfit]:
    machine, place = name(cells.text("instance_name"), "instance_name"), name(cells.text("location"), "location")
    zone = _GOOGLE_ZONE.fullmatch(place) if about.provider == "gcp" else None
    kind = CapacityType.SPOT if cells.flag("spot") else CapacityType.ON_DEMAND
    listed, count = cells.text("gpu_name"), cells.count("gpu_count")
    if count and not listed:
        raise Unfit("malformed_row", f"{machine}: {count} accelerators without a name")
    names = [f"tpu-{listed}", listed] if cells.text("gpu_vendor").lower() == "google" else [listed]
    memory = cells.figure("gpu_memory")
    found = whole_or_part(card(*names, memory_gib=memory, machine=machine), memory) if count else None
    yield offer(
        about,
        "gpuhunt",
        region=zone[1] if zone else place,
        zone=place,
        instance_type=machine,
        accelerator=found,
        count=count,
        capacity_type=kind,
        price=cells.price("price", f"{machine} in {place}, {kind}"),
        cpus=cells.figure("cpu"),
        memory_gib=cells.figure("memory"),
        engine="skypilot" if about.provider in _STARTED_BY_SKYPILOT else None,
    )


GPUHUNT = ColumnLayout(
    name="gpuhunt",
    needs=("instance_name", "location", "price", "gpu_count", "gpu_name", "spot"),
    knows=("cpu", "memory", "gpu_memory", "gpu_vendor"),
    read=_read,
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
        self._about = About(provider, dated, now)
        with self._open() as text:
            header = next(self._rows(text), None)
        if header is None:
            raise InvalidInput("the file is empty: no header, no rows", where=str(file))
        if len(header) == 1 and (other := next((mark for mark in ";\t|" if mark in header[0]), None)):
            raise InvalidInput(
                f"line 1: columns are separated by {other!r}; expected commas",
                where=str(file),
                hint="save it as CSV with commas, and with points in numbers",
                problems=[Problem(1, 0, "", f"{other!r} where commas were expected")],
            )
        self._columns = [column.strip().lower() for column in header]
        self._refuse_foreign(header)
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
        wide = len(self._columns)
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
                    raise self._no_text(error) from error
                if row is None:
                    break
                if not row:
                    continue
                number += 1
                line = rows.line_num
                if len(row) != wide:
                    yield SkippedRow("malformed_row", f"line {line}: {len(row)} cells under {wide} columns")
                    continue
                self._refuse_currency(row, line)
                yield from self._of(Cells(dict(zip(self._columns, row, strict=True))), line)
        if not number:
            raise InvalidInput("the file has a header and no rows", where=str(self.file))

    def _of(self, cells: Cells, line: int) -> Iterator[Offer | SkippedRow]:
        try:
            for found in self._layout.read(cells, self._about):
                yield SkippedRow(found.reason, f"line {line}: {found.detail}") if isinstance(found, Unfit) else found
        except Unfit as error:
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
            raise self._no_text(error) from error
        except csv.Error as error:
            raise InvalidInput(f"the header cannot be read: {error}", where=str(self.file)) from error

    def _no_text(self, error: UnicodeDecodeError) -> InvalidInput:
        return InvalidInput(
            f"not UTF-8 text: {error.reason}",
            where=str(self.file),
            hint="unpack it if it is compressed, save it as CSV if it is a spreadsheet",
        )

    def _find_layout(self, header: Sequence[str]) -> ColumnLayout:
        """The layout whose required columns are all present. Raises `InvalidInput`, which names the nearest layout."""
        there = set(self._columns)

        def missing(layout: ColumnLayout) -> list[str]:
            return [column for column in layout.needs if column.lower() not in there]

        nearest = min(LAYOUTS, key=lambda layout: len(missing(layout)) / len(layout.needs))
        if not missing(nearest):
            if len(there) < len(self._columns):
                twice = sorted({column for column in self._columns if self._columns.count(column) > 1})
                raise InvalidInput(f"line 1: duplicate columns: {', '.join(map(repr, twice))}", where=str(self.file))
            return nearest
        known = {column.lower() for column in (*nearest.needs, *nearest.knows)}
        spare = [column for column in header if column.strip().lower() not in known]
        problems = [
            Problem(1, 0, column, f"this column is missing{did_you_mean(column, spare)}") for column in missing(nearest)
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

    def _refuse_foreign(self, header: Sequence[str]) -> None:
        for column in header:
            if found := _FOREIGN_PRICE.search(column):
                raise self._foreign(f"the column {column!r} is in {found[1].upper()}", 1)

    def _refuse_currency(self, row: Sequence[str], line: int) -> None:
        if self._currency is not None and row[self._currency].strip().upper() not in ("USD", "US$", "$", ""):
            raise self._foreign(f"a price in {short(row[self._currency].strip())}", line)

    def _foreign(self, what: str, line: int) -> InvalidInput:
        return InvalidInput(
            f"line {line}: {what}, and prices are compared in US dollars",
            where=str(self.file),
            hint="convert the prices to USD, and put the date and the exchange rate in the file name",
            problems=[Problem(line, 0, "", what)],
        )
