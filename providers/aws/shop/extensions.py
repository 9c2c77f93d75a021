"""Extensions of capacity blocks (PurchaseCapacityBlockExtension); with a login.

The call has no retry key and takes no tag, so it is sent once, and found again in the block's history of extensions by
the offering. An extension is paid when it is bought and cannot be returned; it lengthens the block's reservation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput, Malformed
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, Undo
from broker.core.values.money import Money
from providers.aws import spot
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.settings import NAME
from providers.aws.shop.blocks import check_length
from providers.aws.shop.counter import AwsCounter, dry_run, read_answer
from providers.aws.times import utc
from providers.rows import Unfit, decimal_text, name, usd, whole
from providers.shops import FinalProduct

_BOUGHT = "purchase_capacity_block_extension"
_STATES = {
    "payment-pending": OrderState.PENDING,
    "payment-succeeded": OrderState.HELD,
    "payment-failed": OrderState.FAILED,
}


class BlockExtensions(FinalProduct[AwsCounter]):
    """See `SellsProduct`."""

    never = (NAME, "an extension of a capacity block", "AWS takes none back")
    marked = False

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """AWS's quotes for lengthening the block ``request.extends`` by ``request.length``."""
        if not request.extends or request.region is None:
            raise InvalidInput(
                "an extension needs the block that it extends",
                where="--extends",
                hint="--extends cr-0123456789abcdef0 --region us-east-1",
            )
        check_length(request.length)
        login, region, now = self._counter.login(), request.region, self._counter.clock.now()
        zones = spot.zone_ids(login, region)
        rows = login.rows(
            "ec2",
            region,
            "describe_capacity_block_extension_offerings",
            "CapacityBlockExtensionOfferings",
            CapacityReservationId=request.extends,
            CapacityBlockExtensionDurationHours=request.length // timedelta(hours=1),
        )
        for row in rows:
            try:
                yield _quote(request, row, region, zones, now)
            except Unfit as error:
                yield error.skipped

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        dry_run(self._counter.login(), quote.region, _BOUGHT, _parameters(quote))

    def order(self, quote: CapacityQuote, key: str) -> Order:
        answer = self._counter.login().call_once("ec2", quote.region, _BOUGHT, **_parameters(quote))
        rows = answer.get("CapacityBlockExtensions") or (None,)
        return read_answer(_order, next((row for row in rows if _is_this(row, quote)), rows[0]))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        login: AwsLogin = self._counter.login()
        rows = login.rows(
            "ec2",
            quote.region,
            "describe_capacity_block_extension_history",
            "CapacityBlockExtensions",
            CapacityReservationIds=[quote.extends],
        )
        return [_order(row) for row in rows if _is_this(row, quote)]


def _quote(
    request: QuoteRequest, row: Mapping[str, Any], region: str, zones: Mapping[str, str], now: datetime
) -> CapacityQuote:
    shape = machine(str(row.get("InstanceType")))
    what = f"{region}: extension of {request.extends}"
    usd(row.get("CurrencyCode"))
    fee = decimal_text(row.get("UpfrontFee"))
    starts, ends = utc(row.get("CapacityBlockExtensionStartDate")), utc(row.get("CapacityBlockExtensionEndDate"))
    if fee is None or fee <= 0:
        raise Unfit("no_price", f"{what}: no price")
    if starts is None or ends is None or ends <= starts:
        raise Unfit("malformed_row", f"{what}: without dates")
    called = row.get("AvailabilityZone") or ""
    return CapacityQuote(
        product=PurchaseProduct.BLOCK_EXTENSION,
        provider=NAME,
        offering=name(row.get("CapacityBlockExtensionOfferingId"), what),
        region=region,
        zone=row.get("AvailabilityZoneId") or zones.get(called, called) or None,
        instance_type=shape.instance_type,
        accelerator=shape.accelerator,
        count=shape.count,
        machines=whole(row.get("InstanceCount"), what),
        starts=starts,
        ends=ends,
        total=Money.usd(fee),
        undo=Undo.NONE,
        quoted_at=now,
        extends=request.extends,
    )


def _parameters(quote: CapacityQuote) -> dict[str, Any]:
    return {"CapacityBlockExtensionOfferingId": quote.offering, "CapacityReservationId": quote.extends}


def _is_this(row: Any, quote: CapacityQuote) -> bool:
    return isinstance(row, dict) and row.get("CapacityBlockExtensionOfferingId") == quote.offering


def _order(row: Any) -> Order:
    if not isinstance(row, dict) or not row.get("CapacityBlockExtensionOfferingId"):
        raise Malformed("an extension without an offering", where=f"{NAME}: ec2:{_BOUGHT}")
    word = str(row.get("CapacityBlockExtensionStatus", ""))
    id = f"{row.get('CapacityReservationId')}/{row['CapacityBlockExtensionOfferingId']}"
    return Order(id=id, state=_STATES.get(word, OrderState.PENDING), word=word)
