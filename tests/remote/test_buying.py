"""Buying capacity through a team server: quoted, bought, approved, cancelled and sold by command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.app.capacity import purchases
from broker.core.purchases.purchases import PurchaseState
from providers.sfcompute import Sfcompute, SfcomputeSettings
from tests.fakes.server import FakeServer
from tests.fakes.sfcompute import SfcomputeMarket
from tests.remote.conftest import Laptop, TeamService
from tests.server.test_procuring import SHOP
from tests.server.world import POLICY


@pytest.fixture
def market(service: TeamService, monkeypatch: pytest.MonkeyPatch) -> Iterator[SfcomputeMarket]:
    broker, found = service.world.broker, SfcomputeMarket()
    cash = "  - {name: cash, amount: $9000, period: month}\n"
    policy = POLICY.replace("guardrails:\n", f"{cash}guardrails:\n") + SHOP
    broker.store.activate_policy({"test.yaml": policy}, by="adam")
    with FakeServer(found) as server:
        settings = SfcomputeSettings(base_url=server.url, api_key=found.token)
        provider, before = Sfcompute(clock=broker.clock, settings=settings), broker.provider
        monkeypatch.setattr(broker, "provider", lambda name: provider if name == "sfcompute" else before(name))
        yield found


def test_from_a_quote_to_a_sale(service: TeamService, laptop: Laptop, market: SfcomputeMarket) -> None:
    wanted = ("capacity", "quote", "h100i", "--machines", "2", "--for", "1d", "--provider", "sfcompute")
    assert "2 × h100i" in laptop(*wanted, by="mia").out
    number = str(laptop(*wanted, "--json", by="mia").json["quotes"][0]["number"])
    seen = laptop("capacity", "buy", number, "--team", "nlp", "--dry-run", by="mia")
    assert (seen.code, "would hold" in seen.out, "$768.00" in seen.out) == (0, True, True)
    assert laptop("capacity", "buy", number, "--team", "nlp", "--ceiling", "1", by="mia").code == 2
    refused = laptop("capacity", "buy", number, "--team", "nlp", by="apple")
    assert (refused.code, service.world.broker.store.purchases()) == (3, [])
    bought = laptop("capacity", "buy", number, "--team", "nlp", by="mia")
    [purchase] = service.world.broker.store.purchases()
    assert bought.out.startswith(f"{purchase.id}: asking; 2 more must approve (")
    assert laptop("capacity", "cancel", purchase.id, "--dry-run", by="mia").code == 2, "nothing was ordered"
    for who in ("apple", "tara"):
        assert laptop("capacity", "approve", purchase.id, by=who).code == 0
    purchases.buyer(service.world.broker).advance(purchase.id)
    market.fill()
    assert purchases.buyer(service.world.broker).advance(purchase.id).state is PurchaseState.HELD
    terms = laptop("capacity", "cancel", purchase.id, "--dry-run", by="mia")
    assert (terms.code, "gpubroker capacity sell" in terms.err) == (2, True), terms.err
    shown = laptop("capacity", "sell", purchase.id, "--dry-run", by="mia")
    assert (shown.code, "SF Compute" in shown.out) == (0, True), shown.err
    assert "the price is missing" in laptop("capacity", "sell", purchase.id, by="mia").err
    proposed = laptop("capacity", "sell", purchase.id, "--least", "500", by="adam")
    assert "adam would sell it, and a second person has to agree" in proposed.out, proposed.err
    sold = laptop("capacity", "sell", purchase.id, "--least", "500", by="mia")
    assert (sold.code, f"{purchase.id}: selling" in sold.out) == (0, True), sold.err
    ended = laptop("capacity", "sell", purchase.id, "--stop", "--json", by="mia")
    assert (ended.code, ended.json["state"]) == (0, "held")


def test_what_was_not_ordered_is_withdrawn(service: TeamService, laptop: Laptop, market: SfcomputeMarket) -> None:
    wanted = ("capacity", "quote", "h100i", "--machines", "2", "--for", "1d", "--provider", "sfcompute", "--json")
    number = str(laptop(*wanted, by="mia").json["quotes"][0]["number"])
    id = laptop("capacity", "buy", number, "--team", "nlp", "--json", by="mia").json["id"]
    assert laptop("capacity", "withdraw", id, by="apple").code == 3
    assert laptop("capacity", "withdraw", id, by="mia").out.startswith(f"{id}: not bought")
