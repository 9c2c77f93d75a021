"""What Google Cloud sells, by kind. One line here, one file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from broker.core.purchases.quotes import PurchaseProduct
from broker.core.purchases.selling import SellsProduct
from broker.core.registry import load
from providers.gcp.shop.counter import GcpCounter

GCP_PRODUCTS: Mapping[PurchaseProduct, str] = {
    PurchaseProduct.CAPACITY_RESERVATION: "providers.gcp.shop.reservations:GcpReservations",
    PurchaseProduct.FUTURE_RESERVATION: "providers.gcp.shop.future_reservations:GcpFutureReservations",
    PurchaseProduct.COMMITMENT: "providers.gcp.shop.commitments:GcpCommitments",
}


def products(counter: GcpCounter) -> Mapping[PurchaseProduct, SellsProduct]:
    """What sells each kind."""
    names = {kind.value: path for kind, path in GCP_PRODUCTS.items()}
    return {kind: cast("SellsProduct", load(names, kind.value, "product")(counter)) for kind in GCP_PRODUCTS}
