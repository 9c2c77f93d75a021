"""Scaleway's GPU instances on demand, by zone, with stock. No login needed. Priced in euros, and converted.

Two public lists: the product catalog has the machines of each zone with their prices, the instance API the stock.
Scaleway prices in euros; they become dollars by the European Central Bank's reference rate of the day,
which the polls name. Without a rate nothing is converted: each machine is counted
(``no_exchange_rate``), and the poll fails, so that earlier prices stay. Traps: the catalog ignores filters that it
does not know, so each row is judged by its own fields; ``H100-1-80G`` is the PCIe card, ``H100-SXM-…`` the other one;
stock has no total, pages end with a short one. Prices are before tax. Fields: Scaleway's Product Catalog API v2alpha1
(``ListPublicCatalogProducts``) and Instance API v1 (``GET …/products/servers/availability``), as its Python SDK has
them. No rate limit is published; it is one call for each 100 products, and one or two for each zone with GPUs. Read in
November 2026.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar
from xml.etree import ElementTree as Xml  # documents with a DTD are refused before they are parsed

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers import rows as parse
from providers.failures import Failures
from providers.http import Api, HttpSettings, Url, endpoint
from providers.listing import pages
from providers.rows import OfferRows, Row, RowRejected, short

# Dollars for a euro: the European Central Bank's reference rate of the day, for sources that price in euros.
#
# The rate is read with the poll that needs it, from a public document without a login. Nobody is billed at this rate: a
# card or a bank adds its own margin. The bank publishes at about 16:00 CET on its working days; two of them are at most
# six days apart (Easter, Christmas), so an older rate is refused, and so is an implausible one. Source: "Euro foreign
# exchange reference rates", ``eurofxref-daily.xml``, read in November 2026.
CURRENCY = "EUR"
ECB = "https://www.ecb.europa.eu"
_PATH = "/stats/eurofxref/eurofxref-daily.xml"
_CUBE = "{http://www.ecb.int/vocabulary/2002-08-01/eurofxref}Cube"
_MAX_RATE_AGE = timedelta(days=7)
_MAX_AHEAD = timedelta(days=1)  # clocks and time zones
# Dollars for a euro. From 1999 to 2026 it was between 0.82 and 1.60.
_MIN_RATE, _MAX_RATE = Decimal("0.6"), Decimal("2")


@dataclass(frozen=True, slots=True)
class ReferenceRate:
    """``usd``: dollars for one euro, exact; ``day``: of the rate."""

    usd: Decimal
    day: date

    def __str__(self) -> str:
        return f"1 {CURRENCY} = {self.usd} USD, the European Central Bank's reference rate of {self.day}"


def fetch_rate(api: Api, now: datetime) -> ReferenceRate:
    """The newest rate. Raises what `Api.text` raises, and `Malformed` for a rate that is missing, old or absurd."""
    return read_rate(api.text(_PATH), now)


def read_rate(content: bytes, now: datetime) -> ReferenceRate:
    """The rate in the bank's document. Raises `Malformed`."""
    try:
        return _parse_rate(content, now)
    except (RowRejected, ValueError, Xml.ParseError) as error:
        detail = error.detail if isinstance(error, RowRejected) else str(error)
        raise Malformed(f"no rate to convert {CURRENCY} by: {detail}", where=_PATH) from error


def _parse_rate(content: bytes, now: datetime) -> ReferenceRate:
    if b"\0" in content:  # in UTF-16, the definitions below would be overlooked
        raise ValueError("a document that is not in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ValueError("a document with entity definitions")
    days = [cube for cube in Xml.fromstring(content).iter(_CUBE) if cube.get("time")]  # noqa: S314  # definitions were refused above
    if len(days) != 1:
        raise ValueError(f"{len(days)} days in the document")
    day = date.fromisoformat(days[0].get("time", ""))
    rates = [cube.get("rate") for cube in days[0].iter(_CUBE) if cube.get("currency") == "USD"]
    usd = parse.decimal_text(rates[0]) if len(rates) == 1 else None
    if usd is None:
        raise ValueError(f"{len(rates)} rates of the dollar")
    if not _MIN_RATE <= usd <= _MAX_RATE:
        raise ValueError(f"{short(usd)} dollars for a euro is implausible")
    if not now - _MAX_RATE_AGE <= datetime(day.year, day.month, day.day, tzinfo=now.tzinfo) <= now + _MAX_AHEAD:
        raise ValueError(f"the rate is of {day}")
    return ReferenceRate(usd, day)


_CATALOGUE = "/product-catalog/v2alpha1/public-catalog/products"
_STOCK_LIST = "/instance/v1/zones/{zone}/products/servers/availability"
_ROWS_PER_PAGE, _MAX_PAGES = 100, 100
_NANO = 10**9
_GIB = 2**30
_ZONE = re.compile(r"([a-z]{2}-[a-z]{3})-\d")
# A machine's name contains its cards, too: H100-SXM-8-80G.
_GPU_NAME = re.compile(r"([A-Z]+\d+[A-Z]*(?:-[A-Z]+)?)-(\d{1,2})-(\d{2,3})G")
_OLDER_GPU_NAME = re.compile(r"RENDER|GPU-")  # machines with GPUs under other names
_IS_MACHINE = "/compute/"
_HOURS = {"hour": 1, "minute": 60, "second": 3600}  # the number of units in an hour
_SOLD = {"public_beta", "preview", "general_availability", "end_of_new_features", "end_of_growth"}
_NOT_SOLD = {"unknown_status", "end_of_deployment", "end_of_support", "end_of_sale", "end_of_life", "retired"}
_STOCK = {"available": (Availability.AVAILABLE, 0.9), "scarce": (Availability.AVAILABLE, 0.3)}
_MAX_AGE = timedelta(hours=6)


class ScalewaySettings(HttpSettings):
    """``base_url``: of Scaleway's API. ``rates_url``: the site with the European Central Bank's reference rates."""

    base_url: Url = "https://api.scaleway.com"
    rates_url: Url = ECB


class Scaleway:
    """Every GPU instance of the public catalog."""

    name = "scaleway"
    Settings: ClassVar = ScalewaySettings
    _source = "scaleway-catalogue"

    def __init__(self, *, clock: Clock, settings: ScalewaySettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or ScalewaySettings()
        self._rate: ReferenceRate | None = None

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Failures other than the catalog's (the rate, the stock of a zone) are raised
        at the end. Raises `RetryLater`, `Refused` and `Malformed`."""
        self._rate, failures = None, Failures()
        with Api(self.name, self._settings.base_url, self._settings, self._clock) as api:
            rows = list(pages(partial(self._catalogue, api), "products", "total_count", self.name))
            self._rate = failures.result(self._fetch_rate, None)
            zones = sorted(_zones(rows)) if self._rate else ()
            stock = {zone: failures.result(partial(self._stock, api, zone), dict[str, object]()) for zone in zones}
        yield from parse.distinct(parse.read_rows(rows, lambda row: self._read(row, stock)))
        failures.raise_any()

    def conversions(self) -> Sequence[str]:
        return (str(self._rate),) if self._rate else ()

    def describe_setup(self) -> Mapping[str, Any]:
        return {
            "endpoints": {
                "catalogue and stock": endpoint(self.name, "base_url", self._settings.base_url),
                "reference rates": endpoint(self.name, "rates_url", self._settings.rates_url),
            },
            "logins": {},
        }

    def _fetch_rate(self) -> ReferenceRate:
        settings = self._settings
        with Api(self.name, settings.rates_url, settings, self._clock, url_key="rates_url") as api:
            return fetch_rate(api, self._clock.now())

    def _catalogue(self, api: Api, page: str) -> Any:
        params = {"product_types": "instance", "page": page, "page_size": str(_ROWS_PER_PAGE)}
        return api.document(_CATALOGUE, params=params)

    def _stock(self, api: Api, zone: str) -> dict[str, object]:
        stock: dict[str, object] = {}
        for page in range(1, _MAX_PAGES + 1):
            params = {"page": str(page), "per_page": str(_ROWS_PER_PAGE)}
            answer = api.get(_STOCK_LIST.format(zone=zone), params=params)
            servers = answer.get("servers") if isinstance(answer, dict) else None
            if not isinstance(servers, dict):
                raise Malformed(f"no stock in the answer about {zone}", where=self.name)
            stock |= {kind: row.get("availability") for kind, row in servers.items() if isinstance(row, dict)}
            if len(servers) < _ROWS_PER_PAGE:
                break
        return stock

    def _read(self, row: Row, stock: Mapping[str, Mapping[str, object]]) -> OfferRows:
        sku, properties = row.get("sku"), row.get("properties")
        instance = properties.get("instance") if isinstance(properties, dict) else None
        if not isinstance(instance, dict):
            if isinstance(sku, str) and not sku.startswith(_IS_MACHINE):
                return  # another product
            raise RowRejected("malformed_row", f"{short(sku)}: its hardware is missing")
        kind = parse.name(instance.get("offer_id"), f"{short(sku)}: offer_id")
        hardware = properties.get("hardware") if isinstance(properties, dict) else None
        if not isinstance(hardware, dict):
            raise RowRejected("malformed_row", f"{kind}: its hardware is {short(hardware)}")
        gpu = hardware.get("gpu")
        if not gpu and not _GPU_NAME.fullmatch(kind) and not _OLDER_GPU_NAME.match(kind):
            return  # a machine without GPUs
        if not isinstance(gpu, dict):
            raise RowRejected("malformed_row", f"{kind}: gpu is {short(gpu)}")
        region, zone = _place(row.get("locality"), kind)
        _check_sold(row.get("status"), kind)
        card, count = _card(gpu, kind), parse.whole(gpu.get("count"), f"{kind}: number of GPUs")
        stock_level = stock.get(zone or "", {}).get(kind)
        availability, score = _STOCK.get(
            stock_level if isinstance(stock_level, str) else "", (Availability.UNKNOWN, None)
        )
        if stock_level == "shortage":
            availability = Availability.UNAVAILABLE
        yield Offer(
            provider=self.name,
            region=region,
            zone=zone,
            instance_type=kind,
            accelerator=card,
            count=count,
            capacity_type=CapacityType.ON_DEMAND,
            price=self._price(row, f"{kind} in {zone or region}"),
            as_of=self._clock.now(),
            source=self._source,
            cpus=parse.figure(cpu.get("threads")) if isinstance(cpu := hardware.get("cpu"), dict) else None,
            memory_gib=_gib(hardware.get("ram")),
            interconnect=(Interconnect.NVLINK if "SXM" in kind else Interconnect.PCIE) if count > 1 else None,
            availability=availability,
            unavailable_because="out of stock there" if availability is Availability.UNAVAILABLE else "",
            score=score,
            max_age=_MAX_AGE,
        )

    def _price(self, row: Row, label: str) -> Money:
        """USD an hour. Euros are converted; any other currency is refused."""
        listed_price, measure = row.get("price"), row.get("unit_of_measure")
        money = listed_price.get("retail_price") if isinstance(listed_price, dict) else None
        if not isinstance(money, dict):
            raise RowRejected("no_price", f"{label}: its price is {short(money)}")
        unit = measure.get("unit") if isinstance(measure, dict) else None
        units_per_hour = _HOURS.get(unit) if isinstance(unit, str) else None
        if units_per_hour is None or not isinstance(measure, dict):
            raise RowRejected("unknown_unit", f"{label}: per {short(measure)}")
        amount = _whole_units(money.get("units"), label) + _nanos(money.get("nanos"), label)
        size = parse.whole(measure.get("size"), f"{label}: size of a unit", maximum=10**6)
        if money.get("currency_code") != CURRENCY:
            parse.usd(money.get("currency_code"))
            return parse.price(amount, label, times=units_per_hour, per=size)
        if self._rate is None:
            raise RowRejected("no_exchange_rate", f"{label}: {amount:f} {CURRENCY}")
        parse.price(amount, label, times=units_per_hour, per=size)  # must be plausible before the conversion, too
        return parse.price(amount * self._rate.usd, label, times=units_per_hour, per=size)


def _whole_units(value: object, label: str) -> Decimal:
    amount = Decimal(0) if value is None else parse.number(value, f"{label}: units")
    if amount < 0 or amount != amount.to_integral_value():
        raise RowRejected("invalid_price", f"{label}: {short(value)} units")
    return amount


def _nanos(value: object, label: str) -> Decimal:
    amount = Decimal(0) if value is None else parse.number(value, f"{label}: nanos")
    if not 0 <= amount < _NANO or amount != amount.to_integral_value():
        raise RowRejected("invalid_price", f"{label}: {short(value)} nanos")
    return amount / _NANO


def _zones(rows: Sequence[object]) -> set[str]:
    zones = set()
    for row in rows:
        properties, place = (row.get("properties"), row.get("locality")) if isinstance(row, dict) else (None, None)
        hardware = properties.get("hardware") if isinstance(properties, dict) else None
        zone = place.get("zone") if isinstance(place, dict) else None
        if isinstance(hardware, dict) and hardware.get("gpu") and isinstance(zone, str) and _ZONE.fullmatch(zone):
            zones.add(zone)
    return zones


def _place(locality: object, kind: str) -> tuple[str, str | None]:
    place: Row = locality if isinstance(locality, dict) else {}
    zone, region = place.get("zone"), place.get("region")
    if zone and (not isinstance(zone, str) or not _ZONE.fullmatch(zone)):
        raise RowRejected("no_region", f"{kind}: its zone is {short(zone)}")
    if zone:
        return zone.rpartition("-")[0], zone
    if not region:
        raise RowRejected("no_region", f"{kind}: it is in {short(locality)}")
    return parse.name(region, f"{kind}: region"), None


def _check_sold(status: object, kind: str) -> None:
    if not isinstance(status, str) or status not in {*_SOLD, *_NOT_SOLD}:
        raise RowRejected("malformed_row", f"{kind}: its status is {short(status)}")
    if status in _NOT_SOLD:
        raise RowRejected("not_sold", f"{kind}: {status}")


def _card(gpu: Row, kind: str) -> str:
    """The accelerator, by the card's type. Of the H100, Scaleway has both forms; only the SXM one is named as such."""
    gpu_type, name_match = gpu.get("type"), _GPU_NAME.fullmatch(kind)
    plain = gpu_type.removeprefix("NVIDIA").strip() if isinstance(gpu_type, str) else gpu_type
    pcie = f"{plain} PCIe" if isinstance(plain, str) and "SXM" not in f"{plain} {kind}" else None
    card = parse.accelerator(pcie, plain, memory_gib=float(name_match[3]) if name_match else None)
    if name_match and gpu.get("count") != int(name_match[2]):
        raise RowRejected("conflicting_row", f"{kind}: {short(gpu.get('count'))} GPUs")
    return card


def _gib(ram: object) -> float | None:
    size = ram.get("size") if isinstance(ram, dict) else None
    if isinstance(size, bool) or not isinstance(size, int | Decimal):
        return None
    return parse.figure(Decimal(size) / _GIB) if Decimal(size).is_finite() else None
