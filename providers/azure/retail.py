"""Azure's retail prices: on demand, spot, reservations of 1 and 3 years, savings plans; no login needed.

The query is for GPU machines; each row's own fields decide what it is. Linux and Windows share a meter name and differ
in ``productName``; "Low Priority" is the old batch meter, not Spot; the ``retailPrice`` of a reservation is the total
of its term, whatever ``unitOfMeasure`` says, and becomes total / (years × 8760). machines.toml has the contents of each
machine. The list does not give availability, and retired sizes stay in it. Of several current prices of one thing, that
of the region's primary meter counts, then the latest.
Fields: Microsoft Learn, "Azure Retail Prices", version 2023-01-01-preview (the one with savings plans).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import SplitResult, parse_qsl, urlsplit

from broker.core.errors import BrokerError, Malformed
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import Clock
from providers import rows as parse
from providers.azure.machines import AzureMachine, find_type, machine
from providers.azure.settings import LIST_AGE, MAX_AGE, NAME, AzureSettings
from providers.http import Api
from providers.rows import HOURS_A_YEAR, OfferRows, Row, RowRejected, short

SOURCE = "azure-retail"
PLAN_SOURCE = "azure-savings-plan"

_FAMILIES = ("Standard_NC", "Standard_ND", "Standard_NV")
_FILTER = "serviceName eq 'Virtual Machines' and ({})".format(
    " or ".join(f"contains(armSkuName, '{family}')" for family in _FAMILIES)
)
_VERSION = "2023-01-01-preview"
_MAX_PAGES = 5_000
_Page = tuple[str, dict[str, str]]
_TERM = re.compile(r"([135]) Years?")
_OTHER_PRODUCT = re.compile(r"\b(Windows|Win|Cloud ?Services|Dedicated)\b")


@dataclass(frozen=True, slots=True)
class RetailPrices:
    """The price list: Azure's GPU machines in every region, in USD."""

    settings: AzureSettings
    clock: Clock

    def offers(self) -> OfferRows:
        """All offers, each once. Raises `RetryLater`, `Refused`, and `Malformed`, also if the service repeats a page;
        earlier rows are yielded first and stay valid."""
        yield from parse.distinct(parse.read_rows(_sort_best_first(self._rows()), self._read))

    def _rows(self) -> Iterator[object]:
        """Every page. A link to the next one is followed at the configured address, because it may name a host behind a
        proxy; only a link to that address itself may name another path."""
        url = urlsplit(self.settings.retail_prices)
        page_request: _Page | None = (url.path, {"api-version": _VERSION, "$filter": _FILTER})
        seen: list[_Page] = []
        origin = url._replace(path="", query="", fragment="").geturl()
        with Api(NAME, origin, self.settings, self.clock, url_key="retail_prices_url") as api:
            while page_request is not None:
                if page_request in seen or len(seen) >= _MAX_PAGES:
                    raise Malformed(
                        f"page {len(seen) + 1} of the price list repeats an earlier page, or the list has no end",
                        where=NAME,
                        hint="only a part of the list was read; the offers before it are kept",
                    )
                seen.append(page_request)
                path, parameters = page_request
                page = api.document(path, params=parameters)
                rows = page.get("Items") if isinstance(page, dict) else None
                if not isinstance(rows, list):
                    raise Malformed("no Items in the answer", where=NAME)
                yield from rows
                page_request = _next_page(page.get("NextPageLink"), url)

    def _read(self, row: Row) -> OfferRows:
        instance_type = parse.name(row.get("armSkuName"), "armSkuName")
        shape = machine(instance_type)
        self._check(row)
        match row.get("type", row.get("priceType")):
            case "Consumption":
                spot = _is_marked(row, "Spot")
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
                raise RowRejected("dev_test_price", f"{instance_type}: for Visual Studio subscribers only")
            case price_type:
                raise RowRejected("malformed_row", f"{instance_type}: a price of type {short(price_type)}")

    def _savings_plans(self, row: Row, shape: AzureMachine) -> OfferRows:
        plans = row.get("savingsPlan")
        plans = [] if plans is None else plans
        for plan in plans if isinstance(plans, list) else [plans]:
            try:
                if not isinstance(plan, dict):
                    raise RowRejected("malformed_row", f"expected a savings plan; got {short(plan)}")
                years = _years(plan.get("term"))
                per_hour = plan.get("retailPrice", plan.get("unitPrice"))
                yield self._offer(row, shape, CapacityType.RESERVED, per_hour, years=years, source=PLAN_SOURCE)
            except RowRejected as error:
                yield error.skipped

    def _check(self, row: Row) -> None:
        """Raises `RowRejected` for rows about something else, and for prices not in force now."""
        label = short(row["armSkuName"])
        parse.usd(row.get("currencyCode"))
        if _is_marked(row, "Low Priority"):
            raise RowRejected("low_priority", f"{label}: the old batch meter")
        product = row.get("productName")
        if not isinstance(product, str):
            raise RowRejected("malformed_row", f"{label}: no productName, so it may be Windows")
        if _OTHER_PRODUCT.search(product):
            raise RowRejected("other_product", f"{label}: {short(product)}")
        if row.get("unitOfMeasure") != "1 Hour":
            raise RowRejected("unexpected_unit", f"{label}: priced per {short(row.get('unitOfMeasure'))}")
        if parse.number(row.get("tierMinimumUnits", 0), "tierMinimumUnits") != 0:
            raise RowRejected("tiered_price", f"{label}: for more than {row['tierMinimumUnits']} hours")
        now = self.clock.now()
        if (starts := _time(row.get("effectiveStartDate"))) and starts > now:
            raise RowRejected("not_in_force", f"{label}: a price from {starts} on")
        if (ends := _time(row.get("effectiveEndDate"))) and ends < now:
            raise RowRejected("not_in_force", f"{label}: a price until {ends}")

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
        raw_name = parse.name(row["armSkuName"], "armSkuName")
        instance_type = find_type(raw_name) or raw_name
        region = parse.name(row.get("armRegionName"), "armRegionName").lower()
        label = f"{region} {instance_type} {capacity_type}{f' {years} years' if years else ''}"
        return Offer(
            provider=NAME,
            region=region,
            zone=None,
            instance_type=instance_type,
            accelerator=shape.gpu,
            count=shape.n,
            capacity_type=capacity_type,
            price=parse.price(amount, label, per=hours),
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


def _sort_best_first(rows: Iterable[object]) -> Iterator[object]:
    """The rows, with the better of two prices of the same thing first. Rows received before a failure are kept."""
    received: list[object] = []
    failure: BrokerError | None = None
    try:
        for row in rows:
            received.append(row)
    except BrokerError as error:
        failure = error
    yield from sorted(received, key=_rank, reverse=True)
    if failure is not None:
        raise failure


def _rank(row: object) -> tuple[bool, str]:
    if not isinstance(row, dict):
        return False, ""
    start = row.get("effectiveStartDate")
    return row.get("isPrimaryMeterRegion") is not False, start if isinstance(start, str) else ""


def _next_page(link: object, base: SplitResult) -> _Page | None:
    """Path and parameters of the next page; None at the end. Raises `Malformed`."""
    if link is None or link == "":
        return None
    try:
        parts = urlsplit(link) if isinstance(link, str) else None
    except ValueError:  # invalid brackets in the address
        parts = None
    if parts is not None:
        path = parts.path if parts.netloc == base.netloc else base.path
        if parts.query or path != base.path:
            return path, dict(parse_qsl(parts.query))
    raise Malformed(f"no link to the next page: {short(link)}", where=NAME)


def _is_marked(row: Row, word: str) -> bool:
    """Whether the meter or the SKU is marked as such; only one of them may be."""
    return any(isinstance(row.get(key), str) and row[key].endswith(word) for key in ("meterName", "skuName"))


def _years(term: object) -> int:
    match = _TERM.fullmatch(term) if isinstance(term, str) else None
    if match is None:
        raise RowRejected("malformed_row", f"a term of {short(term)}")
    return int(match[1])


def _time(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise RowRejected("malformed_row", f"not a time in UTC: {short(value)}")
    return parsed
