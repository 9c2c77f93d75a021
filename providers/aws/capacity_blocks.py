"""Capacity blocks for sale (DescribeCapacityBlockOfferings): machines for future days, paid upfront; with a login.

Queried by instance type and region. AWS decides how far ahead it looks, and returns the few nearest blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.core.errors import Refused
from broker.core.market.capacity import ReservationOffer
from broker.core.market.offers import SkippedRow
from broker.core.values.money import Money, in_microseconds
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.settings import NAME
from providers.rows import RowRejected, decimal_text, name, price, usd, whole

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
    starts, ends = _utc(row.get("StartDate"), label), _utc(row.get("EndDate"), label)
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


def _utc(time: object, label: str) -> datetime:
    if not isinstance(time, datetime):
        raise RowRejected("malformed_row", f"{label}: without dates")
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
