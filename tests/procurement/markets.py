"""The providers beside AWS from which capacity can be bought, each behind a line that can be spoilt.

A market sells one product: it is a real provider with its real SDK, and a fake on loopback that takes only what the
real service takes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.capacity import purchases
from broker.app.wiring import Broker
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, QuoteRequest
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, BOB, EVERYBODYS, OLGA
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import small_market
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest
from tests.fakes.sfcompute import SfcomputeMarket
from tests.procurement.conftest import NOW, RecordedPurchases
from tests.procurement.spoilt import SpoiltLine

DAY = timedelta(days=1)
YEAR = 365 * DAY
POLICY = """\
version: 1
policy: buying
budgets: [{name: capital, amount: $9000000, period: month}]
guardrails:
  - {name: shop, purchases: {max_commitment: $5000000, buyers: [ann], approvers: [ann, bob, olga]}}
"""


@dataclass
class Stall:
    """One product of one provider. ``settings``: of the provider, with the fake's address. ``bought``: what the account
    has of it there; ``pay``: the provider confirms or charges for what was bought. ``resent``: the order may be sent
    again with the same key. ``serve``: where the fake is served otherwise than over plain HTTP: brings the provider's
    settings. ``looks``: the most requests that a search for an order takes."""

    provider: str
    request: QuoteRequest
    line: SpoiltLine
    settings: Callable[[str], dict[str, Any]]
    bought: Callable[[], list[Any]]
    pay: Callable[[], None]
    upfront: Money = Money.ZERO
    resent: bool = True
    looks: int = 3
    login: dict[str, str] = field(default_factory=dict)
    serve: Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[dict[str, Any]]] | None = None


@dataclass
class MarketBench(RecordedPurchases):
    """A stall with brokers that buy there. ``clock``: theirs."""

    stall: Stall
    clock: ManualClock
    new_broker: Callable[[], Broker]
    broker: Broker

    def quote(self) -> CapacityQuote:
        found = purchases.quotes(self.broker, self.stall.request, [self.stall.provider])
        assert found.problems == ()
        return found.quotes[0][1]

    def approved(self) -> Purchase:
        """Ann asked, all approvers needed approved; nothing is ordered yet."""
        purchase = purchases.buy(self.broker, self.quote(), purchases.Payer(), by=ANN)
        for who in (BOB, OLGA)[: purchase.approvals]:
            purchase = purchases.approve(self.broker, purchase.id, by=who)
        return purchase

    def advance(self, purchase: Purchase) -> Purchase:
        return purchases.buyer(self.broker).advance(purchase.id)

    def carry_on(self, purchase: Purchase, times: int = 12) -> Purchase:
        """Somebody looks after it every half a minute; the provider confirms what was bought."""
        found = purchase
        for _ in range(times):
            self.clock.advance(timedelta(seconds=30))
            found = self.advance(purchase)
            self.stall.pay()
        return found


@contextmanager
def _served(stall: Stall, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    if stall.serve is not None:
        with stall.serve(home, monkeypatch) as settings:
            yield settings
        return
    with FakeServer(stall.line) as server:
        yield stall.settings(server.url)


@contextmanager
def bench(stall: Stall, home: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MarketBench]:
    """The stall open for business, and a broker with a policy that lets people buy there."""
    for variable in [name for name in os.environ if name.startswith(_LOGINS)]:
        monkeypatch.delenv(variable)
    for name, value in {"CLOUDSDK_CONFIG": str(home / "none"), **stall.login}.items():
        monkeypatch.setenv(name, value)
    clock, made = ManualClock(NOW), list[Broker]()
    with _served(stall, home, monkeypatch) as settings_of_it:

        def new() -> Broker:
            settings = Settings(
                home=home,
                store=store,
                runs=(home / "runs").as_uri(),
                providers={stall.provider: {**settings_of_it, "attempts": 1, "timeout_seconds": 30}},
                notify={"chat": "json://localhost/"},
            )
            made.append(Broker(settings, registries(), EVERYBODYS, clock=clock))
            return made[-1]

        broker = new()
        broker.store.activate_policy({"policy.yaml": POLICY}, by="olga")
        try:
            yield MarketBench(stall, clock, new, broker)
        finally:
            for one in made:
                one.close()


_LOGINS = ("GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCE_", "AZURE_", "AWS_", "SFC_", "SF_")


# --- Google Cloud -----------------------------------------------------------------------------------------------------

_ZONE = "us-central1-a"


def _gcp_nothing(request: HttpRequest) -> HttpAnswer:
    if request.path.endswith("/operations"):
        return HttpAnswer(200, {"kind": "compute#operationList"})
    error = {"code": 404, "message": "not found", "errors": [{"message": "not found", "reason": "notFound"}]}
    return HttpAnswer(404, {"error": error})


def _gcp(resource: str, product: PurchaseProduct, type: str, length: timedelta, confirmed: str, **more: Any) -> Stall:
    cloud = small_market(GcpCloud())
    cloud.shop.now = lambda: NOW
    starts, ends = NOW + 3 * DAY, NOW + 3 * DAY + length
    cloud.shop.free[type] = (_ZONE, starts.isoformat(), ends.isoformat())
    rows, place = {
        "reservations": (cloud.reservations, _ZONE),
        "futureReservations": (cloud.future_reservations, _ZONE),
        "commitments": (cloud.commitments, "us-central1"),
    }[resource]

    def bought() -> list[Any]:
        return rows.get(place, [])

    def pay() -> None:
        for row in bought():
            if resource == "futureReservations":
                row["status"]["procurementStatus"] = confirmed
            else:
                row["status"] = confirmed

    def is_look(request: HttpRequest) -> bool:
        ours = f"/{resource}/" in request.path or request.path.endswith("/operations")
        return request.method == "GET" and ours and "/aggregated/" not in request.path

    line = SpoiltLine(
        cloud,
        is_order=lambda request: request.method == "POST" and request.path.endswith(f"/{resource}"),
        is_look=is_look,
        nothing=_gcp_nothing,
    )
    return Stall(
        provider="gcp",
        request=QuoteRequest(
            machines=2, instance_type=type, length=length, region="us-central1", products=(product,), **more
        ),
        line=line,
        settings=lambda url: {"compute_url": url, "billing_url": url, "project": "team-ml", "anonymous": True},
        bought=bought,
        pay=pay,
        looks=4,
    )


def gcp_reservation() -> Stall:
    return _gcp("reservations", PurchaseProduct.CAPACITY_RESERVATION, "a3-highgpu-8g", 3 * DAY, "READY")


def gcp_calendar() -> Stall:
    return _gcp("futureReservations", PurchaseProduct.FUTURE_RESERVATION, "a3-highgpu-8g", 7 * DAY, "APPROVED")


def gcp_commitment() -> Stall:
    return _gcp("commitments", PurchaseProduct.COMMITMENT, "g2-standard-96", YEAR, "ACTIVE")


# --- SF Compute -------------------------------------------------------------------------------------------------------


def sfcompute_block() -> Stall:
    market = SfcomputeMarket(now=lambda: NOW)
    line = SpoiltLine(
        market,
        is_order=lambda request: request.method == "POST" and request.path == "/v0/orders",
        is_look=lambda request: request.method == "GET" and request.path == "/v0/orders",
        nothing=lambda request: HttpAnswer(200, {"object": "list", "data": [], "has_more": False}),
    )
    return Stall(
        provider="sfcompute",
        request=QuoteRequest(machines=2, instance_type="h100i", length=3 * DAY),
        line=line,
        settings=lambda url: {"base_url": url, "api_key": market.token},
        bought=lambda: [row for row in market.orders if row["status"] not in ("cancelled", "rejected")],
        pay=market.fill,
        upfront=Money.usd("2304"),
        resent=False,
    )


STALLS: tuple[Callable[[], Stall], ...] = (gcp_reservation, gcp_calendar, gcp_commitment, sfcompute_block)
