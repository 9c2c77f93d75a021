"""AWS's bulk price list: on-demand prices and reserved terms of one region, without a login.

A CSV file of several hundred megabytes per region, parsed while it arrives, with a few hundred kilobytes in memory.
``as_of`` is the time of the download, not of the publication: the file at ``current`` is the one in force. If the
server says that it is as an earlier poll read it, nothing is downloaded: that poll's rows hold, as of now.
Layout: AWS Price List user guide, "Reading the service price list files".

With a login, the price API (GetProducts) returns the same products of a few machines in all regions, in a few pages
instead of gigabytes. It exists in few regions (setting ``pricing_region``). ``as_of`` is the time of the query.
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from broker.core.errors import BrokerError, Malformed, Refused, Unreachable
from broker.core.market.offers import Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.login import AwsLogin
from providers.aws.products import NOT_YET, Dimension, Term, is_plain, key, read_product
from providers.aws.settings import NAME, AwsSettings
from providers.conditional import ConditionalRead, dump_rows, load_rows
from providers.http import redacted_url, retrying, setting, status_error, translate_errors, trust
from providers.rows import OfferRows, RowRejected, short

if TYPE_CHECKING:
    import ssl

SOURCE = "aws-price-list"

_SLOWEST = 100  # multiple of the timeout after which a download is given up
_LONGEST_LINE = 1 << 20  # bytes; the longest known line has about 3 kB

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
        self._clock = clock

    def offers(self, region: str) -> OfferRows:
        """The offers of the region's list. Raises `RetryLater`, `Refused` (403: no such region, or no list of it) and
        `Malformed`; rows received before a broken connection are yielded first."""
        rows: list[Offer | SkippedRow] = []
        failure: BrokerError | None = None
        try:
            retrying(self._settings, self._clock)(self._read_into, rows, region)
        except BrokerError as error:
            failure = error
        yield from rows  # includes the rows that arrived before the failure
        if failure is not None:
            raise failure

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The TLS context, made once: loading the certificates takes longer than a request."""
        import httpx

        verify = trust(self._settings.price_list_url, self._settings.ca_bundle, setting(NAME, "ca_bundle"))
        return httpx.create_ssl_context() if isinstance(verify, bool) else verify

    def _read_into(self, rows: list[Offer | SkippedRow], region: str) -> None:
        """Replace ``rows`` by those of one download, or of the stored copy if the list is unchanged; after an error, by
        those that arrived before it."""
        rows.clear()
        now, reader = self._clock.now(), _Reader(region)
        download = _Download(self._settings, self._settings.price_list(region), self._trust)
        try:
            for line in download.lines():
                reader.line(line)
            if download.unchanged is not None:
                rows.extend(load_rows(download.unchanged, now))
                return
            reader.check(download.where)
        finally:
            rows.extend(reader.rows(now))
        # A price that is not yet in force is skipped today and counts later, so such a list is read anew each time.
        if not any(isinstance(row, SkippedRow) and row.reason == NOT_YET for row in rows):
            download.keep(dump_rows(rows))


class _Download:
    """One list over HTTP, line by line."""

    def __init__(self, settings: AwsSettings, url: str, trust: ssl.SSLContext) -> None:
        self._settings, self._url, self._trust = settings, url, trust
        self._reads = ConditionalRead(redacted_url(url))
        self._headers: Mapping[str, str] = {}
        self.where = f"{NAME}: {redacted_url(url)}"
        self.unchanged: bytes | None = None

    def keep(self, content: bytes) -> None:
        """Keep the rows of the whole list for later polls."""
        self._reads.keep(self._headers, content)

    def lines(self) -> Iterator[bytes]:
        import httpx

        url_setting = setting(NAME, "price_list_url")
        headers = {"User-Agent": "gpubroker", "Accept-Encoding": "gzip", **self._reads.headers}
        with (
            translate_errors(NAME, self._url, url_setting, self._settings),
            httpx.Client(verify=self._trust, timeout=self._settings.timeout_seconds, headers=headers) as client,
            client.stream("GET", self._url) as answer,
        ):
            self.unchanged = self._reads.unchanged(answer.status_code)
            if self.unchanged is not None:
                return
            if (status := answer.status_code) != 200:
                hint = f"is there such a region? is {url_setting} right, and the network up?"
                known = status_error(status, f"HTTP {status}", self.where)
                raise known or Refused(f"HTTP {status}", where=self.where, hint=hint)
            self._headers = answer.headers
            yield from self._split(answer.iter_bytes())

    def _split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        ends = time.monotonic() + _SLOWEST * self._settings.timeout_seconds
        rest = b""
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE:
                raise Malformed(f"a line of more than {_LONGEST_LINE >> 20} MiB", where=self.where)
            if time.monotonic() > ends:
                raise Unreachable("the list is downloading too slowly", where=self.where)
        if rest:
            yield rest


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
        missing = [name for name in _NEEDED if name not in self._columns]
        if missing:
            actual = f"without the column {missing[0]!r}" if self._columns else "that starts with no header line"
            raise Malformed(f"expected AWS's price list as CSV, got something {actual}", where=where)
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


API_SOURCE = "aws-price-api"

# Only fewer rows to fetch; the row itself decides what it is.
_FILTERS = {"operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA"}


def product_rows(login: AwsLogin, pricing_region: str, instance_type: str) -> Iterator[object]:
    """The products of an instance type, as AWS writes them (JSON texts). Raises what `AwsLogin.rows` raises."""
    filters = {**_FILTERS, "instanceType": instance_type}
    yield from login.rows(
        "pricing",
        pricing_region,
        "get_products",
        "PriceList",
        ServiceCode="AmazonEC2",
        FormatVersion="aws_v1",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
    )


def read_products(rows: Iterable[object], regions: tuple[str, ...], now: datetime) -> OfferRows:
    """The offers in these regions. A row that is not a product is skipped."""
    for row in rows:
        try:
            yield from _product(row, regions, now)
        except RowRejected as error:
            yield error.skipped


def _product(row: object, regions: tuple[str, ...], now: datetime) -> Iterator[Any]:
    try:
        document = json.loads(row) if isinstance(row, str) else row
    except (ValueError, RecursionError) as error:
        raise RowRejected("malformed_row", f"no JSON: {short(row)}") from error
    product = _mapping(document, "product", document)
    attributes = {
        key(name): value for name, value in _mapping(product, "attributes", document).items() if isinstance(value, str)
    }
    if not attributes.get("instancetype"):
        raise RowRejected("incomplete_row", f"no instanceType: {short(row)}")
    region = attributes.get("regioncode", "")
    if (region and region not in regions) or not is_plain(attributes):
        return  # the API lists every region; the settings name only some
    if not region:
        raise RowRejected("incomplete_row", f"{attributes.get('instancetype', '')}: no regionCode")
    terms: list[Term] = []
    for kind, by_code in _mapping(document, "terms", document).items():
        for term in by_code.values() if isinstance(by_code, dict) else (by_code,):
            try:
                terms.append(_term(kind, term, document))
            except RowRejected as error:
                yield error.skipped
    yield from read_product(attributes, terms, now, API_SOURCE)


def _term(kind: str, term: object, row: object) -> Term:
    if not isinstance(term, dict):
        raise RowRejected("malformed_row", f"no term: {short(term)}")
    attributes = term.get("termAttributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    parsed = Term(
        kind=kind,
        effective=_text(term.get("effectiveDate")),
        length=_text(attributes.get("LeaseContractLength")),
        option=_text(attributes.get("PurchaseOption")),
        offering_class=_text(attributes.get("OfferingClass")),
    )
    for dimension in _mapping(term, "priceDimensions", row).values():
        prices = _mapping(dimension, "pricePerUnit", row)
        currency = "USD" if "USD" in prices else _text(next(iter(prices), ""))
        parsed.dimensions.append(Dimension(_text(dimension.get("unit")), prices.get(currency), currency))
    return parsed


def _mapping(parent: object, name: str, row: object) -> Mapping[str, Any]:
    value = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise RowRejected("malformed_row", f"without {name!r}: {short(row)}")
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
