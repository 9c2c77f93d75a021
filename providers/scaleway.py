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

from __future__ import annotations

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
from providers.failures import Failures
from providers.http import Api, HttpSettings, Url, endpoint
from providers.rows import (
    Found,
    Row,
    Unfit,
    accelerator,
    decimal_text,
    distinct,
    each,
    figure,
    name,
    number,
    price,
    short,
    usd,
    whole,
)

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
_OLDEST = timedelta(days=7)
_AHEAD = timedelta(days=1)  # clocks and time zones
# Dollars for a euro. From 1999 to 2026 it was between 0.82 and 1.60.
_LOWEST, _HIGHEST = Decimal("0.6"), Decimal("2")


@dataclass(frozen=True, slots=True)
class ReferenceRate:
    """``usd``: dollars for one euro, exact; ``day``: of the rate."""

    usd: Decimal
    day: date

    def __str__(self) -> str:
        return f"1 {CURRENCY} = {self.usd} USD, the European Central Bank's reference rate of {self.day}"


def ask_rate(api: Api, now: datetime) -> ReferenceRate:
    """The newest rate. Raises what `Api.text` raises, and `Malformed` for a rate that is missing, old or absurd."""
    return read_rate(api.text(_PATH), now)


def read_rate(content: bytes, now: datetime) -> ReferenceRate:
    """The rate in the bank's document. Raises `Malformed`."""
    try:
        return _rate(content, now)
    except (Unfit, ValueError, Xml.ParseError) as error:
        detail = error.detail if isinstance(error, Unfit) else str(error)
        raise Malformed(f"no rate to convert {CURRENCY} by: {detail}", where=_PATH) from error


def _rate(content: bytes, now: datetime) -> ReferenceRate:
    if b"\0" in content:  # in UTF-16, the definitions below would be overlooked
        raise ValueError("a document that is not in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ValueError("a document with entity definitions")
    days = [cube for cube in Xml.fromstring(content).iter(_CUBE) if cube.get("time")]  # noqa: S314  # definitions were refused above
    if len(days) != 1:
        raise ValueError(f"{len(days)} days in the document")
    day = date.fromisoformat(days[0].get("time", ""))
    said = [cube.get("rate") for cube in days[0].iter(_CUBE) if cube.get("currency") == "USD"]
    usd = decimal_text(said[0]) if len(said) == 1 else None
    if usd is None:
        raise ValueError(f"{len(said)} rates of the dollar")
    if not _LOWEST <= usd <= _HIGHEST:
        raise ValueError(f"{short(usd)} dollars for a euro is implausible")
    if not now - _OLDEST <= datetime(day.year, day.month, day.day, tzinfo=now.tzinfo) <= now + _AHEAD:
        raise ValueError(f"the rate is of {day}")
    return ReferenceRate(usd, day)


_CATALOGUE = "/product-catalog/v2alpha1/public-catalog/products"
_STOCK_LIST = "/instance/v1/zones/{zone}/products/servers/availability"
_A_PAGE, _PAGES = 100, 100
_NANO = 10**9
_GIB = 2**30
_ZONE = re.compile(r"([a-z]{2}-[a-z]{3})-\d")
# A machine's name contains its cards, too: H100-SXM-8-80G.
_NAMED = re.compile(r"([A-Z]+\d+[A-Z]*(?:-[A-Z]+)?)-(\d{1,2})-(\d{2,3})G")
_OLDER = re.compile(r"RENDER|GPU-")  # machines with GPUs under other names
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
            rows = list(self._catalogue(api))
            self._rate = failures.kept_or_none(self._ask_rate)
            zones = sorted(_zones(rows)) if self._rate else ()
            stock = {zone: failures.result(partial(self._stock, api, zone), dict[str, object]()) for zone in zones}
        yield from distinct(each(rows, lambda row: self._read(row, stock)))
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

    def _ask_rate(self) -> ReferenceRate:
        settings = self._settings
        with Api(self.name, settings.rates_url, settings, self._clock, url_key="rates_url") as api:
            return ask_rate(api, self._clock.now())

    def _catalogue(self, api: Api) -> Iterator[object]:
        seen = total = 0
        for page in range(1, _PAGES + 1):
            asked = {"product_types": "instance", "page": str(page), "page_size": str(_A_PAGE)}
            answer = api.document(_CATALOGUE, params=asked)
            rows = answer.get("products") if isinstance(answer, dict) else None
            if not isinstance(rows, list):
                raise Malformed("no products in the answer", where=self.name)
            yield from rows
            seen, total = seen + len(rows), answer.get("total_count")
            if isinstance(total, bool) or not isinstance(total, int) or total < 0:
                yield SkippedRow("malformed_row", f"total_count is {short(total)}")
                return
            if seen >= total or not rows:
                break
        if seen < total:
            yield SkippedRow("incomplete_answer", f"{seen} of {short(total)} announced products")

    def _stock(self, api: Api, zone: str) -> dict[str, object]:
        """The zone's stock of each machine."""
        found: dict[str, object] = {}
        for page in range(1, _PAGES + 1):
            asked = {"page": str(page), "per_page": str(_A_PAGE)}
            answer = api.get(_STOCK_LIST.format(zone=zone), params=asked)
            servers = answer.get("servers") if isinstance(answer, dict) else None
            if not isinstance(servers, dict):
                raise Malformed(f"no stock in the answer about {zone}", where=self.name)
            found |= {kind: row.get("availability") for kind, row in servers.items() if isinstance(row, dict)}
            if len(servers) < _A_PAGE:
                break
        return found

    def _read(self, row: Row, stock: Mapping[str, Mapping[str, object]]) -> Found:
        sku, has = row.get("sku"), row.get("properties")
        instance = has.get("instance") if isinstance(has, dict) else None
        if not isinstance(instance, dict):
            if isinstance(sku, str) and not sku.startswith(_IS_MACHINE):
                return  # another product
            raise Unfit("malformed_row", f"{short(sku)}: its hardware is missing")
        kind = name(instance.get("offer_id"), f"{short(sku)}: offer_id")
        hardware = has.get("hardware") if isinstance(has, dict) else None
        if not isinstance(hardware, dict):
            raise Unfit("malformed_row", f"{kind}: its hardware is {short(hardware)}")
        gpu = hardware.get("gpu")
        if not gpu and not _NAMED.fullmatch(kind) and not _OLDER.match(kind):
            return  # a machine without GPUs
        if not isinstance(gpu, dict):
            raise Unfit("malformed_row", f"{kind}: gpu is {short(gpu)}")
        region, zone = _place(row.get("locality"), kind)
        _check_sold(row.get("status"), kind)
        card, count = _card(gpu, kind), whole(gpu.get("count"), f"{kind}: number of GPUs")
        there = stock.get(zone or "", {}).get(kind)
        availability, score = _STOCK.get(there if isinstance(there, str) else "", (Availability.UNKNOWN, None))
        if there == "shortage":
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
            cpus=figure(cpu.get("threads")) if isinstance(cpu := hardware.get("cpu"), dict) else None,
            memory_gib=_gib(hardware.get("ram")),
            interconnect=(Interconnect.NVLINK if "SXM" in kind else Interconnect.PCIE) if count > 1 else None,
            availability=availability,
            unavailable_because="out of stock there" if availability is Availability.UNAVAILABLE else "",
            score=score,
            max_age=_MAX_AGE,
        )

    def _price(self, row: Row, what: str) -> Money:
        """USD an hour. Euros are converted; any other currency is refused."""
        told, per = row.get("price"), row.get("unit_of_measure")
        money = told.get("retail_price") if isinstance(told, dict) else None
        if not isinstance(money, dict):
            raise Unfit("no_price", f"{what}: its price is {short(money)}")
        unit = per.get("unit") if isinstance(per, dict) else None
        times = _HOURS.get(unit) if isinstance(unit, str) else None
        if times is None or not isinstance(per, dict):
            raise Unfit("unknown_unit", f"{what}: per {short(per)}")
        amount = _whole_units(money.get("units"), what) + _nanos(money.get("nanos"), what)
        size = whole(per.get("size"), f"{what}: size of a unit", most=10**6)
        if money.get("currency_code") != CURRENCY:
            usd(money.get("currency_code"))
            return price(amount, what, times=times, per=size)
        if self._rate is None:
            raise Unfit("no_exchange_rate", f"{what}: {amount:f} {CURRENCY}")
        price(amount, what, times=times, per=size)  # must be plausible before the conversion, too
        return price(amount * self._rate.usd, what, times=times, per=size)


def _whole_units(value: object, what: str) -> Decimal:
    found = Decimal(0) if value is None else number(value, f"{what}: units")
    if found < 0 or found != found.to_integral_value():
        raise Unfit("invalid_price", f"{what}: {short(value)} units")
    return found


def _nanos(value: object, what: str) -> Decimal:
    found = Decimal(0) if value is None else number(value, f"{what}: nanos")
    if not 0 <= found < _NANO or found != found.to_integral_value():
        raise Unfit("invalid_price", f"{what}: {short(value)} nanos")
    return found / _NANO


def _zones(rows: Sequence[object]) -> set[str]:
    """The zones that have a machine with GPUs."""
    found = set()
    for row in rows:
        has, place = (row.get("properties"), row.get("locality")) if isinstance(row, dict) else (None, None)
        hardware = has.get("hardware") if isinstance(has, dict) else None
        zone = place.get("zone") if isinstance(place, dict) else None
        if isinstance(hardware, dict) and hardware.get("gpu") and isinstance(zone, str) and _ZONE.fullmatch(zone):
            found.add(zone)
    return found


def _place(locality: object, kind: str) -> tuple[str, str | None]:
    """Region and zone."""
    told: Row = locality if isinstance(locality, dict) else {}
    zone, region = told.get("zone"), told.get("region")
    if zone and (not isinstance(zone, str) or not _ZONE.fullmatch(zone)):
        raise Unfit("no_region", f"{kind}: its zone is {short(zone)}")
    if zone:
        return zone.rpartition("-")[0], zone
    if not region:
        raise Unfit("no_region", f"{kind}: it is in {short(locality)}")
    return name(region, f"{kind}: region"), None


def _check_sold(status: object, kind: str) -> None:
    if not isinstance(status, str) or status not in {*_SOLD, *_NOT_SOLD}:
        raise Unfit("malformed_row", f"{kind}: its status is {short(status)}")
    if status in _NOT_SOLD:
        raise Unfit("not_sold", f"{kind}: {status}")


def _card(gpu: Row, kind: str) -> str:
    """The accelerator, by the card's type. Of the H100, Scaleway has both forms; only the SXM one is named as such."""
    said, named = gpu.get("type"), _NAMED.fullmatch(kind)
    plain = said.removeprefix("NVIDIA").strip() if isinstance(said, str) else said
    pcie = f"{plain} PCIe" if isinstance(plain, str) and "SXM" not in f"{plain} {kind}" else None
    card = accelerator(pcie, plain, memory_gib=float(named[3]) if named else None)
    if named and gpu.get("count") != int(named[2]):
        raise Unfit("conflicting_row", f"{kind}: {short(gpu.get('count'))} GPUs")
    return card


def _gib(ram: object) -> float | None:
    size = ram.get("size") if isinstance(ram, dict) else None
    if isinstance(size, bool) or not isinstance(size, int | Decimal):
        return None
    return figure(Decimal(size) / _GIB) if Decimal(size).is_finite() else None
