"""What Azure sells, by kind. One line here, one file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from broker.core.purchases.quotes import PurchaseProduct
from broker.core.purchases.selling import SellsProduct
from broker.core.registry import load
from providers.azure.shop.counter import AzureCounter

AZURE_PRODUCTS: Mapping[PurchaseProduct, str] = {
    PurchaseProduct.CAPACITY_RESERVATION: "providers.azure.shop.reservations:AzureCapacityReservations",
    PurchaseProduct.RESERVED_INSTANCES: "providers.azure.shop.reserved_instances:AzureReservedInstances",
    PurchaseProduct.SAVINGS_PLAN: "providers.azure.shop.savings_plans:AzureSavingsPlans",
}


def products(counter: AzureCounter) -> Mapping[PurchaseProduct, SellsProduct]:
    """What sells each kind."""
    names = {kind.value: path for kind, path in AZURE_PRODUCTS.items()}
    return {kind: cast("SellsProduct", load(names, kind.value, "product")(counter)) for kind in AZURE_PRODUCTS}
