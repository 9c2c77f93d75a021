"""The project's holdings: reservations, future reservations, and commitments.

A reservation is paid whether used or not, so its use costs nothing more: it also becomes `reserved` offers. The API
does not give its value. A future reservation becomes a reservation at its start, and is reported until then. A
commitment is a discount without capacity; its use is unknown here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer, SkippedRow
from broker.core.purchases.purchases import is_purchase
from broker.core.values.money import Money
from providers.gcp.accelerators import family_of
from providers.gcp.calls import GcpCaller, ListMethod, region_of, resource_name, utc
from providers.gcp.machines import GcpMachine
from providers.gcp.settings import BILLING, ENGINE, HELD_MAX_AGE, NAME
from providers.rows import OfferRows, merge_offers

SOURCE = "gcp-reservations"

MACHINES = "-machines"
"""The suffix to a purchase's id in the name of the reservation that its order makes."""

RESERVATION = "reservation"
FUTURE_RESERVATION = "future_reservation"
COMMITMENT = "commitment"

_RESERVATIONS = ListMethod("ReservationsClient", "aggregated_list", "ReservationAggregatedList", "reservations", True)
_FUTURE = ListMethod(
    "FutureReservationsClient",
    "aggregated_list",
    "FutureReservationsAggregatedListResponse",
    "futureReservations",
    True,
)
_COMMITMENTS = ListMethod("RegionCommitmentsClient", "aggregated_list", "CommitmentAggregatedList", "commitments", True)
_PER_PAGE = 500
_HELD = ("READY", "UPDATING")
# Agreed, but not yet a reservation; the other states are over, refused, or not agreed.
_AGREED = ("APPROVED", "COMMITTED", "PROCURING", "PROVISIONING", "PENDING_AMENDMENT_APPROVAL")
_COMMITTED = ("ACTIVE", "NOT_YET_ACTIVE")
# The machines that a type of commitment is for; N1's type includes machines without GPUs.
COMMITMENT_TYPES = {
    "ACCELERATOR_OPTIMIZED": "a2-*",
    "ACCELERATOR_OPTIMIZED_A3": "a3-*",
    "ACCELERATOR_OPTIMIZED_A3_MEGA": "a3-megagpu-*",
    "ACCELERATOR_OPTIMIZED_A3_ULTRA": "a3-ultragpu-*",
    "ACCELERATOR_OPTIMIZED_A4": "a4-*",
    "GRAPHICS_OPTIMIZED": "g2-*",
    "GRAPHICS_OPTIMIZED_G4": "g4-*",
    "GENERAL_PURPOSE": "n1-*",
}


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """A reservation, and the GPUs attached to each of its machines besides those that come with the machine type."""

    reservation: Reservation
    attached: tuple[str, int] | None


def reservations(caller: GcpCaller) -> Iterator[HeldReservation]:
    """Current reservations of machines with accelerators. Raises what `GcpCaller.rows` raises."""
    for listed_row in caller.rows(_RESERVATIONS, project=caller.login.project, max_results=_PER_PAGE):
        if isinstance(listed_row, SkippedRow) or listed_row.row.status not in _HELD:
            continue
        row, spec = listed_row.row, listed_row.row.specific_reservation
        attached = _attached_gpus(spec.instance_properties)
        instance_type = resource_name(spec.instance_properties.machine_type)
        if not row.name or not spec.count or not _has_accelerator(instance_type, attached):
            continue
        reservation = Reservation(
            id=f"{listed_row.place}/{row.name}",
            provider=NAME,
            region=region_of(listed_row.place),
            zone=listed_row.place,
            instance_type=instance_type,
            machines=spec.count,
            kind=RESERVATION,
            starts=utc(row.creation_timestamp),
            ends=utc(row.delete_at_time),
            free=max(0, spec.count - spec.in_use_count),
            open=not row.specific_reservation_required,
            mark=_mark(row.name),
        )
        yield HeldReservation(reservation, attached)


def future_reservations(caller: GcpCaller) -> Iterator[Reservation]:
    """Agreed future reservations. Raises what `GcpCaller.rows` raises."""
    for listed_row in caller.rows(_FUTURE, project=caller.login.project, max_results=_PER_PAGE):
        if isinstance(listed_row, SkippedRow) or listed_row.row.status.procurement_status not in _AGREED:
            continue
        row, spec = listed_row.row, listed_row.row.specific_sku_properties
        instance_type = resource_name(spec.instance_properties.machine_type)
        if (
            not row.name
            or not spec.total_count
            or not _has_accelerator(instance_type, _attached_gpus(spec.instance_properties))
        ):
            continue
        starts, ends = utc(row.time_window.start_time), utc(row.time_window.end_time)
        if starts and not ends and row.time_window.duration.seconds:
            ends = starts + timedelta(seconds=min(row.time_window.duration.seconds, 10**9))
        yield Reservation(
            id=f"{listed_row.place}/{row.name}",
            provider=NAME,
            region=region_of(listed_row.place),
            zone=listed_row.place,
            instance_type=instance_type,
            machines=spec.total_count,
            kind=FUTURE_RESERVATION,
            starts=starts,
            ends=ends,
            free=0,
            open=not row.specific_reservation_required,
            mark=_mark(row.name),
        )


def commitments(caller: GcpCaller) -> Iterator[Reservation]:
    """Commitments for machines that can have accelerators; ``instance_type`` is a pattern. Raises what `GcpCaller.rows`
    raises."""
    for listed_row in caller.rows(_COMMITMENTS, project=caller.login.project, max_results=_PER_PAGE):
        if isinstance(listed_row, SkippedRow) or listed_row.row.status not in _COMMITTED:
            continue
        row = listed_row.row
        has_gpus = any(resource.type_ == "ACCELERATOR" for resource in row.resources)
        if not row.name or row.type_ not in COMMITMENT_TYPES or (row.type_ == "GENERAL_PURPOSE" and not has_gpus):
            continue
        yield Reservation(
            id=f"{listed_row.place}/{row.name}",
            provider=NAME,
            region=listed_row.place,
            zone=None,
            instance_type=COMMITMENT_TYPES[row.type_],
            machines=0,
            kind=COMMITMENT,
            starts=utc(row.start_timestamp),
            ends=utc(row.end_timestamp),
            holds_capacity=False,
            mark=_mark(row.name),
        )


def reservation_offers(held: Iterable[HeldReservation], shapes: Iterable[GcpMachine], now: datetime) -> OfferRows:
    """Current reservations as offers: one per zone and machine, with the machines of all its reservations. Excludes
    reservations that a machine must name, because no engine does."""
    shapes_by_key = {
        (shape.zone, shape.name, (shape.accelerator_type, shape.count) if shape.attached else None): shape
        for shape in shapes
    }
    yield from merge_offers(_offer_or_skip(shapes_by_key, reservation, now) for reservation in held)


def _offer_or_skip(
    shapes_by_key: Mapping[tuple[str, str, tuple[str, int] | None], GcpMachine], held: HeldReservation, now: datetime
) -> Offer | SkippedRow:
    reservation = held.reservation
    shape = shapes_by_key.get((reservation.zone or "", reservation.instance_type, held.attached))
    if shape is None:
        detail = f"{reservation.id}: {reservation.instance_type} is not among the machines of its zone"
        return SkippedRow("unknown_machine", detail)
    return _offer(reservation, shape, now)


def _offer(reservation: Reservation, shape: GcpMachine, now: datetime) -> Offer:
    return Offer(
        provider=NAME,
        region=shape.region,
        zone=shape.zone,
        instance_type=shape.name,
        accelerator=shape.accelerator,
        count=shape.count,
        capacity_type=CapacityType.RESERVED,
        price=Money.ZERO,
        as_of=now,
        source=SOURCE if reservation.open else f"{SOURCE}:specific",
        cpus=float(shape.cpus),
        memory_gib=float(shape.memory_gib),
        interconnect=shape.link,
        slots=reservation.free,
        engine=ENGINE if reservation.open and not shape.slices else None,
        money=MoneyKind.AMORTISED,
        billing=BILLING,
        max_age=HELD_MAX_AGE,
    )


def is_of_order(id: str) -> bool:
    """Whether another order of gpubroker made this reservation, so that it is not an order of its own."""
    name = id.rpartition("/")[2]
    return is_purchase(name) and name.endswith(MACHINES)


def _mark(name: str) -> str:
    """The purchase whose order has that name."""
    return name if is_purchase(name) else ""


def _attached_gpus(properties: Any) -> tuple[str, int] | None:
    """The attached GPUs that a reservation names; other machine types include theirs."""
    if not resource_name(properties.machine_type).startswith("n1-") or len(properties.guest_accelerators) != 1:
        return None
    card = properties.guest_accelerators[0]
    return resource_name(card.accelerator_type), card.accelerator_count


def _has_accelerator(instance_type: str, attached: tuple[str, int] | None) -> bool:
    family = family_of(instance_type)
    return family is not None and (family.parts != "n1" or attached is not None)
