"""Commitments with their reservation (regionCommitments.insert): machines at a lower rate for one or three years; with
a login.

A commitment for GPUs needs reservations of them, which are made with it in one zone. It is paid by the hour, used or
not, and cannot be cancelled.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, Undo
from providers.gcp.calls import utc
from providers.gcp.holdings import COMMITMENT_TYPES, MACHINES
from providers.gcp.settings import NAME
from providers.gcp.shop.counter import GcpCounter, ResourceKind, find, insert, priced_rows, quote_fields
from providers.gcp.shop.reservations import REPEATS_FOR, reservation_body
from providers.shops import FinalProduct

_YEAR = timedelta(days=365)
_PLANS = {_YEAR: (12, "TWELVE_MONTH"), 3 * _YEAR: (36, "THIRTY_SIX_MONTH")}
_STATES = {
    "CREATING": OrderState.PENDING,
    "NOT_YET_ACTIVE": OrderState.HELD,
    "ACTIVE": OrderState.HELD,
    "EXPIRED": OrderState.OVER,
    "CANCELLED": OrderState.OVER,
}
_SSD_GB = 375


def _order(row: Any, key: str) -> Order:
    started = utc(row.start_timestamp) if row.status in ("ACTIVE", "EXPIRED") else None
    ended = utc(row.end_timestamp) if row.status == "EXPIRED" else None
    state = _STATES.get(row.status, OrderState.PENDING)
    return Order(id=row.name or key, state=state, word=row.status.lower(), billed_from=started, billed_to=ended)


_COMMITMENT = ResourceKind("RegionCommitmentsClient", "commitment", "commitment_resource", _order, regional=True)


class GcpCommitments(FinalProduct[GcpCounter]):
    """See `SellsProduct`."""

    never = (NAME, "a commitment", "Google takes none back")
    repeats_for = REPEATS_FOR

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote a zone, at the list price of the term."""
        if request.length not in _PLANS:
            raise InvalidInput(
                f"Google takes commitments of 1 or 3 years; got {request.length}", where="--for", hint="--for 1y"
            )
        months, plan = _PLANS[request.length]
        kinds = (CapacityType.ON_DEMAND, CapacityType.RESERVED)
        rows = list(priced_rows(self._counter, request, *kinds))
        yield from (row for row in rows if isinstance(row, SkippedRow))
        priced_machines = [row for row in rows if not isinstance(row, SkippedRow)]
        rates = {
            (shape.region, shape.name): term_offer.price
            for shape, term_offer in priced_machines
            if term_offer.term_months == months
        }
        for shape, offer in priced_machines:
            rate = rates.get((shape.region, shape.name))
            if offer.capacity_type is CapacityType.RESERVED or rate is None or _type(shape.name) is None:
                continue
            fields = quote_fields(self._counter, request, PurchaseProduct.COMMITMENT, shape, rate)
            yield CapacityQuote(**{**fields, "undo": Undo.NONE, "terms": plan}, at_once=True)

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; Google has no dry run of this call."""
        self._counter.asking()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        caller = self._counter.asking()
        parameters = {"project": caller.login.project, "zone": quote.zone, "machine_type": quote.instance_type}
        shape = caller.call("MachineTypesClient", "get", str(quote.zone), **parameters)
        machines = {**reservation_body(quote), "name": f"{key}{MACHINES}", "zone": quote.zone}
        del machines["delete_at_time"]  # a reservation of a commitment stays as long as that
        body = {
            "plan": quote.terms,
            "type_": _type(quote.instance_type),
            "category": "MACHINE",
            "auto_renew": False,
            "resources": _resources(shape, quote.machines),
            "reservations": [machines],
        }
        return insert(caller, _COMMITMENT, quote, key, body)

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return find(self._counter.asking(), _COMMITMENT, quote, key)


def _type(instance_type: str) -> str | None:
    """Google's type of commitment for machines of that name, the longest pattern that fits; None without one."""
    matches = [(pattern, type) for type, pattern in COMMITMENT_TYPES.items() if instance_type.startswith(pattern[:-1])]
    return max(matches, key=lambda match: len(match[0]))[1] if matches else None


def _resources(shape: Any, machines: int) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = [
        {"type_": "VCPU", "amount": shape.guest_cpus * machines},
        {"type_": "MEMORY", "amount": shape.memory_mb * machines},
    ]
    resources += [
        {
            "type_": "ACCELERATOR",
            "accelerator_type": accelerator.guest_accelerator_type,
            "amount": accelerator.guest_accelerator_count * machines,
        }
        for accelerator in shape.accelerators
    ]
    if disks := shape.bundled_local_ssds.partition_count:
        resources.append({"type_": "LOCAL_SSD", "amount": disks * _SSD_GB * machines})
    return resources
