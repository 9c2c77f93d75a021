"""Held capacity of the subscription: capacity reservations, in their groups; with a login.

It is paid whether used or not (at the on-demand price, or once for a block), so use costs nothing more. The API does
not give its value. Any machine of the size can use a group of type Open; for other groups a machine must name the
group, which no engine here does. What Azure calls a reservation is a discount without capacity: see
`reserved_instances`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer, SkippedRow
from broker.core.values.money import Money
from providers.azure.errors import NotFound
from providers.azure.fields import AzureLocations, count, nested_object, parts_of, region_of, texts, utc
from providers.azure.login import AzureLogin
from providers.azure.machines import find_type, machine
from providers.azure.settings import HELD_AGE, NAME, PURCHASE_TAG
from providers.failures import Failures
from providers.rows import OfferRows, RowRejected, is_held, merge_offers, name

SOURCE = "azure-capacity-reservations"
CAPACITY_RESERVATION = "capacity_reservation"
CAPACITY_BLOCK = "capacity_block"

_HELD = ("succeeded", "updating")


def capacity_reservations(login: AzureLogin, locations: AzureLocations) -> Iterator[Reservation]:
    """The reservations of machines with accelerators in all regions. Raises as `AzureLogin.rows`; a failure for one
    group, or for the use of one reservation, is raised at the end, after the others."""
    where, failures = "capacity reservation groups", Failures()
    groups = login.rows(where, lambda client: client.capacity_reservation_groups.list_by_subscription())
    for group in failures.until_failure(groups):
        names = parts_of(group.get("id"))
        resource_group, group_name = names.get("resourcegroups"), names.get("capacityreservationgroups")
        if resource_group and group_name:
            kind = nested_object(group, "properties").get("reservationType")
            yield from _reservations_in_group(login, resource_group, group_name, kind, locations, failures)
    failures.raise_any()


def _reservations_in_group(
    login: AzureLogin, resource_group: str, group_name: str, kind: object, locations: AzureLocations, failures: Failures
) -> Iterator[Reservation]:
    where = f"{group_name}: capacity reservations"
    rows = login.rows(
        where,
        lambda client: client.capacity_reservations.list_by_capacity_reservation_group(resource_group, group_name),
    )
    for row in failures.until_failure(rows):
        instance_type = find_type(str(nested_object(row, "sku").get("name")))
        state = str(nested_object(row, "properties").get("provisioningState", "")).lower()
        id = parts_of(row.get("id")).get("capacityreservations")
        if instance_type is None or state not in _HELD or not id:
            continue
        detail = failures.result(partial(_reservation_detail, login, resource_group, group_name, id), None)
        yield _reservation(row, detail or {}, f"{group_name}/{id}", instance_type, kind, locations)


def _reservation_detail(login: AzureLogin, resource_group: str, group: str, id: str) -> Mapping[str, Any]:
    """The reservation with its use; empty if it has just gone."""
    try:
        answer = login.call(
            f"{group}/{id}: capacity reservation",
            lambda client: client.capacity_reservations.get(resource_group, group, id, expand="instanceView"),
        )
    except NotFound:
        return {}
    return answer if isinstance(answer, Mapping) else {}


def _reservation(
    row: Mapping[str, Any],
    detail: Mapping[str, Any],
    id: str,
    instance_type: str,
    kind: object,
    locations: AzureLocations,
) -> Reservation:
    region, zones = region_of(row), list(texts(row.get("zones")))
    plan = nested_object(row, "properties", "scheduleProfile")
    machines = count(nested_object(row, "sku").get("capacity"))
    return Reservation(
        id=id,
        provider=NAME,
        region=region,
        zone=locations.zone(region, zones[0]) if zones else None,
        instance_type=instance_type,
        machines=machines or 0,
        kind=CAPACITY_BLOCK if kind == "Block" or plan else CAPACITY_RESERVATION,
        starts=utc(plan.get("start")) or utc(nested_object(row, "properties").get("timeCreated")),
        ends=utc(plan.get("end")),
        free=_free(machines, nested_object(detail, "properties", "instanceView", "utilizationInfo")),
        open=kind == "Open",
        mark=str(nested_object(row, "tags").get(PURCHASE_TAG, "")),
    )


def _free(machines: int | None, utilization: Mapping[str, Any]) -> int | None:
    """Unused machines; None if Azure does not report them. In a shared group, others' machines count too."""
    allocated = utilization.get("virtualMachinesAllocated")
    shared = utilization.get("usedReservedCountBySubscription")
    if machines is None or not (utilization and isinstance(allocated, list | None)):
        return None
    counts = [count(value) or 0 for value in shared.values()] if isinstance(shared, Mapping) else []
    return max(0, machines - max(len(allocated or ()), sum(counts)))


def reservation_offers(reservations: Iterable[Reservation], now: datetime) -> OfferRows:
    """Current holdings as offers: one per place and instance type, with the free machines of all its reservations
    (unknown if unknown for one of them). Excludes reservations that a machine must name, because no engine does."""
    yield from merge_offers(_offer(reservation, now) for reservation in reservations if is_held(reservation, now))


def _offer(reservation: Reservation, now: datetime) -> Offer | SkippedRow:
    try:
        shape = machine(reservation.instance_type)
        return Offer(
            provider=NAME,
            region=name(reservation.region, f"{reservation.id}: the region"),
            zone=name(reservation.zone, f"{reservation.id}: the zone") if reservation.zone else None,
            instance_type=reservation.instance_type,
            accelerator=shape.gpu,
            count=shape.n,
            capacity_type=CapacityType.RESERVED,
            price=Money.ZERO,
            as_of=now,
            source=SOURCE if reservation.open else f"{SOURCE}:targeted",
            cpus=shape.vcpus,
            memory_gib=shape.gib,
            interconnect=shape.link,
            slots=reservation.free,
            engine=shape.engine if reservation.open else None,
            money=MoneyKind.AMORTISED,
            max_age=HELD_AGE,
        )
    except RowRejected as error:
        return error.skipped
