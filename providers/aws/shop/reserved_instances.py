"""Reserved instances (PurchaseReservedInstancesOffering): a lower rate for machines of one type; with a login.

The call has no retry key and takes no tag, so it is sent once, and found again by its content and time: type, number,
term, payment option, class and place. They cannot be returned. ``LimitPrice`` limits what is paid upfront.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from broker.core.errors import OutcomeUnknown
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    ResaleTerms,
    Undo,
    UndoTerms,
)
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.settings import NAME
from providers.aws.shop import marketplace
from providers.aws.shop.counter import LINUX, AwsCounter, dry_run, wanted_regions, wanted_types
from providers.aws.shop.savings_plans import check_years
from providers.aws.times import utc
from providers.rows import Unfit, decimal_text, name, usd
from providers.shops import CloudProduct, cannot_be_undone

_BOUGHT = "purchase_reserved_instances_offering"
_STATES = {
    "payment-pending": OrderState.PENDING,
    "queued": OrderState.PENDING,
    "active": OrderState.HELD,
    "retired": OrderState.OVER,
    "queued-deleted": OrderState.OVER,
    "payment-failed": OrderState.FAILED,
}
# AWS's clock may be behind ours by this much.
_EARLIER = timedelta(minutes=2)
_SKUS = {"No Upfront": "no-upfront", "Partial Upfront": "partial-upfront", "All Upfront": "all-upfront"}


class ReservedInstances(CloudProduct[AwsCounter]):
    """See `SellsProduct`."""

    marked = False

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """AWS's own offerings, not those of the marketplace."""
        check_years(request.length, "reserved instances")
        now, seconds = self._counter.now(), request.length // timedelta(seconds=1)

        def sold(login: AwsLogin, region: str) -> Iterator[CapacityQuote | SkippedRow]:
            for instance_type in wanted_types(request):
                rows = login.rows(
                    "ec2",
                    region,
                    "describe_reserved_instances_offerings",
                    "ReservedInstancesOfferings",
                    InstanceType=instance_type,
                    ProductDescription=LINUX,
                    InstanceTenancy="default",
                    MinDuration=seconds,
                    MaxDuration=seconds,
                    IncludeMarketplace=False,
                )
                for row in rows:
                    try:
                        yield _quote(request, row, region, now)
                    except Unfit as error:
                        yield error.skipped

        yield from self._counter.everywhere(sold, wanted_regions(request))

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        dry_run(self._counter.login(), quote.region, _BOUGHT, _parameters(quote))

    def order(self, quote: CapacityQuote, key: str) -> Order:
        answer = self._counter.login().call_once("ec2", quote.region, _BOUGHT, **_parameters(quote))
        if not answer.get("ReservedInstancesId"):
            raise OutcomeUnknown("a purchase without an id", where=f"{NAME}: ec2:{_BOUGHT}")
        return Order(id=str(answer["ReservedInstancesId"]), state=OrderState.PENDING, word="payment-pending")

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        wanted = [{"Name": "instance-type", "Values": [quote.instance_type]}]
        answer = self._counter.login().call("ec2", quote.region, "describe_reserved_instances", Filters=wanted)
        rows = answer.get("ReservedInstances") or ()
        return [_order(row) for row in rows if _is_same(row, quote)]

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        raise cannot_be_undone(
            NAME,
            "a reserved instance",
            "AWS takes none back; a standard one can be sold on AWS's marketplace: gpubroker capacity sell PURCHASE",
        )

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        raise cannot_be_undone(NAME, "a reserved instance", "AWS takes none back")

    # --- the Reserved Instance Marketplace: `ResellsProduct` --------------------------------------------------------

    def resale_terms(self, quote: CapacityQuote, order: Order, machines: int) -> ResaleTerms:
        return marketplace.resale_terms(self._counter, quote, order, machines)

    def sell(self, quote: CapacityQuote, order: Order, terms: ResaleTerms, least: Money, key: str) -> Order:
        return marketplace.sell(self._counter, quote, terms, least, key)

    def find_sales(
        self, quote: CapacityQuote, terms: ResaleTerms, since: datetime, key: str
    ) -> Sequence[tuple[Order, Money]]:
        return marketplace.find_sales(self._counter, quote, terms, key)

    def end_sale(self, quote: CapacityQuote, sale: Order) -> None:
        marketplace.end_sale(self._counter, quote, sale)


def _quote(request: QuoteRequest, row: Mapping[str, Any], region: str, now: datetime) -> CapacityQuote:
    shape = machine(str(row.get("InstanceType")))
    what = f"{region}: reserved {shape.instance_type}"
    usd(row.get("CurrencyCode"))
    hours = request.length // timedelta(hours=1)
    fixed, hourly = _amount(row.get("FixedPrice"), what), _hourly(row, what)
    upfront = Money.usd(fixed) * request.machines
    return CapacityQuote(
        product=PurchaseProduct.RESERVED_INSTANCES,
        provider=NAME,
        offering=name(row.get("ReservedInstancesOfferingId"), what),
        region=region,
        zone=row.get("AvailabilityZoneId") or row.get("AvailabilityZone") or None,
        instance_type=shape.instance_type,
        accelerator=shape.accelerator,
        count=shape.count,
        machines=request.machines,
        starts=now,
        ends=now + request.length,
        total=upfront + Money.usd(hourly * hours) * request.machines,
        undo=Undo.NONE,
        quoted_at=now,
        upfront=upfront,
        at_once=True,
        terms=_terms(row),
    )


def _terms(row: Mapping[str, Any]) -> str:
    option = str(row.get("OfferingType"))
    return f"{row.get('OfferingClass')} {_SKUS.get(option, option)}"


def _hourly(row: Mapping[str, Any], what: str) -> Decimal:
    charges = row.get("RecurringCharges") or ()
    if any(charge.get("Frequency") != "Hourly" for charge in charges):
        raise Unfit("unknown_unit", f"{what}: charged other than by the hour")
    return sum((_amount(charge.get("Amount"), what) for charge in charges), Decimal(0))


def _amount(value: object, what: str) -> Decimal:
    found = decimal_text(repr(value) if isinstance(value, float) else value)  # botocore reads these as floats
    if found is None or found < 0:
        raise Unfit("no_price", f"{what}: no price")
    return found


def _parameters(quote: CapacityQuote) -> dict[str, Any]:
    parameters: dict[str, Any] = {"ReservedInstancesOfferingId": quote.offering, "InstanceCount": quote.machines}
    if quote.paid_upfront:
        limit = {"Amount": float(quote.paid_upfront.dollars), "CurrencyCode": "USD"}
        parameters["LimitPrice"] = limit
    return parameters


def _is_same(row: Mapping[str, Any], quote: CapacityQuote) -> bool:
    begun = utc(row.get("Start"))
    zone = row.get("AvailabilityZoneId") or row.get("AvailabilityZone") or None
    found = (row.get("InstanceType"), row.get("InstanceCount"), row.get("Duration"), _terms(row), zone)
    seconds = quote.length // timedelta(seconds=1)
    wanted = (quote.instance_type, quote.machines, seconds, quote.terms, quote.zone)
    return found == wanted and begun is not None and begun >= quote.quoted_at - _EARLIER


def _order(row: Mapping[str, Any]) -> Order:
    word = str(row.get("State", ""))
    return Order(
        id=str(row.get("ReservedInstancesId") or ""),
        state=_STATES.get(word, OrderState.PENDING),
        word=word,
        billed_from=utc(row.get("Start")) if word in ("active", "retired") else None,
        billed_to=utc(row.get("End")) if word == "retired" else None,
    )
