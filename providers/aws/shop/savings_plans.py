"""Savings plans (CreateSavingsPlan): a promised hourly payment for lower rates; with a login.

The quote is for the plan that pays for the machines asked for, running all the time: their rate under the plan is the
promised payment. ``clientToken`` is the purchase's key, so the same request creates nothing twice; the plan carries the
key as a tag too. A plan for a later day is queued and can be deleted until then. An active one can be returned for
seven days within the same month (UTC) if it promises at most $100 an hour (Savings Plans user guide, "Returning a
purchased Savings Plan", not verified); AWS then names ``returnableUntil``, which decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_UP, Decimal
from typing import Any

from broker.core.errors import InvalidInput, OutcomeUnknown
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    Undo,
    UndoTerms,
)
from broker.core.values.money import Money
from providers.aws.machines import machine
from providers.aws.products import plan_rates
from providers.aws.settings import NAME, PURCHASE_TAG, REGIONS, utc
from providers.aws.shop.counter import AwsCounter, matching_types
from providers.shops import CloudProduct, undo_refusal

YEARS = {timedelta(days=365): "1 year", timedelta(days=3 * 365): "3 years"}
_QUERY_REGION = REGIONS[0]
_STATES = {
    "payment-pending": OrderState.PENDING,
    "queued": OrderState.PENDING,
    "active": OrderState.HELD,
    "pending-return": OrderState.UNDOING,
    "retired": OrderState.OVER,
    "returned": OrderState.OVER,
    "queued-deleted": OrderState.OVER,
    "payment-failed": OrderState.FAILED,
}
_BEGUN = ("active", "pending-return", "retired", "returned")
_RETURNABLE_FOR, _RETURNABLE_UP_TO = timedelta(days=7), Money.usd(100)
_TOO_SHORT_TO_RETURN = timedelta(hours=1)
_COMMITMENT_STEP = Decimal("0.00001")  # the number of digits that AWS accepts


class SavingsPlans(CloudProduct[AwsCounter]):
    """See `SellsProduct`."""

    repeats_for = timedelta(hours=1)

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote for each kind of plan and payment option."""
        check_years(request.length, "savings plans")
        now = self._counter.now()
        regions = self._counter.settings.regions or REGIONS if request.region is None else (request.region,)
        for rate in plan_rates(self._counter.login(), _QUERY_REGION, regions, tuple(matching_types(request)), now):
            if isinstance(rate, SkippedRow):
                yield rate
            elif rate.length == request.length:
                yield _quote(request, rate.offer.region, rate.offer.instance_type, rate.hourly, rate, now)

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; AWS has no dry run of this call."""
        self._counter.login()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        operation = "create_savings_plan"
        answer = self._counter.login().call_once("savingsplans", _QUERY_REGION, operation, **_parameters(quote, key))
        if not answer.get("savingsPlanId"):
            raise OutcomeUnknown("a plan without an id", where=f"{NAME}: savingsplans:{operation}")
        return Order(id=str(answer["savingsPlanId"]), state=OrderState.PENDING, word="payment-pending")

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return [_order(row) for row in self._plans() if (row.get("tags") or {}).get(PURCHASE_TAG) == key]

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        row = next((row for row in self._plans() if row.get("savingsPlanId") == order.id), {})
        if row.get("state") == "queued":
            return UndoTerms(way="delete_queued", until=utc(row.get("start")))
        until = utc(row.get("returnableUntil"))
        if until is None or until <= self._counter.clock.now():
            when = "" if until is None else f" since {until:%Y-%m-%d %H:%M} UTC"
            raise undo_refusal(NAME, "this savings plan", f"AWS does not take it back{when}")
        return UndoTerms(way="return", refund=quote.paid_upfront, until=until)

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        login = self._counter.login()
        if terms.way == "delete_queued":
            login.call_once("savingsplans", _QUERY_REGION, "delete_queued_savings_plan", savingsPlanId=order.id)
            return
        token = f"return-{order.id}"
        login.call_once("savingsplans", _QUERY_REGION, "return_savings_plan", savingsPlanId=order.id, clientToken=token)

    def _plans(self) -> Iterator[Mapping[str, Any]]:
        yield from self._counter.login().rows(
            "savingsplans",
            _QUERY_REGION,
            "describe_savings_plans",
            "savingsPlans",
            page_key="nextToken",
            states=list(_STATES),
        )


def check_years(length: timedelta, product: str) -> None:
    """Raises `InvalidInput` for a term other than one or three years."""
    if length not in YEARS:
        raise InvalidInput(f"AWS sells {product} for 1 or 3 years; got {length}", where="--for", hint="--for 1y")


def commitment(hourly: Money, machines: int) -> Decimal:
    """The promised payment per hour (USD) for these machines, rounded up to the digits that AWS accepts."""
    return (hourly.dollars * machines).quantize(_COMMITMENT_STEP, rounding=ROUND_UP)


def _quote(request: QuoteRequest, region: str, name: str, hourly: Money, rate: Any, now: datetime) -> CapacityQuote:
    shape, starts = machine(name), request.earliest or now
    hours = request.length // timedelta(hours=1)
    hourly_commitment = commitment(hourly, request.machines)
    total = Money.usd(hourly_commitment) * hours
    upfront = {"no-upfront": Money.ZERO, "all-upfront": total}.get(rate.option, _half(total))
    undo, until = Undo.UNTIL, starts
    if request.earliest is None:
        until = min(now + _RETURNABLE_FOR, _next_month(now))
        if Money.usd(hourly_commitment) > _RETURNABLE_UP_TO or until - now < _TOO_SHORT_TO_RETURN:
            undo = Undo.NONE
    return CapacityQuote(
        product=PurchaseProduct.SAVINGS_PLAN,
        provider=NAME,
        offering=rate.id,
        region=region,
        instance_type=name,
        accelerator=shape.accelerator,
        count=shape.count,
        machines=request.machines,
        starts=starts,
        ends=starts + request.length,
        total=total,
        undo=undo,
        undo_until=until if undo is Undo.UNTIL else None,
        quoted_at=now,
        upfront=upfront,
        at_once=request.earliest is None,
        terms=f"{rate.plan} {rate.option}",
    )


def _half(total: Money) -> Money:
    """Half of the total in whole dollars, rounded up: AWS accepts 50 to 99 % upfront."""
    return Money.usd((total.dollars / 2).to_integral_value(rounding=ROUND_UP))


def _next_month(now: datetime) -> datetime:
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1)


def _parameters(quote: CapacityQuote, key: str) -> dict[str, Any]:
    hours = quote.length // timedelta(hours=1)
    parameters: dict[str, Any] = {
        "savingsPlanOfferingId": quote.offering,
        "commitment": str(quote.total.dollars / hours),
        "clientToken": key,
        "tags": {PURCHASE_TAG: key},
    }
    if quote.paid_upfront and quote.recurring:
        parameters["upfrontPaymentAmount"] = str(quote.paid_upfront.dollars.quantize(Decimal(1)))
    if not quote.at_once:
        parameters["purchaseTime"] = quote.starts
    return parameters


def _order(row: Mapping[str, Any]) -> Order:
    word = str(row.get("state", ""))
    return Order(
        id=str(row.get("savingsPlanId") or ""),
        state=_STATES.get(word, OrderState.PENDING),
        word=word,
        billed_from=utc(row.get("start")) if word in _BEGUN else None,
        billed_to=utc(row.get("end")) if word == "retired" else None,
    )
