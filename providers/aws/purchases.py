"""Buying capacity blocks (PurchaseCapacityBlock); with a login.

A block is paid when it is bought and cannot be returned. The call takes no retry key, so it is sent once; the purchase
carries gpubroker's key as a tag, by which it is found again when the answer was lost. The capacity comes as a capacity
reservation of type ``capacity-block``, in state ``payment-pending`` until AWS has charged for it.

Durations that AWS sells: 1 to 14 days in steps of a day, then to 182 days in steps of a week (EC2 user guide, Capacity
Blocks for ML, read 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput, Malformed, OutcomeUnknown, Refused
from broker.core.market.capacity import ReservationOffer
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, Undo
from providers.aws.capacity_blocks import blocks_for_sale
from providers.aws.login import AwsLogin
from providers.aws.machines import accelerated_types, is_listed, machine
from providers.aws.settings import NAME, PURCHASE_TAG

_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_LINUX = "Linux/UNIX"
_STATES = {
    "payment-pending": OrderState.PENDING,
    "pending": OrderState.PENDING,
    "assessing": OrderState.PENDING,
    "scheduled": OrderState.HELD,
    "active": OrderState.HELD,
    "delayed": OrderState.HELD,
    "expired": OrderState.OVER,
    "cancelling": OrderState.OVER,
    "cancelled": OrderState.OVER,
    "payment-failed": OrderState.FAILED,
    "failed": OrderState.FAILED,
    "unsupported": OrderState.FAILED,
    "unavailable": OrderState.FAILED,
}


def check_length(length: timedelta) -> None:
    """Raises `InvalidInput` for a duration that AWS does not sell."""
    by_day = _DAY <= length <= 14 * _DAY and length % _DAY == timedelta(0)
    by_week = 2 * _WEEK < length <= 26 * _WEEK and length % _WEEK == timedelta(0)
    if not by_day and not by_week:
        raise InvalidInput(
            f"AWS sells capacity blocks of 1 to 14 days, or of 3 to 26 whole weeks; got {length}",
            where="--for",
            hint="--for 2d, --for 3w",
        )


def block_quotes(
    login: AwsLogin, region: str, request: QuoteRequest, zones: Mapping[str, str], now: datetime
) -> Iterator[CapacityQuote | SkippedRow]:
    """The blocks that one region would sell now. Raises what `AwsLogin.rows` raises."""
    hours = request.length // timedelta(hours=1)
    for name in _types(request):
        rows = blocks_for_sale(
            login, region, name, hours, zones, now, machines=request.machines, starts_from=request.earliest
        )
        for row in rows:
            if isinstance(row, SkippedRow):
                yield row
            elif (request.earliest or row.starts) <= row.starts <= (request.latest or row.starts):
                yield _quote(row)


def _types(request: QuoteRequest) -> Sequence[str]:
    if request.instance_type is not None:
        return (request.instance_type,)
    wanted = (request.accelerator, request.count)
    shapes = {name: machine(name) for name in accelerated_types() if is_listed(name)}
    return [name for name, shape in shapes.items() if (shape.accelerator, shape.count) == wanted]


def _quote(row: ReservationOffer) -> CapacityQuote:
    return CapacityQuote(
        product=PurchaseProduct.CAPACITY_BLOCK,
        provider=NAME,
        offering=row.id,
        region=row.region,
        zone=row.zone,
        instance_type=row.instance_type,
        accelerator=row.accelerator,
        count=row.count,
        machines=row.machines,
        starts=row.starts,
        ends=row.ends,
        total=row.total,
        undo=Undo.NONE,
        quoted_at=row.as_of,
    )


def try_block(login: AwsLogin, quote: CapacityQuote, key: str) -> None:
    """A dry run: checks the login's permission and the parameters. Raises what `AwsLogin.call` raises."""
    try:
        login.call("ec2", quote.region, "purchase_capacity_block", **_parameters(quote, key), DryRun=True)
    except Refused as error:
        if error.code != "DryRunOperation":
            raise


def buy_block(login: AwsLogin, quote: CapacityQuote, key: str) -> Order:
    """Buy it. Raises what `AwsLogin.call_once` raises."""
    answer = login.call_once("ec2", quote.region, "purchase_capacity_block", **_parameters(quote, key))
    try:
        return _order(answer.get("CapacityReservation"), quote.region)
    except Malformed as error:
        raise OutcomeUnknown(error.message, where=error.where) from error


def find_blocks(login: AwsLogin, quote: CapacityQuote, key: str) -> Sequence[Order]:
    """The purchases with that tag in the quote's region. Raises what `AwsLogin.rows` raises."""
    wanted = [{"Name": f"tag:{PURCHASE_TAG}", "Values": [key]}]
    rows = login.rows("ec2", quote.region, "describe_capacity_reservations", "CapacityReservations", Filters=wanted)
    return [_order(row, quote.region) for row in rows if _carries(row, key)]


def _parameters(quote: CapacityQuote, key: str) -> dict[str, Any]:
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": PURCHASE_TAG, "Value": key}]}]
    return {"CapacityBlockOfferingId": quote.offering, "InstancePlatform": _LINUX, "TagSpecifications": tags}


def _carries(row: Mapping[str, Any], key: str) -> bool:
    return any(tag.get("Key") == PURCHASE_TAG and tag.get("Value") == key for tag in row.get("Tags") or ())


def _order(row: Any, region: str) -> Order:
    if not isinstance(row, dict) or not row.get("CapacityReservationId"):
        raise Malformed("a purchase without an id", where=f"{NAME}/{region}: ec2:purchase_capacity_block")
    word = str(row.get("State", ""))
    return Order(id=str(row["CapacityReservationId"]), state=_STATES.get(word, OrderState.PENDING), word=word)
