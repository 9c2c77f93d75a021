"""Hourly rates under savings plans (DescribeSavingsPlansOfferingRates): commitments for sale; with a login.

AWS states one rate per hour for each payment option, which includes upfront payments, so nothing is amortized here. A
compute plan applies in all regions; an EC2 instance plan to one family in one region. Neither includes capacity.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.products import offer_of
from providers.rows import RowRejected, decimal_text, name, price, short, usd

SOURCE = "aws-savings-plans"

_MONTHS = {365 * 86_400: 12, 3 * 365 * 86_400: 36}
_PLANS = {"Compute": "compute", "EC2Instance": "ec2-instance"}
OPTIONS = {"No Upfront": "no-upfront", "Partial Upfront": "partial-upfront", "All Upfront": "all-upfront"}
_PLAIN = {"productDescription": "Linux/UNIX", "tenancy": "shared"}
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
            *({"name": field, "values": [value]} for field, value in _PLAIN.items()),
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
        or any(properties.get(field) != value for field, value in _PLAIN.items())
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
