"""Azure's retail prices: on demand, spot, reservations of 1 and 3 years, savings plans; no login needed.

The query is for GPU machines; each row's own fields decide what it is. Linux and Windows share a meter name and differ
in ``productName``; "Low Priority" is the old batch meter, not Spot; the ``retailPrice`` of a reservation is the total
of its term, whatever ``unitOfMeasure`` says, and becomes total / (years × 8760). machines.toml has the contents of each
machine. The list does not give availability, and retired sizes stay in it. Of several current prices of one thing, that
of the region's primary meter counts, then the latest.
Fields: Microsoft Learn, "Azure Retail Prices", version 2023-01-01-preview (the one with savings plans).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import SplitResult, parse_qsl, urlsplit

from broker.core.errors import BrokerError, Malformed
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import Clock
from providers.azure.machines import AzureMachine, listed, machine
from providers.azure.settings import LIST_AGE, MAX_AGE, NAME, AzureSettings
from providers.http import Api
from providers.rows import HOURS_A_YEAR, Found, Row, Unfit, distinct, each, name, number, price, short, usd

SOURCE = "azure-retail"
PLAN_SOURCE = "azure-savings-plan"

_FAMILIES = ("Standard_NC", "Standard_ND", "Standard_NV")
_FILTER = "serviceName eq 'Virtual Machines' and ({})".format(
    " or ".join(f"contains(armSkuName, '{family}')" for family in _FAMILIES)
)
_VERSION = "2023-01-01-preview"
_MOST_PAGES = 5_000
_Page = tuple[str, dict[str, str]]
_TERM = re.compile(r"([135]) Years?")
_OTHER_PRODUCT = re.compile(r"\b(Windows|Win|Cloud ?Services|Dedicated)\b")


@dataclass(frozen=True, slots=True)
class RetailPrices:
    """The price list: Azure's GPU machines in every region, in USD."""

    settings: AzureSettings
    clock: Clock

    def offers(self) -> Found:
        """All offers, each once. Raises `RetryLater`, `Refused`, and `Malformed`, also if the service repeats a page;
        earlier rows are yielded first and stay valid."""
        yield from distinct(each(_best_first(self._rows()), self._read))

    def _rows(self) -> Iterator[object]:
        """Every page. A link to the next one is followed at the configured address, because it may name a host behind a
        proxy; only a link to that address itself may name another path."""
        url = urlsplit(self.settings.retail_prices)
        asked: _Page | None = (url.path, {"api-version": _VERSION, "$filter": _FILTER})
        seen: list[_Page] = []
        origin = url._replace(path="", query="", fragment="").geturl()
        with Api(NAME, origin, self.settings, self.clock, url_key="retail_prices_url") as api:
            while asked is not None:
                if asked in seen or len(seen) >= _MOST_PAGES:
                    raise Malformed(
                        f"page {len(seen) + 1} of the price list repeats an earlier page, or the list has no end",
                        where=NAME,
                        hint="only a part of the list was read; the offers before it are kept",
                    )
                seen.append(asked)
                path, parameters = asked
                page = api.document(path, params=parameters)
                rows = page.get("Items") if isinstance(page, dict) else None
                if not isinstance(rows, list):
                    raise Malformed("no Items in the answer", where=NAME)
                yield from rows
                asked = _following(page.get("NextPageLink"), url)

    def _read(self, row: Row) -> Found:
        instance_type = name(row.get("armSkuName"), "armSkuName")
        shape = machine(instance_type)
        self._check(row)
        match row.get("type", row.get("priceType")):
            case "Consumption":
                spot = _ends(row, "Spot")
                kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
                yield self._offer(row, shape, kind, row.get("retailPrice"))
                if not spot:
                    yield from self._savings_plans(row, shape)
            case "Reservation":
                yield self._offer(
                    row,
                    shape,
                    CapacityType.RESERVED,
                    row.get("retailPrice"),
                    years=_years(row.get("reservationTerm")),
                    hours=_years(row.get("reservationTerm")) * HOURS_A_YEAR,
                )
            case "DevTestConsumption":
                raise Unfit("dev_test_price", f"{instance_type}: for Visual Studio subscribers only")
            case other:
                raise Unfit("malformed_row", f"{instance_type}: a price of type {short(other)}")

    def _savings_plans(self, row: Row, shape: AzureMachine) -> Found:
        plans = row.get("savingsPlan")
        plans = [] if plans is None else plans
        for plan in plans if isinstance(plans, list) else [plans]:
            try:
                if not isinstance(plan, dict):
                    raise Unfit("malformed_row", f"expected a savings plan; got {short(plan)}")
                years = _years(plan.get("term"))
                per_hour = plan.get("retailPrice", plan.get("unitPrice"))
                yield self._offer(row, shape, CapacityType.RESERVED, per_hour, years=years, source=PLAN_SOURCE)
            except Unfit as error:
                yield error.skipped

    def _check(self, row: Row) -> None:
        """Raises `Unfit` for rows about something else, and for prices not in force now."""
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
        now = self.clock.now()
        if (starts := _time(row.get("effectiveStartDate"))) and starts > now:
            raise Unfit("not_in_force", f"{what}: a price from {starts} on")
        if (ends := _time(row.get("effectiveEndDate"))) and ends < now:
            raise Unfit("not_in_force", f"{what}: a price until {ends}")

    def _offer(
        self,
        row: Row,
        shape: AzureMachine,
        capacity_type: CapacityType,
        amount: object,
        *,
        years: int | None = None,
        hours: int = 1,
        source: str = SOURCE,
    ) -> Offer:
        called = name(row["armSkuName"], "armSkuName")
        instance_type = listed(called) or called
        region = name(row.get("armRegionName"), "armRegionName").lower()
        what = f"{region} {instance_type} {capacity_type}{f' {years} years' if years else ''}"
        return Offer(
            provider=NAME,
            region=region,
            zone=None,
            instance_type=instance_type,
            accelerator=shape.gpu,
            count=shape.n,
            capacity_type=capacity_type,
            price=price(amount, what, per=hours),
            as_of=self.clock.now(),
            source=source,
            term_months=years * 12 if years else None,
            cpus=shape.vcpus,
            memory_gib=shape.gib,
            interconnect=shape.link,
            availability=Availability.UNAVAILABLE if shape.retired else Availability.UNKNOWN,
            unavailable_because=f"Azure retired this size in {shape.retired}" if shape.retired else "",
            engine=None if years else shape.engine,  # a term has to be bought before it runs anything
            max_age=MAX_AGE.get(capacity_type, LIST_AGE),
        )


def _best_first(rows: Iterable[object]) -> Iterator[object]:
    """The rows, with the better of two prices of the same thing first. Rows received before a failure are kept."""
    found: list[object] = []
    failure: BrokerError | None = None
    try:
        for row in rows:
            found.append(row)
    except BrokerError as error:
        failure = error
    yield from sorted(found, key=_rank, reverse=True)
    if failure is not None:
        raise failure


def _rank(row: object) -> tuple[bool, str]:
    if not isinstance(row, dict):
        return False, ""
    began = row.get("effectiveStartDate")
    return row.get("isPrimaryMeterRegion") is not False, began if isinstance(began, str) else ""


def _following(link: object, asked: SplitResult) -> _Page | None:
    """Path and parameters of the next page; None at the end. Raises `Malformed`."""
    if link is None or link == "":
        return None
    try:
        parts = urlsplit(link) if isinstance(link, str) else None
    except ValueError:  # invalid brackets in the address
        parts = None
    if parts is not None:
        path = parts.path if parts.netloc == asked.netloc else asked.path
        if parts.query or path != asked.path:
            return path, dict(parse_qsl(parts.query))
    raise Malformed(f"no link to the next page: {short(link)}", where=NAME)


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
