"""The products of the clouds by kind (one line here, one file in the cloud's `shop`), and their common parts."""

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, Generic, TypeVar, cast

from broker.core.errors import Refused
from broker.core.purchases.quotes import CapacityQuote, Order, PurchaseProduct, SellsProduct, UndoTerms
from broker.core.registry import load

CounterT = TypeVar("CounterT")
PRODUCTS: Mapping[str, Mapping[PurchaseProduct, str]] = {
    "aws": {
        PurchaseProduct.CAPACITY_BLOCK: "providers.aws.shop.blocks:CapacityBlocks",
        PurchaseProduct.CAPACITY_RESERVATION: "providers.aws.shop.reservations:CapacityReservations",
        PurchaseProduct.FUTURE_RESERVATION: "providers.aws.shop.reservations:FutureReservations",
        PurchaseProduct.SAVINGS_PLAN: "providers.aws.shop.savings_plans:SavingsPlans",
    },
    "azure": {
        PurchaseProduct.CAPACITY_RESERVATION: "providers.azure.shop.reservations:AzureCapacityReservations",
        PurchaseProduct.RESERVED_INSTANCES: "providers.azure.shop.reserved_instances:AzureReservedInstances",
    },
    "gcp": {
        PurchaseProduct.CAPACITY_RESERVATION: "providers.gcp.shop.reservations:GcpReservations",
        PurchaseProduct.FUTURE_RESERVATION: "providers.gcp.shop.reservations:GcpFutureReservations",
        PurchaseProduct.COMMITMENT: "providers.gcp.shop.commitments:GcpCommitments",
    },
}


def products(cloud: str, counter: object) -> Mapping[PurchaseProduct, SellsProduct]:
    """The cloud's product of each kind. ``counter``: the login, prices and clock that the products share."""
    places = {kind.value: place for kind, place in PRODUCTS[cloud].items()}
    return {kind: cast("SellsProduct", load(places, kind.value, "product")(counter)) for kind in PRODUCTS[cloud]}


def undo_refusal(where: str, product: str, reason: str) -> Refused:
    """The refusal of the provider ``where`` to undo an order."""
    return Refused(f"{product} cannot be undone: {reason}", where=where, hint="use it: jobs of all teams can run on it")


class CloudProduct(Generic[CounterT]):
    """The usual `SellsProduct` of a cloud: its orders carry a tag and end by themselves."""

    marked = True
    repeats_for = timedelta(0)
    ends_itself = True

    def __init__(self, counter: CounterT) -> None:
        self._counter = counter


class FinalProduct(CloudProduct[CounterT]):
    """A product that its provider never takes back. ``never``: the provider, the product, and the reason."""

    never: ClassVar[tuple[str, str, str]]

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        raise undo_refusal(*self.never)

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        raise undo_refusal(*self.never)
