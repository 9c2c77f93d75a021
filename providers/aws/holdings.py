"""The account's holdings: capacity reservations and blocks, reserved instances, savings plans; with a login.

Held capacity also becomes `reserved` offers: it is paid whether used or not, so an hour of it costs nothing more. The
API does not give its value. Reserved instances and savings plans are discounts without capacity and of unknown use, so
they are reported but make no offers.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer, SkippedRow
from broker.core.values.money import Money
from providers.aws.login import AwsLogin
from providers.aws.machines import is_listed, machine
from providers.aws.settings import BILLING, NAME, PURCHASE_TAG, SPOT_MAX_AGE, utc
from providers.rows import OfferRows, RowRejected, is_held, merge_offers, name

SOURCE = "aws-capacity-reservations"

CAPACITY_RESERVATION = "capacity_reservation"
CAPACITY_BLOCK = "capacity_block"
RESERVED_INSTANCES = "reserved_instances"
SAVINGS_PLAN = "savings_plan"

_LINUX = "Linux/UNIX"
# States of current and future holdings; the others have ended, were refused, or were never paid.
_HELD = {"active", "scheduled", "pending", "assessing", "delayed"}
_HELD_PLANS = ["active", "queued"]


def capacity_reservations(login: AwsLogin, region: str) -> Iterator[Reservation]:
    """On-demand capacity reservations and capacity blocks for Linux, of one region. Raises what `AwsLogin.rows`
    raises."""
    for row in login.rows("ec2", region, "describe_capacity_reservations", "CapacityReservations"):
        instance_type = row.get("InstanceType", "")
        if row.get("State") not in _HELD or row.get("InstancePlatform") != _LINUX or not is_listed(instance_type):
            continue
        yield Reservation(
            id=row["CapacityReservationId"],
            provider=NAME,
            region=region,
            zone=row.get("AvailabilityZoneId") or row.get("AvailabilityZone"),
            instance_type=instance_type,
            machines=row.get("TotalInstanceCount", 0),
            kind=CAPACITY_BLOCK if row.get("ReservationType") == "capacity-block" else CAPACITY_RESERVATION,
            starts=utc(row.get("StartDate")),
            ends=utc(row.get("EndDate")),
            free=row.get("AvailableInstanceCount") if row.get("State") == "active" else 0,
            open=row.get("InstanceMatchCriteria") == "open" and row.get("Tenancy", "default") == "default",
            mark=next((str(tag.get("Value")) for tag in row.get("Tags") or () if tag.get("Key") == PURCHASE_TAG), ""),
        )


def reserved_instances(login: AwsLogin, region: str) -> Iterator[Reservation]:
    """Active reserved instances for Linux, of one region; only zonal ones hold capacity. Raises what `AwsLogin.call`
    raises."""
    answer = login.call("ec2", region, "describe_reserved_instances")
    for row in answer.get("ReservedInstances") or ():
        instance_type = row.get("InstanceType", "")
        linux = str(row.get("ProductDescription", "")).startswith(_LINUX)
        if row.get("State") != "active" or not linux or not is_listed(instance_type):
            continue
        yield Reservation(
            id=row["ReservedInstancesId"],
            provider=NAME,
            region=region,
            zone=row.get("AvailabilityZoneId") or row.get("AvailabilityZone"),
            instance_type=instance_type,
            machines=row.get("InstanceCount", 0),
            kind=RESERVED_INSTANCES,
            starts=utc(row.get("Start")),
            ends=utc(row.get("End")),
            holds_capacity=row.get("Scope") == "Availability Zone",
        )


def savings_plans(login: AwsLogin, query_region: str) -> Iterator[Reservation]:
    """Savings plans that apply to EC2. ``instance_type`` is the family of an EC2 instance plan (``p5.*``), ``*`` for a
    compute plan; ``region`` is ``*`` where it applies everywhere. Raises what `AwsLogin.rows` raises."""
    rows = login.rows(
        "savingsplans", query_region, "describe_savings_plans", "savingsPlans", page_key="nextToken", states=_HELD_PLANS
    )
    for row in rows:
        if "EC2" not in (row.get("productTypes") or ()):
            continue
        family = row.get("ec2InstanceFamily")
        yield Reservation(
            id=row.get("savingsPlanId") or row.get("savingsPlanArn", ""),
            provider=NAME,
            region=row.get("region") or "*",
            zone=None,
            instance_type=f"{family}.*" if family else "*",
            machines=0,
            kind=SAVINGS_PLAN,
            starts=utc(row.get("start")),
            ends=utc(row.get("end")),
            holds_capacity=False,
        )


def reservation_offers(reservations: Iterable[Reservation], now: datetime) -> OfferRows:
    """Current holdings as offers: one per zone and instance type, with the machines of all its reservations. Excludes
    targeted reservations, which a machine must name, because no engine does."""
    yield from merge_offers(
        _offer(reservation, now)
        for reservation in reservations
        if reservation.holds_capacity and is_held(reservation, now)
    )


def _offer(reservation: Reservation, now: datetime) -> Offer | SkippedRow:
    try:
        shape = machine(reservation.instance_type)
        return Offer(
            provider=NAME,
            region=reservation.region,
            zone=name(reservation.zone, f"{reservation.id}: the zone"),
            instance_type=shape.instance_type,
            accelerator=shape.accelerator,
            count=shape.count,
            capacity_type=CapacityType.RESERVED,
            price=Money.ZERO,
            as_of=now,
            source=SOURCE if reservation.open else f"{SOURCE}:targeted",
            cpus=shape.cpus,
            memory_gib=shape.memory_gib,
            interconnect=shape.interconnect,
            slots=max(0, reservation.free or 0),
            engine=shape.engine if reservation.open else None,
            money=MoneyKind.AMORTISED,
            billing=BILLING,
            max_age=SPOT_MAX_AGE,
        )
    except RowRejected as error:
        return error.skipped
