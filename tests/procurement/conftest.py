"""A broker with a policy that lets people buy, a clock of the test's own, and AWS's shop behind the real provider."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.capacity import purchases
from broker.app.wiring import Broker
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, QuoteRequest
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import faults
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, BOB, EVERYBODYS, OLGA
from tests.empty_store import empty_store

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud
    from tests.procurement.markets import MarketBench

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
REGION = "us-east-1"
TOTAL = Money.usd("4000")
POLICY = """\
version: 1
policy: buying
budgets: [{name: capital, amount: $10000, period: month}]
guardrails:
  - name: shop
    purchases: {max_commitment: $9000, max_term: 14d, providers: [aws], buyers: [ann], approvers: [ann, bob, olga]}
"""


class RecordedPurchases:
    broker: Broker

    def money(self, purchase: Purchase) -> tuple[Money, Money]:
        """Held and spent for a purchase; the whole ledger balances."""
        with self.broker.store.reading() as look:
            assert faults(look.entries()) == []
            found = list(look.balance(purchase.id).values())
        return sum((one.held for one in found), Money.ZERO), sum((one.spent for one in found), Money.ZERO)

    def check_end(self, asked: Purchase, ended: Purchase, bought: bool, upfront: Money) -> None:
        """What was bought is held and paid. An order that was written down, and then was not sent or was refused
        without an answer, only a person may end.
        """
        if bought:
            assert ended.state is PurchaseState.HELD
            assert self.money(asked) == (ended.quote.recurring, upfront)
            assert len(self.broker.store.holdings()) == 1
            return
        assert (ended.state, self.money(asked)) == (PurchaseState.UNKNOWN, (asked.ceiling, Money.ZERO))
        assert self.notices().count(f"purchase/{asked.id}/unknown") == 1
        over = purchases.withdraw_purchase(self.broker, asked.id, by=ANN, nothing_bought=True)
        assert (over.state, self.money(asked)) == (PurchaseState.NOT_BOUGHT, (Money.ZERO, Money.ZERO))

    def notices(self) -> list[str]:
        return [one.notice.key.rsplit("/", 1)[0] for one in self.broker.store.outbox.under("purchase/")]


@dataclass
class Shop(RecordedPurchases):
    """``cloud``: what AWS has and does. ``broker``: over a store with `POLICY` in force, at `NOW`."""

    cloud: AwsCloud
    broker: Broker
    clock: ManualClock

    def block(self, number: int = 1, fee: str = "4000", days: int = 2, starts_in: int = 1) -> None:
        """Put a block of two machines up for sale that begins in so many days."""
        starts = NOW + timedelta(days=starts_in)
        self.cloud.blocks.append(
            {
                "region": REGION,
                "CapacityBlockOfferingId": f"cb-{number}",
                "InstanceType": "p5.48xlarge",
                "AvailabilityZone": "us-east-1a",
                "InstanceCount": 2,
                "StartDate": starts,
                "EndDate": starts + timedelta(days=days),
                "CapacityBlockDurationHours": days * 24,
                "UpfrontFee": fee,
                "CurrencyCode": "USD",
                "Tenancy": "default",
            }
        )

    def quote(self, days: int = 2) -> CapacityQuote:
        """The cheapest quote for two machines."""
        request = QuoteRequest(machines=2, accelerator="H100", count=8, length=timedelta(days=days), region=REGION)
        found = purchases.quotes(self.broker, request, ["aws"])
        assert found.problems == ()
        return found.quotes[0][1]

    def intend(self, ceiling: Money | None = None) -> Purchase:
        """Ann asks to buy the cheapest block."""
        return self.buy(self.quote(), ceiling=ceiling)

    def buy(self, quote: CapacityQuote, ceiling: Money | None = None, by: Any = ANN) -> Purchase:
        return purchases.buy(self.broker, quote, purchases.Payer(), ceiling=ceiling, by=by)

    def approved(self, ceiling: Money | None = None) -> Purchase:
        """Ann asked, bob and olga approved; nothing is ordered yet."""
        purchase = self.intend(ceiling)
        for who in (BOB, OLGA):
            purchase = purchases.approve(self.broker, purchase.id, by=who)
        return purchase

    def advance(self, purchase: Purchase) -> Purchase:
        return purchases.buyer(self.broker).advance(purchase.id)

    def paid(self, state: str = "scheduled") -> None:
        """AWS has charged for everything that was bought."""
        for row in self.cloud.reservations.get(REGION, []):
            row["State"] = state

    @property
    def bought(self) -> list[dict[str, Any]]:
        """What the account has at AWS."""
        return [row for row in self.cloud.reservations.get(REGION, []) if row["State"] != "payment-failed"]


@pytest.fixture
def cloud(aws_server: AwsCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AwsCloud:
    """AWS's services, empty, and a login to them."""
    aws_server.clear()
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    login = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
    nowhere = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    for name, value in {**login, **nowhere, "AWS_ENDPOINT_URL": aws_server.url}.items():
        monkeypatch.setenv(name, value)
    return aws_server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path / "store.db")
    return str(request.getfixturevalue("new_postgres_store")())


@pytest.fixture
def new_broker(tmp_path: Path, store_url: str, cloud: AwsCloud) -> Iterator[Callable[[], Broker]]:
    """Brokers over one store and one clock, as several processes would have them."""
    made: list[Broker] = []
    clock = ManualClock(NOW)

    def new() -> Broker:
        settings = Settings(
            home=tmp_path,
            store=store_url,
            runs=(tmp_path / "runs").as_uri(),
            providers={"aws": {"regions": (REGION,), "attempts": 1, "timeout_seconds": 60}},
            notify={"chat": "json://localhost/"},
        )
        made.append(Broker(settings, registries(), EVERYBODYS, clock=clock))
        return made[-1]

    yield new
    for broker in made:
        broker.close()


@pytest.fixture
def shop(cloud: AwsCloud, new_broker: Callable[[], Broker]) -> Shop:
    broker = new_broker()
    broker.store.activate_policy({"policy.yaml": POLICY}, by="olga")
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    found = Shop(cloud, broker, clock)
    found.block()
    return found


@pytest.fixture
def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], Any]], AbstractContextManager[MarketBench]]:
    """Opens a market of another cloud with a store of its own."""
    from tests.procurement.markets import bench  # it imports this file

    pytest.importorskip("googleapiclient", reason="the discovery documents are not installed (the extra `dev`)")
    pytest.importorskip("google.cloud.compute_v1", reason="Google's SDKs are not installed (the extra `gcp`)")
    pytest.importorskip("azure.mgmt.compute", reason="Azure's SDK is not installed (the extra `azure`)")
    pytest.importorskip("trustme", reason="trustme is not installed (the extra `dev`)")
    return lambda make: bench(make(), tmp_path, empty_store(tmp_path / "store.db"), monkeypatch)
