"""Azure's retail prices: on demand, spot, reservations of 1 and 3 years, savings plans; no login needed.

The price list is asked for GPU machines; a row is then what its own fields say. Linux and Windows share a meter name
and differ in ``productName``; "Low Priority" is the old batch meter and not Spot; the ``retailPrice`` of a reservation
is the total of its whole term, whatever ``unitOfMeasure`` says, and becomes total / (years × 8760). What a machine
contains stands in azure_machines.toml. Whether it can be had the list does not say.
Fields: Microsoft Learn, "Azure Retail Prices", version 2023-01-01-preview (the one with savings plans).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from broker.core.clock import Clock
from broker.core.errors import Malformed
from broker.core.offers import CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers.http import Api, HttpSettings, Url, endpoint
from providers.rows import HOURS_A_YEAR, Found, Row, Unfit, distinct, each, name, number, price, short, usd

_FAMILIES = ("Standard_NC", "Standard_ND", "Standard_NV")
_FILTER = "serviceName eq 'Virtual Machines' and ({})".format(
    " or ".join(f"contains(armSkuName, '{family}')" for family in _FAMILIES)
)
_VERSION = "2023-01-01-preview"
_MOST_PAGES = 5_000
_GPU_FAMILY = re.compile(r"Standard_N[A-Z]*\d", re.IGNORECASE)
_VCPUS = re.compile(r"Standard_[A-Z]+?(?:\d+-)?(\d+)[a-z]*_(?:\w+_)?v[3-9]")
_TERM = re.compile(r"([135]) Years?")
_OTHER_PRODUCT = re.compile(r"\b(Windows|Win|Cloud ?Services|Dedicated)\b")
_MAX_AGE = {CapacityType.SPOT: timedelta(hours=6)}
_LIST_AGE = timedelta(days=3)


class AzureSettings(HttpSettings):
    """``retail_prices_url``: where the price list is."""

    retail_prices_url: Url = "https://prices.azure.com/api/retail/prices"


@dataclass(frozen=True, slots=True)
class _Machine:
    """What is in one machine. Without a ``gpu`` it is one without accelerators."""

    gpu: str | None = None
    n: int = 0
    vcpus: float | None = None
    gib: float | None = None
    link: Interconnect | None = None


class Azure:
    """Azure's GPU machines in every region, at list prices in USD."""

    name = "azure"
    Settings: ClassVar = AzureSettings

    def __init__(self, *, clock: Clock, settings: AzureSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or AzureSettings()

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All of them, whatever the query. Raises `RetryLater`, `Refused`, and `Malformed` also where the service sends
        a page again; what came before stays valid."""
        yield from distinct(each(self._rows(), self._read))

    def describe_setup(self) -> Mapping[str, Any]:
        """See `broker.app.doctor.DescribesSetup`."""
        url = self._settings.retail_prices_url
        return {"endpoints": {"retail prices": endpoint(self.name, "retail_prices_url", url)}, "logins": {}}

    def _rows(self) -> Iterator[object]:
        """Every page. Of a link to the next one only the query counts: it may name a host that a proxy stands for."""
        url = self._settings.retail_prices_url
        asked = {"api-version": _VERSION, "$filter": _FILTER}
        seen: list[dict[str, str]] = []
        with Api(self.name, url, self._settings, self._clock, url_key="retail_prices_url") as api:
            while asked:
                if asked in seen or len(seen) >= _MOST_PAGES:
                    raise Malformed(
                        f"page {len(seen) + 1} of the price list came before, or there is no end to it",
                        where=self.name,
                        hint="only a part of the list was read; the offers before it are kept",
                    )
                seen.append(asked)
                page = api.get("", params=asked)
                rows = page.get("Items") if isinstance(page, dict) else None
                if not isinstance(rows, list):
                    raise Malformed("no Items in the answer", where=self.name)
                yield from rows
                asked = _query_of(page.get("NextPageLink"))

    def _read(self, row: Row) -> Found:
        instance_type = name(row.get("armSkuName"), "armSkuName")
        machine = _machine(instance_type)
        self._check(row)
        match row.get("type", row.get("priceType")):
            case "Consumption":
                spot = _ends(row, "Spot")
                kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
                yield self._offer(row, machine, kind, row.get("retailPrice"))
                if not spot:
                    yield from self._savings_plans(row, machine)
            case "Reservation":
                yield self._offer(
                    row,
                    machine,
                    CapacityType.RESERVED,
                    row.get("retailPrice"),
                    years=_years(row.get("reservationTerm")),
                    hours=_years(row.get("reservationTerm")) * HOURS_A_YEAR,
                )
            case "DevTestConsumption":
                raise Unfit("dev_test_price", f"{instance_type}: for Visual Studio subscribers only")
            case other:
                raise Unfit("malformed_row", f"{instance_type}: a price of type {short(other)}")

    def _savings_plans(self, row: Row, machine: _Machine) -> Found:
        plans = row.get("savingsPlan") or []
        for plan in plans if isinstance(plans, list) else [plans]:
            try:
                if not isinstance(plan, dict):
                    raise Unfit("malformed_row", f"a savings plan that is none: {short(plan)}")
                years = _years(plan.get("term"))
                per_hour = plan.get("retailPrice", plan.get("unitPrice"))
                yield self._offer(
                    row, machine, CapacityType.RESERVED, per_hour, years=years, source="azure-savings-plan"
                )
            except Unfit as error:
                yield error.skipped

    def _check(self, row: Row) -> None:
        """Raises `Unfit` for rows that are about something else, or not in force now."""
        what = short(row["armSkuName"])
        usd(row.get("currencyCode"))
        if _ends(row, "Low Priority"):
            raise Unfit("low_priority", f"{what}: the old batch meter")
        product = row.get("productName")
        if not isinstance(product, str):
            raise Unfit("malformed_row", f"{what}: no productName, so it may be Windows")
        if _OTHER_PRODUCT.search(product):
            raise Unfit("other_product", f"{what}: {short(product)}")
        if row.get("unitOfMeasure") != "1 Hour":
            raise Unfit("unexpected_unit", f"{what}: priced per {short(row.get('unitOfMeasure'))}")
        if number(row.get("tierMinimumUnits", 0), "tierMinimumUnits") != 0:
            raise Unfit("tiered_price", f"{what}: for more than {row['tierMinimumUnits']} hours")
        now = self._clock.now()
        if (starts := _time(row.get("effectiveStartDate"))) and starts > now:
            raise Unfit("not_in_force", f"{what}: a price from {starts} on")
        if (ends := _time(row.get("effectiveEndDate"))) and ends < now:
            raise Unfit("not_in_force", f"{what}: a price until {ends}")

    def _offer(
        self,
        row: Row,
        machine: _Machine,
        capacity_type: CapacityType,
        amount: object,
        *,
        years: int | None = None,
        hours: int = 1,
        source: str = "azure-retail",
    ) -> Offer:
        instance_type = name(row["armSkuName"], "armSkuName")
        region = name(row.get("armRegionName"), "armRegionName").lower()
        what = f"{region} {instance_type} {capacity_type}{f' {years} years' if years else ''}"
        return Offer(
            provider=self.name,
            region=region,
            zone=None,
            instance_type=instance_type,
            accelerator=machine.gpu,
            count=machine.n,
            capacity_type=capacity_type,
            price=price(amount, what, per=hours),
            as_of=self._clock.now(),
            source=source,
            term_months=years * 12 if years else None,
            cpus=machine.vcpus,
            memory_gib=machine.gib,
            interconnect=machine.link,
            engine=None if years else "skypilot",  # a term has to be bought before it runs anything
            max_age=_MAX_AGE.get(capacity_type, _LIST_AGE),
        )


def _query_of(link: object) -> dict[str, str]:
    """The parameters of the link to the next page; empty at the end. Raises `Malformed`."""
    if link is None or link == "":
        return {}
    try:
        found = dict(parse_qsl(urlsplit(link).query)) if isinstance(link, str) else {}
    except ValueError:  # brackets that are no IPv6 address
        found = {}
    if not found:
        raise Malformed(f"no link to the next page: {short(link)}", where=Azure.name)
    return found


def _machine(instance_type: str) -> _Machine:
    """Raises `Unfit` for GPU machines that are not in the table, and for those with a part of a GPU."""
    machines, parts = _tables()
    key = instance_type.lower()
    if key in machines:
        return machines[key]
    if key in parts:
        raise Unfit("part_of_a_gpu", instance_type)
    if _GPU_FAMILY.match(instance_type):
        raise Unfit("unknown_machine", instance_type)
    vcpus = _VCPUS.fullmatch(instance_type)
    return _Machine(vcpus=float(vcpus[1]) if vcpus else None)


@cache
def _tables() -> tuple[dict[str, _Machine], frozenset[str]]:
    read = tomllib.loads(files("providers").joinpath("azure_machines.toml").read_text("utf-8"))
    machines = {
        key.lower(): _Machine(**{**row, "link": Interconnect(row["link"]) if "link" in row else None})
        for key, row in read["machines"].items()
    }
    return machines, frozenset(part.lower() for part in read["parts"])


def _ends(row: Row, word: str) -> bool:
    """Whether the meter or the SKU is marked as such; only one of them may be."""
    return any(isinstance(row.get(key), str) and row[key].endswith(word) for key in ("meterName", "skuName"))


def _years(term: object) -> int:
    found = _TERM.fullmatch(term) if isinstance(term, str) else None
    if found is None:
        raise Unfit("malformed_row", f"a term of {short(term)}")
    return int(found[1])


def _time(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Unfit("malformed_row", f"not a time in UTC: {short(value)}")
    return found
