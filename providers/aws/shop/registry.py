"""What AWS sells, by kind. One line here, one file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from broker.core.purchases.quotes import PurchaseProduct
from broker.core.purchases.selling import SellsProduct
from broker.core.registry import load
from providers.aws.shop.counter import AwsCounter

AWS_PRODUCTS: Mapping[PurchaseProduct, str] = {
    PurchaseProduct.CAPACITY_BLOCK: "providers.aws.shop.blocks:CapacityBlocks",
    PurchaseProduct.BLOCK_EXTENSION: "providers.aws.shop.extensions:BlockExtensions",
    PurchaseProduct.CAPACITY_RESERVATION: "providers.aws.shop.reservations:CapacityReservations",
    PurchaseProduct.FUTURE_RESERVATION: "providers.aws.shop.future_reservations:FutureReservations",
    PurchaseProduct.RESERVED_INSTANCES: "providers.aws.shop.reserved_instances:ReservedInstances",
    PurchaseProduct.SAVINGS_PLAN: "providers.aws.shop.savings_plans:SavingsPlans",
}


def products(counter: AwsCounter) -> Mapping[PurchaseProduct, SellsProduct]:
    """What sells each kind."""
    names = {kind.value: path for kind, path in AWS_PRODUCTS.items()}
    return {kind: cast("SellsProduct", load(names, kind.value, "product")(counter)) for kind in AWS_PRODUCTS}
