"""Offers from EC2 products and their terms, in the form of the bulk price list and of GetProducts.

One instance type has dozens of products. Only the plain machine counts: Linux, shared tenancy, used capacity, nothing
pre-installed, no license, on demand or reserved, in a region (no local or wavelength zone). A row's own attributes
decide what it is, never the query. Attribute names are compared without spaces, punctuation and case, so that ``Pre
Installed S/W`` of the list equals ``preInstalledSw`` of the API.

A reserved term's price per hour is its total / (years × 8,760 hours), where the total is hourly price × hours + upfront
fee, exact to the micro-dollar. A term without its upfront fee is skipped, because it would look cheap.

Hourly rates under savings plans (DescribeSavingsPlansOfferingRates): commitments for sale; with a login.

AWS states one rate per hour for each payment option, which includes upfront payments, so nothing is amortized here. A
compute plan applies in all regions; an EC2 instance plan to one family in one region. Neither includes capacity.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.machines import AwsMachine, is_listed, machine
from providers.aws.settings import BILLING, LIST_MAX_AGE, NAME
from providers.rows import HOURS_A_YEAR, OfferRows, RowRejected, decimal_text, name, price, short, usd

NOT_YET = "not_yet_in_force"  # a reason to skip a term that ends with time
_NOT_A_LETTER = re.compile(r"[^a-z]+")
_LENGTH = re.compile(r"([13])\s*yr", re.IGNORECASE)
_UPFRONT = {"no upfront": "no-upfront", "partial upfront": "partial-upfront", "all upfront": "all-upfront"}
_CLASSES = ("standard", "convertible")
# By attribute: the values of the plain machine, and those of other machines, in lower case.
_PLAIN: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "operatingsystem": (
        frozenset({"linux"}),
        frozenset({"windows", "rhel", "suse", "red hat enterprise linux with ha", "ubuntu pro", "na"}),
    ),
    "tenancy": (frozenset({"shared"}), frozenset({"dedicated", "host", "reserved", "na"})),
    "capacitystatus": (
        frozenset({"used"}),
        frozenset({"unusedcapacityreservation", "allocatedcapacityreservation", "unusedcapacityblock",
                   "allocatedhost", "unusedhost", "na"}),
    ),
    "preinstalledsw": (frozenset({"na"}), frozenset({"sql std", "sql ent", "sql web"})),
    "licensemodel": (
        frozenset({"", "na", "none", "no license required"}),
        frozenset({"bring your own license", "license included"}),
    ),
    "locationtype": (
        frozenset({"aws region", ""}),
        frozenset({"aws local zone", "aws wavelength zone", "aws outposts", "aws dedicated local zone"}),
    ),
}  # fmt: skip
_ACCELERATED = ("gpu", "machine learning", "fpga", "media accelerator")


class Attributes(Protocol):
    """A product's attributes, by name in the form of `key`."""

    def get(self, name: str, default: str, /) -> str: ...


@dataclass(slots=True)
class Dimension:
    """One price of a term: an amount per hour (``Hrs``) or once (``Quantity``), as text in some currency."""

    unit: str
    amount: str | None
    currency: str


@dataclass(slots=True)
class Term:
    """One way to pay for a product. ``kind``: ``OnDemand`` or ``Reserved``; the other fields are empty for the first.
    ``effective``: the start, as AWS writes it (a date, or a time in UTC)."""

    kind: str
    effective: str = ""
    length: str = ""
    option: str = ""
    offering_class: str = ""
    dimensions: list[Dimension] = field(default_factory=list)


def key(attribute: str) -> str:
    """The attribute's name in the form for comparisons."""
    return _NOT_A_LETTER.sub("", attribute.lower())


def is_plain(attributes: Attributes) -> bool:
    """Whether this is the plain machine (or its twin for capacity blocks), with accelerators. Raises `RowRejected` for
    a machine with accelerators if a deciding attribute is missing or has an unknown value."""
    if not _is_accelerated(attributes):
        return False
    plain, unsure = True, ""
    for attribute, (plain_values, other_values) in _PLAIN.items():
        value = attributes.get(attribute, "").lower()
        if value in plain_values:
            continue
        if value in other_values:
            return False
        plain, unsure = False, unsure or f"{attribute} is {short(value) if value else 'missing'}"
    if not plain:
        label = f"{attributes.get('regioncode', '')}: {attributes.get('instancetype', '')}"
        raise RowRejected("incomplete_row", f"{label}: {unsure}")
    return True


def _is_accelerated(attributes: Attributes) -> bool:
    if is_listed(attributes.get("instancetype", "")):
        return True
    family = attributes.get("instancefamily", "").lower()
    return attributes.get("gpu", "") not in ("", "0", "NA") or any(word in family for word in _ACCELERATED)


def read_product(attributes: Attributes, terms: Iterable[Term], now: datetime, source: str) -> OfferRows:
    """The offers of a product that `is_plain`, one per term; unusable terms are skipped. ``now``: when the list, the
    current one, was fetched."""
    try:
        shape = machine(attributes.get("instancetype", ""))
        region = name(attributes.get("regioncode", ""), "the region code")
        market = attributes.get("marketoption", "") or "OnDemand"
        if market == "CapacityBlock":
            # Priced by DescribeCapacityBlockOfferings; here it says 0.
            raise RowRejected("capacity_block_without_price", f"{region}: {shape.instance_type}")
        if market != "OnDemand":
            raise RowRejected("unknown_market_option", f"{region}: {shape.instance_type}: {short(market)}")
    except RowRejected as error:
        yield error.skipped
        return
    for term in terms:
        yield _offer(shape, region, term, now, source)


def _offer(shape: AwsMachine, region: str, term: Term, now: datetime, source: str) -> Offer | SkippedRow:
    label = f"{region}: {shape.instance_type}"
    try:
        if term.effective[:10] > now.date().isoformat():
            raise RowRejected(NOT_YET, f"{label}: from {short(term.effective)}")
        if term.kind == "OnDemand":
            hourly = price(_sum(term, "hrs", label), label)
            return offer_of(shape, region, CapacityType.ON_DEMAND, hourly, now, source)
        if term.kind != "Reserved":
            raise RowRejected("unknown_term", f"{label}: {short(term.kind)}")
        return _reserved_offer(shape, region, term, now, source)
    except RowRejected as error:
        return error.skipped


def _reserved_offer(shape: AwsMachine, region: str, term: Term, now: datetime, source: str) -> Offer:
    label = f"{region}: {shape.instance_type}, {term.length}, {term.option}"
    length = _LENGTH.fullmatch(term.length.strip())
    option, offering_class = _UPFRONT.get(term.option.lower()), term.offering_class.lower()
    if length is None or option is None or offering_class not in _CLASSES:
        raise RowRejected("unknown_term", f"{label}, {short(term.offering_class)}")
    years = int(length[1])
    hours = years * HOURS_A_YEAR
    hourly, upfront = _sum(term, "hrs", label), _sum(term, "quantity", label)
    pays_upfront, pays_hourly = option != "no-upfront", option != "all-upfront"
    if (pays_upfront and not upfront) or (pays_hourly and not hourly):
        raise RowRejected(
            "incomplete_term", f"{label}: {'upfront fee' if pays_upfront and not upfront else 'rate'} missing"
        )
    rate = price((hourly or Decimal(0)) * hours + (upfront or Decimal(0)), label, per=hours)
    return offer_of(
        shape, region, CapacityType.RESERVED, rate, now, f"{source}:{offering_class}-{option}", months=12 * years
    )


def _sum(term: Term, unit: str, label: str) -> Decimal | None:
    """The term's amount per hour, or once; None without one. Raises `RowRejected` for two different amounts."""
    amounts: set[Decimal] = set()
    for dimension in term.dimensions:
        if dimension.unit.lower() not in ("hrs", "quantity"):
            raise RowRejected("unknown_unit", f"{label}: per {short(dimension.unit)}")
        if dimension.unit.lower() == unit:
            usd(dimension.currency)
            amount = decimal_text(dimension.amount)
            if amount is not None:
                amounts.add(amount)
    if len(amounts) > 1:
        raise RowRejected("conflicting_prices", f"{label}: {', '.join(map(str, sorted(amounts)))} per {unit}")
    return amounts.pop() if amounts else None


def offer_of(
    shape: AwsMachine,
    region: str,
    kind: CapacityType,
    hourly: Money,
    now: datetime,
    source: str,
    *,
    months: int | None = None,
) -> Offer:
    """A machine at that price of the list; with ``months`` a commitment for sale."""
    return Offer(
        provider=NAME,
        region=region,
        zone=None,
        instance_type=shape.instance_type,
        accelerator=shape.accelerator,
        count=shape.count,
        capacity_type=kind,
        price=hourly,
        as_of=now,
        source=source,
        term_months=months,
        cpus=shape.cpus,
        memory_gib=shape.memory_gib,
        interconnect=shape.interconnect,
        engine=None if months else shape.engine,  # a term has to be bought before anything runs on it
        billing=BILLING,
        max_age=LIST_MAX_AGE,
    )


SOURCE = "aws-savings-plans"

_MONTHS = {365 * 86_400: 12, 3 * 365 * 86_400: 36}
_PLANS = {"Compute": "compute", "EC2Instance": "ec2-instance"}
OPTIONS = {"No Upfront": "no-upfront", "Partial Upfront": "partial-upfront", "All Upfront": "all-upfront"}
_PLAIN_RATE = {"productDescription": "Linux/UNIX", "tenancy": "shared"}
_PER_PAGE = 1000


@dataclass(frozen=True, slots=True)
class PlanRate:
    """The rate of a machine under a plan. ``id``: AWS's, of the plan on sale; ``plan`` and ``option``: its kind and
    payment option; ``hourly``: USD per machine and hour; ``length``: its term; ``offer``: the same as an offer."""

    id: str
    plan: str
    option: str
    hourly: Money
    length: timedelta
    offer: Offer


def plan_rates(
    login: AwsLogin, query_region: str, regions: tuple[str, ...], types: tuple[str, ...], now: datetime
) -> Iterator[PlanRate | SkippedRow]:
    """The rates of these machines in these regions, all plans, terms and payment options. Raises what `AwsLogin.rows`
    raises."""
    rows = login.rows(
        "savingsplans",
        query_region,
        "describe_savings_plans_offering_rates",
        "searchResults",
        page_key="nextToken",
        savingsPlanTypes=list(_PLANS),
        products=["EC2"],
        serviceCodes=["AmazonEC2"],
        maxResults=_PER_PAGE,
        filters=[
            {"name": "region", "values": list(regions)},
            {"name": "instanceType", "values": list(types)},
            *({"name": field, "values": [value]} for field, value in _PLAIN_RATE.items()),
        ],
    )
    for row in rows:
        try:
            rate = _rate(row, regions, types, now)
        except RowRejected as error:
            yield error.skipped
        else:
            if rate is not None:
                yield rate


def _rate(row: Mapping[str, Any], regions: tuple[str, ...], types: tuple[str, ...], now: datetime) -> PlanRate | None:
    """The row as a rate; None for anything but a plain running machine."""
    properties = {item.get("name"): item.get("value") for item in row.get("properties") or ()}
    plan = row.get("savingsPlanOffering") or {}
    if (
        row.get("productType") != "EC2"
        or row.get("operation", "RunInstances") != "RunInstances"
        or "BoxUsage" not in str(row.get("usageType"))
        or any(properties.get(field) != value for field, value in _PLAIN_RATE.items())
        or properties.get("region") not in regions
        or properties.get("instanceType") not in types
        or plan.get("planType") not in _PLANS
    ):
        return None
    shape = machine(str(properties["instanceType"]))
    region = name(properties["region"], "the region")
    label = f"{region}: {shape.instance_type}, {plan['planType']}"
    months, option = _MONTHS.get(plan.get("durationSeconds", 0)), OPTIONS.get(plan.get("paymentOption", ""))
    if months is None or option is None:
        raise RowRejected(
            "unknown_term", f"{label}: {short(plan.get('durationSeconds'))} s, {short(plan.get('paymentOption'))}"
        )
    if row.get("unit") != "Hrs":
        raise RowRejected("unknown_unit", f"{label}: per {short(row.get('unit'))}")
    usd(plan.get("currency"))
    hourly = price(decimal_text(row.get("rate")), label)
    kind, length = _PLANS[plan["planType"]], timedelta(seconds=plan["durationSeconds"])
    offer = offer_of(shape, region, CapacityType.RESERVED, hourly, now, f"{SOURCE}:{kind}-{option}", months=months)
    return PlanRate(str(plan.get("offeringId") or ""), kind, option, hourly, length, offer)
