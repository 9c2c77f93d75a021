"""The GCP provider: order of queries, and how failures are combined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeVar

from broker.core.errors import BrokerError, Malformed
from broker.core.market.capacity import Instance, Reservation
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest
from broker.core.purchases.selling import SellsProduct
from broker.core.values.clock import Clock
from providers import shops
from providers.failures import Failures
from providers.gcp import holdings
from providers.gcp.advice import Adviser, advised
from providers.gcp.calls import GcpCaller
from providers.gcp.catalogue import PartPrices, read_prices
from providers.gcp.instances import labelled, terminate
from providers.gcp.listed import listed_offers
from providers.gcp.login import ADDS, HOW, GcpLogin, has_sdk, sign_of_login
from providers.gcp.machines import GcpMachine, in_one_of, machines
from providers.gcp.quotas import QuotaLimits, read_limits
from providers.gcp.refusals import NotFound
from providers.gcp.settings import NAME, GcpSettings
from providers.gcp.shop.counter import GcpCounter, Priced
from providers.http import endpoint
from providers.rows import Found, distinct

T = TypeVar("T")

_LISTED = (CapacityType.ON_DEMAND, CapacityType.RESERVED)


class Gcp:
    """Compute Engine's machines with accelerators, in every zone. Needs a login."""

    name = NAME
    Settings: ClassVar = GcpSettings

    def __init__(self, *, clock: Clock, settings: GcpSettings | None = None, login: GcpLogin | None = None) -> None:
        self._clock = clock
        self._settings = settings or GcpSettings()
        self._login = login
        self._adviser = Adviser()

    def offers(self, query: OfferQuery) -> Found:
        """Machines at list prices, limited by the project's quotas and with spot data, and the project's reservations.
        Failures of parts are raised at the end, as one error that names each. Raises `NoLogin` without a login."""
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        asking, failures = self._asking(), Failures()
        yield from distinct(self._offers(asking, query, failures))
        if failures.about_login:
            self._login = None
        failures.raise_any()

    def _offers(self, asking: GcpCaller, query: OfferQuery, failures: Failures) -> Found:
        catalogue = PartPrices()
        for priced in failures.kept(read_prices(asking)):
            if isinstance(priced, SkippedRow):
                yield priced
            else:
                catalogue.add(priced)
        if not catalogue:
            failures.raise_any()  # no machine can be priced
            raise Malformed("the price catalogue has no parts of machines with accelerators", where=NAME)
        every: list[GcpMachine] = []
        for shape in failures.kept(machines(asking, self._settings)):
            if isinstance(shape, SkippedRow):
                yield shape
            else:
                every.append(shape)
        shapes = [shape for shape in every if _wanted(shape.region, shape.accelerator, query)]
        if not shapes:
            return
        limits = QuotaLimits(_optional(read_limits(asking), failures) if self._settings.quotas else ())
        listed = tuple(kind for kind in _LISTED if _wants(query, kind))
        yield from listed_offers(shapes, catalogue, listed, self._clock.now(), limits.judged)
        if _wants(query, CapacityType.RESERVED):
            yield from self._held(asking, every, query, failures)
        if _wants(query, CapacityType.SPOT):
            yield from self._spot(asking, shapes, catalogue, limits, failures)

    def _held(self, asking: GcpCaller, every: list[GcpMachine], query: OfferQuery, failures: Failures) -> Found:
        held = [
            one
            for one in _optional(holdings.reservations(asking), failures)
            if in_one_of(one.reservation.region, self._settings.regions)
        ]
        for row in holdings.held_offers(held, every, self._clock.now()):
            if isinstance(row, SkippedRow) or _wanted(row.region, row.accelerator, query):
                yield row

    def _spot(
        self,
        asking: GcpCaller,
        shapes: list[GcpMachine],
        catalogue: PartPrices,
        limits: QuotaLimits,
        failures: Failures,
    ) -> Found:
        """Spot comes last: advice takes a call for each machine type and region."""
        settings = self._settings
        exposure = settings.spot_exposure_hours
        advice = self._adviser.advice(asking, shapes, exposure, failures) if settings.advice else {}
        yield from listed_offers(
            shapes,
            catalogue,
            (CapacityType.SPOT,),
            self._clock.now(),
            lambda offer, shape: limits.judged(advised(offer, advice), shape),
        )

    # Abilities beside offers (`broker.core.ports`).

    def reservations(self) -> Iterator[Reservation]:
        """See `HasReservations`: reservations, future reservations and commitments. A failure of one kind does not stop
        the others."""
        asking, failures = self._asking(), Failures()
        for held in failures.kept(holdings.reservations(asking)):
            if not holdings.is_of_order(held.reservation.id):
                yield held.reservation
        yield from failures.kept(holdings.future_reservations(asking))
        yield from failures.kept(holdings.commitments(asking))
        failures.raise_any()

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        return shops.products(NAME, GcpCounter(self._asking, self._priced, self._clock))

    def _priced(self, request: QuoteRequest, kinds: tuple[CapacityType, ...]) -> Priced:
        """The machines that the request may mean, with their list prices; without machines to which GPUs would have to
        be attached, and without prices of flex start and calendar mode."""
        asking = self._asking()
        catalogue = PartPrices()
        for priced in read_prices(asking):
            if not isinstance(priced, SkippedRow):
                catalogue.add(priced)
        found: list[GcpMachine] = []
        for shape in machines(asking, self._settings):
            if not isinstance(shape, SkippedRow) and not (shape.attached or shape.slices) and _is_meant(shape, request):
                found.append(shape)
        by_place = {(shape.zone, shape.name): shape for shape in found}
        by_region = {(shape.region, shape.name): shape for shape in reversed(found)}

        def unchanged(offer: Offer, shape: GcpMachine) -> Offer:
            return offer

        for row in listed_offers(found, catalogue, kinds, self._clock.now(), unchanged):
            if isinstance(row, SkippedRow):
                yield row
            elif row.zone is None:
                yield by_region[row.region, row.instance_type], row
            elif (row.zone, row.instance_type) in by_place:
                yield by_place[row.zone, row.instance_type], row

    def instances(self) -> Iterator[Instance]:
        yield from labelled(self._asking())

    def terminate(self, id: str) -> None:
        terminate(self._asking(), id)

    def _asking(self) -> GcpCaller:
        """Raises `NoLogin`, `MissingExtra`, or `LoginMissing` for a login that cannot be used. The login is kept
        between polls while its source is unchanged, because creating clients is slower than calls."""
        if self._login is None or self._login.sign not in ("", sign_of_login(self._settings)):
            self._login = GcpLogin.find(self._settings)
        return GcpCaller(self._login, self._clock)

    def describe_setup(self) -> Mapping[str, Any]:
        sign = sign_of_login(self._settings)
        return {
            "endpoints": {
                "compute": endpoint(NAME, "compute_url", self._settings.compute_url),
                "billing": endpoint(NAME, "billing_url", self._settings.billing_url),
            },
            "logins": {
                "gcp": {
                    "found": bool(sign) and has_sdk(),
                    "where": sign,
                    "how": HOW if has_sdk() else f"pip install 'gpubroker[gcp]', then {HOW}",
                    "adds": ADDS,
                }
            },
        }


def _is_meant(shape: GcpMachine, request: QuoteRequest) -> bool:
    if request.region is not None and shape.region != request.region:
        return False
    if request.instance_type is not None:
        return shape.name == request.instance_type
    return (shape.accelerator, shape.count) == (request.accelerator, request.count)


def _wants(query: OfferQuery, kind: CapacityType) -> bool:
    return not query.capacity_types or kind in query.capacity_types


def _wanted(region: str, accelerator: str | None, query: OfferQuery) -> bool:
    return in_one_of(region, query.regions) and (not query.accelerators or accelerator in query.accelerators)


def _optional(found: Iterable[T], failures: Failures) -> Iterator[T]:
    """The items until a failure, which is recorded. A missing method of the endpoint is no failure: prices do not need
    it."""
    try:
        yield from found
    except NotFound:
        return
    except BrokerError as error:
        failures.add(error)
