"""AWS's bulk price list: on-demand prices and reserved terms of one region, without a login.

A CSV file of several hundred megabytes per region, parsed while it arrives, with a few hundred kilobytes in memory.
``as_of`` is the time of the download, not of the publication: the file at ``current`` is the one in force. If the
server says that it is as an earlier poll read it, nothing is downloaded: that poll's rows hold, as of now.
Layout: AWS Price List user guide, "Reading the service price list files".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from broker.core.errors import Malformed
from broker.core.market.offers import Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.list_file import ListFiles, check_header
from providers.aws.products import Dimension, Term, is_plain, key, read_product
from providers.aws.settings import AwsSettings
from providers.rows import OfferRows, RowRejected, short

SOURCE = "aws-price-list"

_NEEDED = ("sku", "offertermcode", "termtype", "unit", "priceperunit", "currency", "instancetype", "operatingsystem",
           "tenancy", "capacitystatus", "preinstalledsw")  # fmt: skip
# Lines without accelerators, or of an operating system or tenancy that is not read here.
_GPU_TYPE = re.compile(rb'"(?:p\d|g\d|gr\d|trn\d|inf\d|dl\d|f\d|vt\d)[a-z0-9-]*\.', re.IGNORECASE).search
_IRRELEVANT = re.compile(rb'"(?:Windows|RHEL|SUSE|Ubuntu Pro|Red Hat Enterprise Linux with HA|Dedicated|Host)"').search
_STORED_ATTRIBUTES = ("instancetype", "regioncode", "marketoption")


@dataclass(slots=True)
class _Product:
    attributes: Mapping[str, str]
    terms: dict[str, Term] = field(default_factory=dict)


class PriceList:
    """The lists of all regions; one object may be used repeatedly."""

    def __init__(self, settings: AwsSettings, clock: Clock) -> None:
        self._settings = settings
        self._files = ListFiles(settings, clock, "price_list_url")

    def offers(self, region: str) -> OfferRows:
        """The offers of the region's list. Raises what `ListFiles.read` raises."""
        return self._files.read(self._settings.price_list(region), lambda: _Reader(region))


class _Reader:
    """Parses the lines of one list and keeps the relevant ones."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._columns: dict[str, int] = {}
        self._width = 0
        self._seen = False
        self._products: dict[str, _Product] = {}
        self._skipped: list[SkippedRow] = []

    def line(self, raw: bytes) -> None:
        # Most lines are about something else; to see that takes a tenth of the time that splitting them takes. An empty
        # cell may be where "Linux" or "Shared" was, so a line with accelerators is looked at closely; so is a cut one.
        if self._columns:
            self._seen = True
            is_irrelevant = not (b"Linux" in raw and b"Shared" in raw) and (not _GPU_TYPE(raw) or _IRRELEVANT(raw))
            if is_irrelevant and raw.count(b'","') >= self._width - 1:
                return
        try:
            row = next(csv.reader((raw.decode("utf-8", "replace").replace("\0", ""),)), [])
        except csv.Error as error:
            self._skip(f"not CSV: {error}")
            return
        if not self._columns:
            names = [key(name) for name in row]
            if "sku" in names:
                self._columns = {name: index for index, name in reversed(list(enumerate(names)))}
                self._width = len(row)
        elif len(row) != self._width:
            self._skip(f"{len(row)} columns, not {self._width}: {','.join(row[:3])}")
        else:
            self._row(row)

    def _row(self, row: list[str]) -> None:
        attributes = _Row(row, self._columns, self._region)
        try:
            if not is_plain(attributes):
                return
            if attributes.get("regioncode", "") != self._region:
                raise RowRejected(
                    "other_region", f"in the list of {self._region}: {short(attributes.get('regioncode', ''))}"
                )
        except RowRejected as error:
            self._skipped.append(error.skipped)
            return
        product = self._products.get(row[self._columns["sku"]])
        if product is None:
            stored_attributes = {name: attributes.get(name, "") for name in _STORED_ATTRIBUTES}
            product = self._products[row[self._columns["sku"]]] = _Product(stored_attributes)
        term = product.terms.setdefault(
            attributes.get("offertermcode", ""),
            Term(
                kind=attributes.get("termtype", ""),
                effective=attributes.get("effectivedate", ""),
                length=attributes.get("leasecontractlength", ""),
                option=attributes.get("purchaseoption", ""),
                offering_class=attributes.get("offeringclass", ""),
            ),
        )
        term.dimensions.append(
            Dimension(attributes.get("unit", ""), attributes.get("priceperunit", ""), attributes.get("currency", ""))
        )

    def check(self, where: str) -> None:
        """Raises `Malformed` if the file was not a price list."""
        check_header(self._columns, _NEEDED, "price list", where)
        if not self._seen:
            raise Malformed("a price list without a single product", where=where)

    def rows(self, now: datetime) -> Iterator[Offer | SkippedRow]:
        if all(name in self._columns for name in _NEEDED):
            for product in self._products.values():
                yield from read_product(product.attributes, product.terms.values(), now, SOURCE)
        yield from self._skipped

    def _skip(self, detail: str) -> None:
        self._skipped.append(SkippedRow("malformed_row", f"{self._region}: {detail}"))


class _Row:
    """One line by column name, without a dictionary of its ninety columns. In a list without region codes, all rows are
    of the requested region.
    """

    def __init__(self, values: list[str], columns: Mapping[str, int], region: str) -> None:
        self._values, self._columns, self._region = values, columns, region

    def get(self, name: str, default: str, /) -> str:
        index = self._columns.get(name)
        value = "" if index is None else self._values[index]
        return value or (self._region if name == "regioncode" else default)
