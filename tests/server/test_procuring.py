"""Buying, undoing and recording through the API and on the page, at SF Compute's market."""

import base64
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest

from broker.app.capacity import purchases
from broker.core.access.people import TokenScope
from broker.core.purchases.purchases import PurchaseState
from providers.sfcompute import Sfcompute, SfcomputeSettings
from tests.actors import person
from tests.fakes.server import FakeServer
from tests.fakes.sfcompute import SfcomputeMarket
from tests.server.page.browsing import FormFields, Site, site_of
from tests.server.test_changing import ask, lines
from tests.server.world import POLICY, Company

SHOP = """\
  - {name: shop, purchases: {max_commitment: $9000, buyers: [mia, adam], approvers: [apple, tara, mia]}}
"""
WANTED = {"machine": "h100i", "machines": 2, "length": "24h", "providers": ["sfcompute"]}
TOTAL = 768  # 2 nodes × 24 h × $16


@pytest.fixture
def market(world: Company, monkeypatch: pytest.MonkeyPatch) -> Iterator[SfcomputeMarket]:
    """SF Compute's market, a login to it, and a policy under which mia may buy."""
    cash = "  - {name: cash, amount: $9000, period: month}\n"
    policy = POLICY.replace("guardrails:\n", f"{cash}guardrails:\n") + SHOP
    world.broker.store.activate_policy({"test.yaml": policy}, by="adam")
    found = SfcomputeMarket()
    with FakeServer(found) as server:
        settings = SfcomputeSettings(base_url=server.url, api_key=found.token)
        provider, before = Sfcompute(clock=world.broker.clock, settings=settings), world.broker.provider
        monkeypatch.setattr(world.broker, "provider", lambda name: provider if name == "sfcompute" else before(name))
        yield found


def quoted(world: Company) -> int:
    told = ask(world, "/capacity/quotes", "mia", WANTED)
    assert told.status_code == 200, told.text
    [one] = told.json()["quotes"]
    assert one["total_usd"] == f"{TOTAL}.00"
    return int(one["number"])


def bought(world: Company, market: SfcomputeMarket) -> str:
    """Mia bought a block, two approved it, and SF Compute filled the order; its id."""
    id = str(ask(world, "/purchases", "mia", {"quote": quoted(world), "team": "nlp"}).json()["id"])
    for who in ("apple", "tara"):
        assert ask(world, f"/purchases/{id}/grant", who).status_code == 200
    purchases.buyer(world.broker).advance(id)
    market.fill()
    assert purchases.buyer(world.broker).advance(id).state is PurchaseState.HELD
    return id


def test_a_purchase_is_made_once_per_key_and_ordered_when_approved(world: Company, market: SfcomputeMarket) -> None:
    number, key = quoted(world), str(uuid4())
    seen = ask(world, "/purchases/preview", "mia", {"quote": number, "team": "nlp"})
    assert (seen.json()["answer"], seen.json()["approvals"]) == ("ask", 2)
    first, again = (ask(world, "/purchases", "mia", {"quote": number, "team": "nlp"}, key) for _ in range(2))
    assert (first.status_code, first.json()["state"], first.json()["held_usd"]) == (201, "asking", f"{TOTAL}.00")
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(world.broker.store.purchases()) == 1
    assert ("mia", "purchases.buy", "done", "") in lines(world, first.json()["id"])
    assert market.orders == [], "nothing is ordered before it is approved"
    assert ask(world, f"/purchases/{first.json()['id']}/grant", "mia").status_code == 403


@pytest.mark.parametrize(
    ("who", "body", "status", "says"),
    [
        ("mia", {"quote": 999, "team": "nlp"}, 404, "quote"),
        ("mia", {"team": "nlp", "ceiling": "5"}, 422, "above the ceiling"),
        ("mia", {"team": "vision"}, 403, "vision"),
        ("apple", {"team": "nlp"}, 403, "apple"),  # the policy names the buyers
        ("vic", {"team": "nlp"}, 403, ""),
        ("fay", {"team": "nlp"}, 403, ""),
    ],
)
def test_what_may_not_be_bought_is_not(
    world: Company, market: SfcomputeMarket, who: str, body: dict[str, Any], status: int, says: str
) -> None:
    refused = ask(world, "/purchases", who, {"quote": quoted(world), **body})
    assert (refused.status_code, says in refused.text) == (status, True), refused.text
    assert world.broker.store.purchases(closed=True) == []


def test_a_token_for_jobs_buys_nothing(world: Company, market: SfcomputeMarket) -> None:
    token = world.token("mia", TokenScope.READ, TokenScope.JOBS, TokenScope.APPROVALS)
    refused = ask(world, "/purchases", "mia", {"quote": quoted(world), "team": "nlp"}, token=token)
    assert (refused.status_code, "needs the scope purchases" in refused.text) == (403, True)
    assert "`gpubroker tokens create mia --scope read --scope purchases`" in refused.json()["hint"]


def test_what_was_bought_is_withdrawn_or_cannot_be_undone(world: Company, market: SfcomputeMarket) -> None:
    asked = ask(world, "/purchases", "mia", {"quote": quoted(world), "team": "nlp"}).json()["id"]
    gone = ask(world, f"/purchases/{asked}/withdraw", "mia")
    assert (gone.json()["reason"], gone.json()["held_usd"]) == ("withdrawn", "0.00")

    id = bought(world, market)
    terms = world.get(f"/purchases/{id}/undo", "mia")
    assert (terms.status_code, "a filled order cannot be undone" in terms.text) == (422, True), terms.text
    assert ask(world, f"/purchases/{id}/cancel", "mia").status_code == 422


def test_capacity_is_recorded_with_its_proof_by_those_who_see_all(world: Company) -> None:
    content = b"%PDF invoice"
    proof = {"name": "invoice.pdf", "content": base64.b64encode(content).decode()}
    body: dict[str, Any] = {
        "kind": "reservation", "machine": "H100:8", "provider": "crusoe", "price": "9000", "order": "A17",
        "starts": "2026-12-01T00:00:00Z", "ends": "2027-01-01T00:00:00Z", "proof": proof,
    }  # fmt: skip
    assert ask(world, "/capacity", "mia", body).status_code == 403
    key = str(uuid4())
    added, again = (ask(world, "/capacity", "adam", body, key) for _ in range(2))
    assert (added.status_code, added.json()["proof"]) == (201, sha256(content).hexdigest()), added.text
    assert again.json() == added.json()
    assert len(world.broker.store.holdings()) == 1
    for wrong in ({"proof": {**proof, "content": "%"}}, {"machine": "voodoo2"}, {"ends": "2026-11-01T00:00:00Z"}):
        assert ask(world, "/capacity", "adam", {**body, **wrong}).status_code in (404, 422)
    world.broker.store.activate_policy({"test.yaml": POLICY + SHOP.replace("mia, adam", "mia")}, by="adam")
    for proved in (proof, None):
        refused = ask(world, "/capacity", "adam", {**body, "proof": proved})
        assert (refused.status_code, "cannot be recorded" in refused.text) == (403, True), refused.text
    assert len(world.broker.store.holdings()) == 1


def test_the_page_buys_and_withdraws(world: Company, market: SfcomputeMarket) -> None:
    site: Site = site_of(world)
    browser = site.of("mia")
    assert 'href="/capacity/quote"' in site.of("adam").get("/capacity").text
    assert "Ask for quotes" in browser.get("/capacity/quote").text
    wrong = browser.get("/capacity/quote?machine=voodoo2")
    assert (wrong.status_code, 'role="alert"' in wrong.text) == (200, True)
    page = "/capacity/quote?machine=h100i&machines=2&length=24h"
    form = FormFields(browser.get(page).text).forms["/capacity/buy"] | {"team": "nlp"}
    first, again = (browser.post("/capacity/buy", form) for _ in range(2))
    assert first.status_code == 303, first.text
    where = first.headers["location"]
    assert (again.headers["location"], len(world.broker.store.purchases())) == (where, 1)
    assert browser.send_form(where, f"{where}/withdraw").status_code == 303
    assert "withdrawn" in browser.get(where).text

    id = bought(world, market)
    assert "cannot be undone" in browser.get(f"/purchases/{id}/undo").text
    assert person("mia").identity == world.broker.store.purchase(id).user
