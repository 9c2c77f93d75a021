"""On-demand capacity reservations from now on (CreateCapacityReservation); with a login.

A reservation is billed at the on-demand price of its machines for every hour until it ends, used or not. It ends by
itself at its end date, at most an hour late, and can be cancelled at any time. ``ClientToken`` is the purchase's key:
the same request with the same token creates nothing twice.

It is open: machines of its type in its zone use it without naming it, so that every engine can.

On-demand capacity reservations from a later day on (CreateCapacityReservation with StartDate); with a login.

AWS first assesses the request (minutes to days), then schedules it, delivers it, or refuses it (``unsupported``). The
whole time is committed: it is billed at the on-demand price from delivery on, used or not. Cancelling costs what AWS
quotes; it is free while the request is assessed, and once the delivery is late (``delayed``).

5 to 120 days ahead; machines of 32 vCPUs and more of the families C, M, R, I, T and G; the reservation is targeted (EC2
API reference, CreateCapacityReservation and CancelCapacityReservation, as botocore carries it).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput, Refused, Unreachable
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
from providers.aws.login import AwsLogin
from providers.aws.machines import machine
from providers.aws.settings import NAME, utc
from providers.aws.shop.blocks import reservation_order, tagged_reservations
from providers.aws.shop.counter import (
    LINUX,
    AwsCounter,
    dry_run,
    matching_types,
    on_demand_price,
    purchase_tags,
    read_answer,
    requested_regions,
)
from providers.shops import CloudProduct

_OPERATION = "create_capacity_reservation"
# EC2 keeps a token for a day or longer (EC2 developer guide, "Ensuring idempotency"); this is well within.
_REPEATS_FOR = timedelta(hours=1)
_LONGEST = timedelta(days=366)


class CapacityReservations(CloudProduct[AwsCounter]):
    """See `SellsProduct`."""

    repeats_for = _REPEATS_FOR
    product, undone = PurchaseProduct.CAPACITY_RESERVATION, Undo.ANY_TIME

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote for each zone that has the machines, at the on-demand price. That a zone has the type does not
        mean that it has free machines: EC2 refuses the order if not."""
        if request.earliest is not None:
            raise InvalidInput(
                "a capacity reservation begins with its order",
                where="--from",
                hint="leave it out, or ask for --product future_reservation",
            )
        if not timedelta(hours=1) <= request.length <= _LONGEST:
            raise InvalidInput(f"expected 1 hour to 1 year; got {request.length}", where="--for", hint="--for 7d")

        yield from self._in_zones(request, self._counter.now(), matching_types(request))

    def _in_zones(
        self, request: QuoteRequest, starts: datetime, types: Iterable[str]
    ) -> Iterator[CapacityQuote | SkippedRow]:
        """A quote for each zone of each region, from a time on."""

        def regional_quotes(login: AwsLogin, region: str) -> Iterator[CapacityQuote | SkippedRow]:
            for name in types:
                if (price := on_demand_price(self._counter, login, region, name)) is not None:
                    for zone in zones_offering(login, region, name):
                        yield self._quote(request, region, zone, name, price, starts)

        yield from self._counter.everywhere(regional_quotes, requested_regions(request))

    def _quote(
        self, request: QuoteRequest, region: str, zone: str, name: str, price: Money, starts: datetime
    ) -> CapacityQuote:
        shape = machine(name)
        return CapacityQuote(
            product=self.product,
            provider=NAME,
            offering=f"{name}/{zone}",
            region=region,
            zone=zone,
            instance_type=name,
            accelerator=shape.accelerator,
            count=shape.count,
            machines=request.machines,
            starts=starts,
            ends=starts + request.length,
            total=price.for_duration(request.length) * request.machines,
            undo=self.undone,
            quoted_at=self._counter.now(),
            upfront=Money.ZERO,
            at_once=self.product is PurchaseProduct.CAPACITY_RESERVATION,
        )

    def _parameters(self, quote: CapacityQuote, key: str) -> Mapping[str, Any]:
        return {
            "ClientToken": key,
            "InstanceType": quote.instance_type,
            "InstancePlatform": LINUX,
            "AvailabilityZoneId": quote.zone,
            "InstanceCount": quote.machines,
            "EndDateType": "limited",
            "EndDate": quote.ends,
            "TagSpecifications": purchase_tags(key, "capacity-reservation"),
            "InstanceMatchCriteria": "open",
        }

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        dry_run(self._counter.login(), quote.region, _OPERATION, self._parameters(quote, key))

    def order(self, quote: CapacityQuote, key: str) -> Order:
        answer = self._counter.login().call_once("ec2", quote.region, _OPERATION, **self._parameters(quote, key))
        return read_answer(billed_order, answer.get("CapacityReservation"))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return [billed_order(row) for row in tagged_reservations(self._counter.login(), quote.region, key)]

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        return UndoTerms(way="cancel")

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        self._counter.login().call_once(
            "ec2", quote.region, "cancel_capacity_reservation", CapacityReservationId=order.id
        )


def zones_offering(login: AwsLogin, region: str, instance_type: str) -> list[str]:
    """The IDs of the zones where machines of the type exist. Raises what `AwsLogin.rows` raises."""
    rows = login.rows(
        "ec2",
        region,
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone-id",
        Filters=[{"Name": "instance-type", "Values": [instance_type]}],
    )
    return sorted({str(row["Location"]) for row in rows if row.get("Location")})


def billed_order(row: Any) -> Order:
    """A reservation as an order, with the time for which it is billed. Raises `Malformed`."""
    order = reservation_order(row)
    has_begun = order.word in ("active", "expired", "cancelled", "cancelling")
    return order.model_copy(
        update={
            "billed_from": (utc(row.get("StartDate")) or utc(row.get("CreateDate"))) if has_begun else None,
            "billed_to": utc(row.get("EndDate")) if order.word == "expired" else None,
        }
    )


_DAY = timedelta(days=1)
_AHEAD = (5 * _DAY, 120 * _DAY)
_SHORTEST = 14 * _DAY
_FAMILIES = tuple("cmritg")
_VCPUS = 32
_WIND_DOWN = "commitment-wind-down"
_FREE = ("assessing", "delayed")


class FutureReservations(CapacityReservations):
    """See `SellsProduct`."""

    product, undone = PurchaseProduct.FUTURE_RESERVATION, Undo.QUOTE

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote for each zone that has the machines. AWS says only after the order whether it can deliver."""
        starts = request.earliest
        if starts is None or not _AHEAD[0] <= starts - self._counter.now() <= _AHEAD[1]:
            raise InvalidInput("AWS takes requests 5 to 120 days ahead", where="--from", hint="--from 14d")
        if request.length < _SHORTEST or request.length % timedelta(hours=1):
            raise InvalidInput(f"AWS wants 14 days or more; got {request.length}", where="--for", hint="--for 14d")
        yield from self._in_zones(
            request, starts, [instance_type for instance_type in matching_types(request) if _is_sold(instance_type)]
        )

    def _parameters(self, quote: CapacityQuote, key: str) -> Mapping[str, Any]:
        return {
            **super()._parameters(quote, key),
            "InstanceMatchCriteria": "targeted",
            "StartDate": quote.starts,
            "CommitmentDuration": quote.length // timedelta(seconds=1),
            "DeliveryPreference": "incremental",
        }

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        """Free, or by a cancellation quote of EC2, which is valid for a day."""
        if order.word in _FREE or order.state is not OrderState.HELD:
            return UndoTerms(way="cancel")
        answer = self._counter.login().call(
            "ec2", quote.region, "create_capacity_reservation_cancellation_quote", CapacityReservationId=order.id
        )
        cancellation = answer.get("CapacityReservationCancellationQuote") or {}
        if cancellation.get("QuoteState") == "pending":
            cancellation = self._cancellation_quote(
                quote.region, str(cancellation.get("CapacityReservationCancellationQuoteId"))
            )
        return UndoTerms(
            way="cancel",
            charge=sum((_charge(term, quote) for term in cancellation.get("CancellationTerms") or ()), Money.ZERO),
            reference=str(cancellation["CapacityReservationCancellationQuoteId"]),
            until=utc(cancellation.get("ExpirationTime")),
        )

    def _cancellation_quote(self, region: str, id: str) -> Mapping[str, Any]:
        operation = "describe_capacity_reservation_cancellation_quotes"
        answer = self._counter.login().call("ec2", region, operation, CapacityReservationCancellationQuoteIds=[id])
        rows: list[Mapping[str, Any]] = answer.get("CapacityReservationCancellationQuotes") or [{}]
        if rows[0].get("QuoteState") != "active":
            raise Unreachable("EC2 has not computed the cancellation quote yet", where=NAME, hint="retry in a minute")
        return rows[0]

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        parameters = {"QuoteId": terms.reference, "ApplyCancellationCharges": _WIND_DOWN} if terms.reference else {}
        self._counter.login().call_once(
            "ec2", quote.region, "cancel_capacity_reservation", CapacityReservationId=order.id, **parameters
        )


def _charge(term: Mapping[str, Any], quote: CapacityQuote) -> Money:
    machines, hours = term.get("CommittedInstanceCount"), term.get("ChargeCommitmentDurationHours")
    if not isinstance(machines, int) or not isinstance(hours, int):
        raise Refused("EC2's cancellation quote does not say how many hours it charges", where=NAME)
    return quote.per_machine_hour * machines * hours


def _is_sold(name: str) -> bool:
    shape = machine(name)
    return name.startswith(_FAMILIES) and shape.cpus is not None and shape.cpus >= _VCPUS
