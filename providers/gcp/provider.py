"""The GCP provider: order of queries, and how failures are combined."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeVar

from broker.core.errors import BrokerError, Malformed, Refused
from broker.core.extras import install_command
from broker.core.market.capacity import STORE_TAG, TAG, Instance, Reservation
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.ports import Bucket
from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest, SellsProduct
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers import shops
from providers.failures import Failures
from providers.gcp import holdings
from providers.gcp.advice import Adviser, with_advice
from providers.gcp.calls import GcpCaller, ListMethod, region_of, resource_name, utc
from providers.gcp.login import ADDS, LOGIN_HINT, GcpLogin, has_sdk, login_source, make_bucket
from providers.gcp.machines import GcpMachine, machines, matches_any
from providers.gcp.quotas import QuotaLimits, read_limits
from providers.gcp.refusals import NotFound
from providers.gcp.settings import BILLING, ENGINE, LIST_MAX_AGE, NAME, SPOT_BILLING, SPOT_MAX_AGE, GcpSettings
from providers.gcp.shop.counter import GcpCounter, PricedMachines
from providers.gcp.skus import SOURCE, PartPrices, PurchaseType, read_prices
from providers.http import endpoint
from providers.rows import OfferRows, RowRejected, distinct

_ONLY_RESERVED = "Google sells this machine on demand only together with a reservation"
# Machines for a stated time, at prices of their own, where Google sells them so. They come when there are some (flex
# start, up to seven days) or at a date (calendar mode): separate pools, with the purchase type added to the name.
AHEAD = {PurchaseType.FLEX_START: "+flex-start", PurchaseType.CALENDAR: "+calendar"}
_PURCHASE_TYPES = {
    CapacityType.ON_DEMAND: (PurchaseType.ON_DEMAND, *AHEAD),
    CapacityType.SPOT: (PurchaseType.SPOT,),
    CapacityType.RESERVED: (PurchaseType.ONE_YEAR, PurchaseType.THREE_YEARS),
}
_MONTHS = {PurchaseType.ONE_YEAR: 12, PurchaseType.THREE_YEARS: 36}


def listed_offers(
    shapes: Iterable[GcpMachine],
    catalogue: PartPrices,
    kinds: Iterable[CapacityType],
    now: datetime,
    complete: Callable[[Offer, GcpMachine], Offer],
) -> OfferRows:
    """The offers of these machines with these purchase types. Unpriced ones are skipped, once per region. ``complete``:
    completes an offer with quotas and spot data."""
    ways = tuple((kind, purchase_type) for kind in kinds for purchase_type in _PURCHASE_TYPES.get(kind, ()))
    prices: dict[tuple[str, str, str, int, PurchaseType], Money | None] = {}
    for shape in shapes:
        for kind, purchase_type in ways:
            if purchase_type in AHEAD and not catalogue.sells(shape, purchase_type):
                continue
            machine = (shape.region, shape.name, shape.accelerator, shape.count, purchase_type)
            if machine not in prices:
                try:
                    prices[machine] = catalogue.price(shape, purchase_type)
                except RowRejected as error:
                    prices[machine] = None
                    yield error.skipped
            elif purchase_type in _MONTHS:
                continue  # already listed: a commitment applies to a region
            price = prices[machine]
            if price is not None:
                yield complete(_offer(shape, kind, purchase_type, price, now), shape)


def _offer(shape: GcpMachine, kind: CapacityType, purchase_type: PurchaseType, price: Money, now: datetime) -> Offer:
    months = _MONTHS.get(purchase_type)
    only_reserved = purchase_type is PurchaseType.ON_DEMAND and not shape.family.on_demand
    spot = kind is CapacityType.SPOT
    return Offer(
        provider=NAME,
        region=shape.region,
        zone=None if months else shape.zone,
        instance_type=shape.name + AHEAD.get(purchase_type, ""),
        accelerator=shape.accelerator,
        count=shape.count,
        capacity_type=kind,
        price=price,
        as_of=now,
        source=SOURCE,
        term_months=months,
        cpus=float(shape.cpus),
        memory_gib=float(shape.memory_gib),
        interconnect=shape.link,
        availability=Availability.UNAVAILABLE if only_reserved else Availability.UNKNOWN,
        unavailable_because=_ONLY_RESERVED if only_reserved else "",
        # No engine for commitments, which must be bought first; none starts parts of a card and TPUs.
        engine=None if months or purchase_type is PurchaseType.CALENDAR or shape.slices else ENGINE,
        billing=SPOT_BILLING if spot else BILLING,
        max_age=SPOT_MAX_AGE if spot else LIST_MAX_AGE,
    )


# Machines of the project with gpubroker's label, and their deletion.
#
# Whatever starts machines on Google Cloud for gpubroker sets the labels ``gpubroker`` (the attempt's key) and
# ``gpubroker-store`` (the id of the requesting store).
_INSTANCES = ListMethod("InstancesClient", "aggregated_list", "InstanceAggregatedList", "instances", scoped=True)
_PER_PAGE = 500
# Cores and GPUs cost in these states; a stopped machine ("TERMINATED", still there) is billed for its disks only.
_BILLED = ("RUNNING", "STOPPING", "PENDING_STOP", "SUSPENDING", "REPAIRING", "DEPROVISIONING")
_KINDS = {"SPOT": CapacityType.SPOT, "RESERVATION_BOUND": CapacityType.RESERVED}
_ID = re.compile(r"([a-z]+-[a-z]+\d+-[a-z0-9]+)/([a-z][-a-z0-9]{0,62})")


def labeled_instances(caller: GcpCaller) -> Iterator[Instance]:
    """Labeled machines of all zones. Raises what `GcpCaller.rows` raises."""
    rows = caller.rows(_INSTANCES, project=caller.login.project, filter=f"labels.{TAG}:*", max_results=_PER_PAGE)
    for listed_row in rows:
        if isinstance(listed_row, SkippedRow) or TAG not in listed_row.row.labels or not listed_row.row.name:
            continue
        row, zone = listed_row.row, listed_row.place
        kind = CapacityType.SPOT if row.scheduling.preemptible else CapacityType.ON_DEMAND
        yield Instance(
            id=f"{zone}/{row.name}",
            provider=NAME,
            region=region_of(zone),
            zone=zone,
            instance_type=resource_name(row.machine_type),
            key=row.labels[TAG],
            state=row.status,
            billed=row.status in _BILLED,
            since=utc(row.last_start_timestamp) or utc(row.creation_timestamp),
            capacity_type=_KINDS.get(row.scheduling.provisioning_model, kind),
            store=row.labels.get(STORE_TAG, ""),
        )


def terminate(caller: GcpCaller, id: str) -> None:
    """Delete a machine (``zone/name``, as in `labeled_instances`). Idempotent: a missing one is not an error. Does not
    wait. Raises what `GcpCaller.call` raises, and `Refused` for another form of name.
    """
    parts = _ID.fullmatch(id)
    if parts is None:
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint="expected zone/name")
    try:
        caller.call(
            "InstancesClient", "delete_unary", parts[1], project=caller.login.project, zone=parts[1], instance=parts[2]
        )
    except NotFound:
        return


T = TypeVar("T")

_LISTED = (CapacityType.ON_DEMAND, CapacityType.RESERVED)


class Gcp:
    """Compute Engine's machines with accelerators, in every zone. Needs a login."""

    name = NAME
    quota_page = "https://console.cloud.google.com/iam-admin/quotas (GPUs of the region, and GPUs of all regions)"
    Settings: ClassVar = GcpSettings

    def __init__(self, *, clock: Clock, settings: GcpSettings | None = None, login: GcpLogin | None = None) -> None:
        self._clock = clock
        self._settings = settings or GcpSettings()
        self._login = login
        self._adviser = Adviser()

    def offers(self, query: OfferQuery) -> OfferRows:
        """Machines at list prices, limited by the project's quotas and with spot data, and the project's reservations.
        Failures of parts are raised at the end, as one error that names each. Raises `NoLogin` without a login."""
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        caller, failures = self._caller(), Failures()
        yield from distinct(self._offers(caller, query, failures))
        if failures.about_login:
            self._login = None
        failures.raise_any()

    def _offers(self, caller: GcpCaller, query: OfferQuery, failures: Failures) -> OfferRows:
        catalogue = PartPrices()
        for part_price in failures.until_failure(read_prices(caller)):
            if isinstance(part_price, SkippedRow):
                yield part_price
            else:
                catalogue.add(part_price)
        if not catalogue:
            failures.raise_any()  # no machine can be priced
            raise Malformed("the price catalog has no parts of machines with accelerators", where=NAME)
        all_shapes: list[GcpMachine] = []
        for shape in failures.until_failure(machines(caller, self._settings)):
            if isinstance(shape, SkippedRow):
                yield shape
            else:
                all_shapes.append(shape)
        shapes = [shape for shape in all_shapes if _matches_query(shape.region, shape.accelerator, query)]
        if not shapes:
            return
        limits = QuotaLimits(_optional(read_limits(caller), failures) if self._settings.quotas else ())
        list_kinds = tuple(kind for kind in _LISTED if _wants(query, kind))
        yield from listed_offers(shapes, catalogue, list_kinds, self._clock.now(), limits.with_limits)
        if _wants(query, CapacityType.RESERVED):
            yield from self._held_capacity(caller, all_shapes, query, failures)
        if _wants(query, CapacityType.SPOT):
            yield from self._spot(caller, shapes, catalogue, limits, failures)

    def _held_capacity(
        self, caller: GcpCaller, all_shapes: list[GcpMachine], query: OfferQuery, failures: Failures
    ) -> OfferRows:
        held = [
            entry
            for entry in _optional(holdings.reservations(caller), failures)
            if matches_any(entry.reservation.region, self._settings.regions)
        ]
        for row in holdings.reservation_offers(held, all_shapes, self._clock.now()):
            if isinstance(row, SkippedRow) or _matches_query(row.region, row.accelerator, query):
                yield row

    def _spot(
        self,
        caller: GcpCaller,
        shapes: list[GcpMachine],
        catalogue: PartPrices,
        limits: QuotaLimits,
        failures: Failures,
    ) -> OfferRows:
        """Spot comes last: advice takes a call for each machine type and region."""
        settings = self._settings
        exposure = settings.spot_exposure_hours
        advice = self._adviser.advice(caller, shapes, exposure, failures) if settings.advice else {}
        yield from listed_offers(
            shapes,
            catalogue,
            (CapacityType.SPOT,),
            self._clock.now(),
            lambda offer, shape: limits.with_limits(with_advice(offer, advice), shape),
        )

    # Abilities besides offers (`broker.core.ports`).

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: reservations, future reservations and commitments. A failure of one kind does not stop
        the others."""
        caller, failures = self._caller(), Failures()
        for entry in failures.until_failure(holdings.reservations(caller)):
            if not holdings.is_of_order(entry.reservation.id):
                yield entry.reservation
        yield from failures.until_failure(holdings.future_reservations(caller))
        yield from failures.until_failure(holdings.commitments(caller))
        failures.raise_any()

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        return shops.products(NAME, GcpCounter(self._caller, self._price_machines, self._clock))

    def _price_machines(self, request: QuoteRequest, kinds: tuple[CapacityType, ...]) -> PricedMachines:
        """The machines that the request may mean, with their list prices; without machines to which GPUs would have to
        be attached, and without prices of flex start and calendar mode."""
        caller = self._caller()
        catalogue = PartPrices()
        for part_price in read_prices(caller):
            if not isinstance(part_price, SkippedRow):
                catalogue.add(part_price)
        shapes: list[GcpMachine] = []
        for shape in machines(caller, self._settings):
            if (
                not isinstance(shape, SkippedRow)
                and not (shape.attached or shape.slices)
                and _matches_request(shape, request)
            ):
                shapes.append(shape)
        by_place = {(shape.zone, shape.name): shape for shape in shapes}
        # Reversed, so that the first zone of a region is the one that stays.
        by_region = {(shape.region, shape.name): shape for shape in reversed(shapes)}

        def unchanged(offer: Offer, shape: GcpMachine) -> Offer:
            return offer

        for row in listed_offers(shapes, catalogue, kinds, self._clock.now(), unchanged):
            if isinstance(row, SkippedRow):
                yield row
            elif row.zone is None:
                yield by_region[row.region, row.instance_type], row
            elif (row.zone, row.instance_type) in by_place:
                yield by_place[row.zone, row.instance_type], row

    def instances(self) -> Iterator[Instance]:
        yield from labeled_instances(self._caller())

    def terminate(self, id: str) -> None:
        terminate(self._caller(), id)

    def _caller(self) -> GcpCaller:
        """Raises `NoLogin`, `MissingExtra`, or `LoginMissing` for a login that cannot be used. The login is kept
        between polls while its source is unchanged, because creating clients is slower than calls."""
        if self._login is None or self._login.sign not in ("", login_source(self._settings)):
            self._login = GcpLogin.find(self._settings)
        return GcpCaller(self._login, self._clock)

    def check_access(self) -> Iterator[str | BrokerError]:
        login = self._caller().login
        login.renew()
        yield f"logged in by {login.sign}; project {login.project}"

    def make_bucket(self, name: str) -> Bucket:
        return make_bucket(self._caller().login, name)

    def describe_setup(self) -> Mapping[str, Any]:
        sign = login_source(self._settings)
        return {
            "endpoints": {
                "compute": endpoint(NAME, "compute_url", self._settings.compute_url),
                "billing": endpoint(NAME, "billing_url", self._settings.billing_url),
            },
            "logins": {
                "gcp": {
                    "found": bool(sign) and has_sdk(),
                    "where": sign,
                    "how": LOGIN_HINT if has_sdk() else f"{install_command(NAME)}, then {LOGIN_HINT}",
                    "adds": ADDS,
                }
            },
        }


def _matches_request(shape: GcpMachine, request: QuoteRequest) -> bool:
    if request.region is not None and shape.region != request.region:
        return False
    if request.instance_type is not None:
        return shape.name == request.instance_type
    return (shape.accelerator, shape.count) == (request.accelerator, request.count)


def _wants(query: OfferQuery, kind: CapacityType) -> bool:
    return not query.capacity_types or kind in query.capacity_types


def _matches_query(region: str, accelerator: str | None, query: OfferQuery) -> bool:
    return matches_any(region, query.regions) and (not query.accelerators or accelerator in query.accelerators)


def _optional(items: Iterable[T], failures: Failures) -> Iterator[T]:
    """The items until a failure, which is recorded. A missing method of the endpoint is not a failure: prices do not
    need it."""
    try:
        yield from items
    except NotFound:
        return
    except BrokerError as error:
        failures.add(error)
