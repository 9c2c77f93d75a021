"""On-demand capacity reservations from now on (CreateCapacityReservation); with a login.

A reservation is billed at the on-demand price of its machines for every hour until it ends, used or not. It ends by
itself at its end date, at most an hour late, and can be cancelled at any time. ``ClientToken`` is the purchase's key:
the same request with the same token creates nothing twice.

It is open: machines of its type in its zone use it without naming it, so that every engine can.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, PurchaseProduct, QuoteRequest, Undo, UndoTerms
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
