"""The Reserved Instance Marketplace (CreateReservedInstancesListing): standard reserved instances that are sold again.

The listing carries the purchase's key as ``ClientToken``, by which AWS knows it and by which it is found again. AWS
takes 12 % of the upfront price that a buyer pays; the hourly charge goes over to the buyer. A reserved instance can be
listed once it has been active for 30 days and has a month or more left (EC2 user guide, "Sell Reserved Instances").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any

from broker.core.errors import OutcomeUnknown, Refused
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, ResaleTerms
from broker.core.values.money import Money
from providers.aws.settings import NAME
from providers.aws.shop.counter import AwsCounter
from providers.aws.times import utc

_FEE = Decimal("0.12")
_MONTH, _FIRST = timedelta(days=30), timedelta(days=30)
_STATES = {
    "pending": OrderState.PENDING,
    "active": OrderState.PENDING,
    "cancelled": OrderState.OVER,
    "closed": OrderState.HELD,
}


def resale_terms(counter: AwsCounter, quote: CapacityQuote, order: Order, machines: int) -> ResaleTerms:
    """The part that can be listed. Raises `Refused` if AWS would not list it, and what `AwsLogin.call` raises."""
    answer = counter.login().call("ec2", quote.region, "describe_reserved_instances", ReservedInstancesIds=[order.id])
    row: Mapping[str, Any] = next(iter(answer.get("ReservedInstances") or ()), {})
    begun, ends, now = utc(row.get("Start")), utc(row.get("End")), counter.now()
    if row.get("OfferingClass") != "standard":
        raise _refused("AWS lists standard reserved instances alone", "use it, or offer it to other teams")
    if row.get("State") != "active" or begun is None or ends is None:
        raise _refused(f"it is {row.get('State', 'not listed by AWS')}", "see the EC2 console")
    if now < begun + _FIRST:
        raise _refused("it must have been active for 30 days", f"from {begun + _FIRST:%Y-%m-%d} on")
    if ends - now < _MONTH:
        raise _refused("less than a month of it is left", "use it, or offer it to other teams")
    months = (ends - now) // _MONTH
    return ResaleTerms(
        market="the EC2 Reserved Instance Marketplace",
        machines=machines,
        starts=now,
        ends=ends,
        fee=float(_FEE),
        reference=f"{order.id}/{months}",
        notes="the account must be registered as a seller; AWS pays into its bank account",
    )


def sell(counter: AwsCounter, quote: CapacityQuote, terms: ResaleTerms, least: Money, key: str) -> Order:
    """List all machines, each for its part of ``least``."""
    id, _, months = terms.reference.partition("/")
    price = (least.dollars / terms.machines).quantize(Decimal("0.01"), rounding=ROUND_CEILING)
    answer = counter.login().call_once(
        "ec2",
        quote.region,
        "create_reserved_instances_listing",
        ReservedInstancesId=id,
        InstanceCount=terms.machines,
        PriceSchedules=[{"Term": int(months), "Price": float(price), "CurrencyCode": "USD"}],
        ClientToken=key,
    )
    rows = answer.get("ReservedInstancesListings") or ()
    if not rows or not rows[0].get("ReservedInstancesListingId"):
        raise OutcomeUnknown("a listing without an id", where=f"{NAME}: ec2:create_reserved_instances_listing")
    return _listed(rows[0], terms)[0]


def find_sales(
    counter: AwsCounter, quote: CapacityQuote, terms: ResaleTerms, key: str
) -> Sequence[tuple[Order, Money]]:
    """The listings of this sale, by its key."""
    wanted = [{"Name": "reserved-instances-id", "Values": [terms.reference.partition("/")[0]]}]
    answer = counter.login().call("ec2", quote.region, "describe_reserved_instances_listings", Filters=wanted)
    rows = answer.get("ReservedInstancesListings") or ()
    return [_listed(row, terms) for row in rows if row.get("ClientToken") == key]


def end_sale(counter: AwsCounter, quote: CapacityQuote, sale: Order) -> None:
    """Cancel the listing."""
    counter.login().call_once(
        "ec2", quote.region, "cancel_reserved_instances_listing", ReservedInstancesListingId=sale.id
    )


def _listed(row: Mapping[str, Any], terms: ResaleTerms) -> tuple[Order, Money]:
    word = str(row.get("Status", ""))
    prices = [Decimal(str(one.get("Price") or 0)) for one in row.get("PriceSchedules") or () if one.get("Active")]
    sold = sum(one.get("InstanceCount") or 0 for one in row.get("InstanceCounts") or () if one.get("State") == "sold")
    paid = max(prices, default=Decimal(0)) * (sold or terms.machines)
    brings = Money.usd((paid * (1 - _FEE)).quantize(Decimal("0.01")))
    state = _STATES.get(word, OrderState.PENDING)
    if state is OrderState.HELD and not sold:
        state = OrderState.OVER  # closed without a buyer
    if state is OrderState.OVER and sold:
        word = f"{word}; {sold} of {terms.machines} were sold before, which brings {brings.rounded(2)}: book it by hand"
    return Order(id=str(row["ReservedInstancesListingId"]), state=state, word=word), brings


def _refused(why: str, instead: str) -> Refused:
    return Refused(f"it cannot be sold on the EC2 Reserved Instance Marketplace: {why}", where=NAME, hint=instead)
