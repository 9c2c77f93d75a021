"""Each kind of product that AWS sells: how it is put up for sale, asked for, bought and paid in the tests."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker.app.capacity import purchases
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, QuoteRequest
from broker.core.values.money import Money
from tests.actors import BOB, OLGA
from tests.fakes.aws_cloud import get_products
from tests.fakes.aws_files import on_demand, product
from tests.procurement.conftest import NOW, REGION, TOTAL, Shop

DAY = timedelta(days=1)
YEAR = 365 * DAY
POLICY = """\
version: 1
policy: buying
budgets: [{name: capital, amount: $900000, period: month}]
guardrails:
  - {name: shop, purchases: {max_commitment: $5000000, buyers: [ann], approvers: [ann, bob, olga]}}
"""
OFFERED = "11111111-1111-4111-8111-111111111111"


@dataclass(frozen=True)
class Kind:
    """``bought``: what the account has of it at AWS; ``call``: the operation that buys; ``paid``: makes AWS charge for
    or confirm it; ``upfront``: what is charged at once (USD)."""

    product: PurchaseProduct
    request: QuoteRequest
    call: str
    stock: Callable[[Shop], None]
    bought: Callable[[Shop], list[dict[str, Any]]]
    paid: Callable[[Shop], None]
    upfront: Money
    dry_run: bool = True

    def __str__(self) -> str:
        return self.product.value

    def quote(self, shop: Shop) -> CapacityQuote:
        found = purchases.quotes(shop.broker, self.request, ["aws"])
        assert found.problems == ()
        return found.quotes[0][1]

    def approved(self, shop: Shop, ceiling: Money | None = None) -> Purchase:
        """Ann asked, all approvers needed approved; nothing is ordered yet."""
        purchase = shop.buy(self.quote(shop), ceiling=ceiling)
        for who in (BOB, OLGA)[: purchase.approvals]:
            purchase = purchases.approve(shop.broker, purchase.id, by=who)
        return purchase

    def held(self, shop: Shop) -> Purchase:
        """It is bought, and AWS has charged for it or confirmed it."""
        asked = self.approved(shop)
        shop.advance(asked)
        self.paid(shop)
        return shop.advance(asked)

    def sent(self, shop: Shop) -> int:
        """How often AWS was asked to buy it."""
        return sum(not asked.get("DryRun") for _, asked in shop.cloud.calls(self.call))


def open_shop(shop: Shop) -> None:
    """The policy of these tests, and AWS's clock is the test's."""
    shop.broker.store.activate_policy({"policy.yaml": POLICY}, by="olga")
    shop.cloud.shop.now = shop.clock.now
    machines = [product("p5.48xlarge", REGION), product("g6.48xlarge", REGION)]
    shop.cloud.products = get_products((one, [on_demand(one, "10")]) for one in machines)


def _reservations(shop: Shop) -> list[dict[str, Any]]:
    rows = shop.cloud.reservations.get(REGION, [])
    return [row for row in rows if row["State"] not in ("cancelled", "unsupported", "failed", "payment-failed")]


def _confirmed(state: str) -> Callable[[Shop], None]:
    def confirm(shop: Shop) -> None:
        for row in shop.cloud.reservations.get(REGION, []):
            row["State"] = state

    return confirm


def _plans(shop: Shop) -> list[dict[str, Any]]:
    return [row for row in shop.cloud.savings_plans if row["state"] in ("payment-pending", "queued", "active")]


def _sell_plan(shop: Shop) -> None:
    properties = {
        "region": REGION,
        "instanceType": "g6.48xlarge",
        "productDescription": "Linux/UNIX",
        "tenancy": "shared",
    }
    offering = {
        "offeringId": OFFERED,
        "paymentOption": "Partial Upfront",
        "planType": "Compute",
        "durationSeconds": 365 * 86_400,
        "currency": "USD",
    }
    shop.cloud.rates = [
        {
            "savingsPlanOffering": offering,
            "rate": "6",
            "unit": "Hrs",
            "productType": "EC2",
            "serviceCode": "AmazonEC2",
            "usageType": "BoxUsage:g6.48xlarge",
            "operation": "RunInstances",
            "properties": [{"name": name, "value": value} for name, value in properties.items()],
        }
    ]


def _plan_paid(shop: Shop) -> None:
    for row in shop.cloud.savings_plans:
        row["state"] = "active"


def _nothing(shop: Shop) -> None:
    pass


def _request(product: PurchaseProduct, length: timedelta, type: str = "p5.48xlarge", **more: Any) -> QuoteRequest:
    return QuoteRequest(machines=2, instance_type=type, length=length, region=REGION, products=(product,), **more)


NOW_ON = Kind(
    product=PurchaseProduct.CAPACITY_RESERVATION,
    request=_request(PurchaseProduct.CAPACITY_RESERVATION, 3 * DAY),
    call="CreateCapacityReservation",
    stock=_nothing,
    bought=_reservations,
    paid=_confirmed("active"),
    upfront=Money.ZERO,
)
LATER = Kind(
    product=PurchaseProduct.FUTURE_RESERVATION,
    request=_request(PurchaseProduct.FUTURE_RESERVATION, 14 * DAY, "g6.48xlarge", earliest=NOW + 10 * DAY),
    call="CreateCapacityReservation",
    stock=_nothing,
    bought=_reservations,
    paid=_confirmed("scheduled"),
    upfront=Money.ZERO,
)
PLAN = Kind(
    product=PurchaseProduct.SAVINGS_PLAN,
    request=_request(PurchaseProduct.SAVINGS_PLAN, YEAR, "g6.48xlarge"),
    call="CreateSavingsPlan",
    stock=_sell_plan,
    bought=_plans,
    paid=_plan_paid,
    upfront=Money.usd(52560),
    dry_run=False,
)
BLOCK = Kind(
    product=PurchaseProduct.CAPACITY_BLOCK,
    request=QuoteRequest(machines=2, accelerator="H100", count=8, length=2 * DAY, region=REGION),
    call="PurchaseCapacityBlock",
    stock=_nothing,
    bought=lambda shop: shop.bought,
    paid=lambda shop: shop.paid(),
    upfront=TOTAL,
)
KINDS = (NOW_ON, LATER, PLAN)
