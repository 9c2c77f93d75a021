"""Buying capacity blocks (PurchaseCapacityBlock); with a login.

A block is paid when it is bought and cannot be returned. The call takes no retry key, so it is sent once; the purchase
carries gpubroker's key as a tag, by which it is found again when the answer was lost. The capacity comes as a capacity
reservation of type ``capacity-block``, in state ``payment-pending`` until AWS has charged for it.

Durations that AWS sells: 1 to 14 days in steps of a day, then to 182 days in steps of a week (EC2 user guide, Capacity
Blocks for ML, read 2026-11-22).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput, Malformed, Refused
from broker.core.market.capacity import ReservationOffer
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, Undo
from broker.core.values.money import Money, in_microseconds
from providers.aws import spot
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.settings import NAME, PURCHASE_TAG, utc
from providers.aws.shop.counter import (
    LINUX,
    AwsCounter,
    dry_run,
    has_purchase_tag,
    matching_types,
    purchase_tags,
    read_answer,
    requested_regions,
)
from providers.rows import RowRejected, decimal_text, name, price, usd, whole
from providers.shops import FinalProduct

# Capacity blocks for sale (DescribeCapacityBlockOfferings): machines for future days, paid upfront; with a login.
#
# Queried by instance type and region. AWS decides how far ahead it looks, and returns the few nearest blocks.
_HOUR = 3_600_000_000  # microseconds
# Prefixes of EC2's error codes for that.
_NOT_SOLD = ("Unsupported", "InstanceTypeNotSupported", "InvalidInstanceType")


def blocks_for_sale(
    login: AwsLogin,
    region: str,
    instance_type: str,
    hours: int,
    zones: Mapping[str, str],
    now: datetime,
    *,
    machines: int = 1,
    starts_from: datetime | None = None,
) -> Iterator[ReservationOffer | SkippedRow]:
    """Blocks of that many machines for ``hours`` in one region that begin at ``starts_from`` (UTC; None: at any time)
    or later. ``zones``: names to IDs. Raises as `AwsLogin.rows`; a machine that is not sold in blocks is not an error.
    """
    start_filter: dict[str, Any] = {} if starts_from is None else {"StartDateRange": starts_from}
    rows = login.rows(
        "ec2",
        region,
        "describe_capacity_block_offerings",
        "CapacityBlockOfferings",
        InstanceType=instance_type,
        InstanceCount=machines,
        CapacityDurationHours=hours,
        **start_filter,
    )
    try:
        for row in rows:
            yield _offer_or_skip(row, region, zones, now)
    except Refused as error:
        if not error.code.startswith(_NOT_SOLD):
            raise


def _offer_or_skip(
    row: Mapping[str, Any], region: str, zones: Mapping[str, str], now: datetime
) -> ReservationOffer | SkippedRow:
    try:
        return _offer(row, region, zones, now)
    except RowRejected as error:
        return error.skipped


def _offer(row: Mapping[str, Any], region: str, zones: Mapping[str, str], now: datetime) -> ReservationOffer:
    shape = machine(str(row.get("InstanceType")))
    label = f"{region}: block of {shape.instance_type}"
    usd(row.get("CurrencyCode"))
    starts, ends = utc(row.get("StartDate")), utc(row.get("EndDate"))
    if starts is None or ends is None:
        raise RowRejected("malformed_row", f"{label}: without dates")
    machines = whole(row.get("InstanceCount"), label)
    length = in_microseconds(ends - starts)
    if ends - starts < timedelta(hours=1):
        raise RowRejected("malformed_row", f"{label}: from {starts} to {ends}")
    fee = decimal_text(row.get("UpfrontFee"))
    scaled_fee = None if fee is None else fee * _HOUR
    per_machine_hour = price(scaled_fee, label, per=machines * length)
    assert fee is not None
    zone_name = row.get("AvailabilityZone") or ""
    return ReservationOffer(
        id=name(row.get("CapacityBlockOfferingId"), label),
        provider=NAME,
        region=region,
        zone=zones.get(zone_name, zone_name) or None,
        instance_type=shape.instance_type,
        accelerator=shape.accelerator,
        count=shape.count,
        machines=machines,
        starts=starts,
        ends=ends,
        total=Money.usd(fee),
        per_machine_hour=per_machine_hour,
        as_of=now,
    )


_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_OPERATION = "purchase_capacity_block"
# States of capacity reservations and blocks (EC2 API: CapacityReservation, State).
STATES = {
    "payment-pending": OrderState.PENDING,
    "pending": OrderState.PENDING,
    "assessing": OrderState.PENDING,
    "scheduled": OrderState.HELD,
    "active": OrderState.HELD,
    "delayed": OrderState.HELD,
    "cancelling": OrderState.UNDOING,
    "expired": OrderState.OVER,
    "cancelled": OrderState.OVER,
    "payment-failed": OrderState.FAILED,
    "failed": OrderState.REFUSED,
    "unsupported": OrderState.REFUSED,
    "unavailable": OrderState.REFUSED,
}


class CapacityBlocks(FinalProduct[AwsCounter]):
    """See `SellsProduct`."""

    never = (NAME, "a capacity block", "AWS takes none back")

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """The blocks that the regions would sell now."""
        check_length(request.length)
        now = self._counter.clock.now()
        hours = request.length // timedelta(hours=1)

        def regional_quotes(login: AwsLogin, region: str) -> Iterator[CapacityQuote | SkippedRow]:
            zones = spot.zone_ids(login, region)
            for instance_type in matching_types(request):
                rows = blocks_for_sale(
                    login,
                    region,
                    instance_type,
                    hours,
                    zones,
                    now,
                    machines=request.machines,
                    starts_from=request.earliest,
                )
                for row in rows:
                    if isinstance(row, SkippedRow):
                        yield row
                    elif (request.earliest or row.starts) <= row.starts <= (request.latest or row.starts):
                        yield _quote(row)

        yield from self._counter.everywhere(regional_quotes, requested_regions(request))

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        dry_run(self._counter.login(), quote.region, _OPERATION, _parameters(quote, key))

    def order(self, quote: CapacityQuote, key: str) -> Order:
        answer = self._counter.login().call_once("ec2", quote.region, _OPERATION, **_parameters(quote, key))
        return read_answer(reservation_order, answer.get("CapacityReservation"))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        rows = tagged_reservations(self._counter.login(), quote.region, key)
        return [reservation_order(row) for row in rows]


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


def tagged_reservations(login: AwsLogin, region: str, key: str) -> list[Mapping[str, Any]]:
    """The capacity reservations and blocks with the tag of the purchase. Raises what `AwsLogin.rows` raises."""
    filters = [{"Name": f"tag:{PURCHASE_TAG}", "Values": [key]}]
    rows = login.rows("ec2", region, "describe_capacity_reservations", "CapacityReservations", Filters=filters)
    return [row for row in rows if has_purchase_tag(row, key)]


def reservation_order(row: Any) -> Order:
    """A capacity reservation as an order. Raises `Malformed`."""
    if not isinstance(row, dict) or not row.get("CapacityReservationId"):
        raise Malformed("a purchase without an id", where=f"{NAME}: ec2:CapacityReservation")
    word = str(row.get("State", ""))
    return Order(id=str(row["CapacityReservationId"]), state=STATES.get(word, OrderState.PENDING), word=word)


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


def _parameters(quote: CapacityQuote, key: str) -> dict[str, Any]:
    tags = purchase_tags(key, "capacity-reservation")
    return {"CapacityBlockOfferingId": quote.offering, "InstancePlatform": LINUX, "TagSpecifications": tags}
