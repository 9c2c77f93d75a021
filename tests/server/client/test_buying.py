"""Buying capacity through a team server: quoted, bought, approved, cancelled and sold by command."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from broker.app.capacity import purchases
from broker.app.wiring import Broker
from broker.cli.terminal import Terminal
from broker.core.actors import Actor
from broker.core.errors import Unreachable
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import UndoTerms
from broker.core.values.money import Money
from broker.server.client.team_api import TeamApi
from providers.sfcompute import Sfcompute, SfcomputeSettings
from tests.cli.documents import check
from tests.fakes.server import FakeServer
from tests.fakes.sfcompute import SfcomputeMarket
from tests.server.client.conftest import Laptop, TeamService
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


def asked_for(laptop: Laptop) -> Any:
    """A purchase that waits for its approvers."""
    wanted = ("capacity", "quote", "h100i", "--machines", "2", "--for", "1d", "--provider", "sfcompute", "--json")
    number = str(laptop(*wanted, by="mia").json["quotes"][0]["number"])
    return laptop("capacity", "buy", number, "--team", "nlp", "--json", by="mia").json


def test_from_a_quote_to_the_bought_block(service: TeamService, laptop: Laptop, market: SfcomputeMarket) -> None:
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
    assert bought.out.startswith(
        f"{purchase.id}: waits for approval\ncapacity block: 2 × h100i (H100 × 16) at sfcompute"
    )
    assert f"2 approvals missing, of adam or apple or tara: approvals grant {purchase.id}" in bought.out
    assert "$768.00" in laptop("capacity", "purchases", by="mia").out
    assert laptop("capacity", "undo", purchase.id, "--dry-run", by="mia").code == 0, "nothing was ordered"
    approved = [laptop("approvals", "grant", purchase.id, by=who) for who in ("apple", "tara")]
    assert [done.code for done in approved] == [0, 0]
    assert approved[1].out.endswith("\nordered by gpubroker serve\n"), "a server orders by itself"
    purchases.buyer(service.world.broker).advance(purchase.id)
    market.fill()
    assert purchases.buyer(service.world.broker).advance(purchase.id).state is PurchaseState.HELD
    terms = laptop("capacity", "undo", purchase.id, "--dry-run", by="mia")
    assert (terms.code, "a filled order cannot be undone" in terms.err) == (2, True), terms.err
    assert "approved by tara" in laptop("capacity", "purchases", purchase.id, by="mia").out


def test_what_was_not_ordered_is_withdrawn(service: TeamService, laptop: Laptop, market: SfcomputeMarket) -> None:
    id = asked_for(laptop)["id"]
    assert laptop("capacity", "undo", id, by="apple").code == 3
    assert laptop("capacity", "undo", id, by="mia").out.startswith(f"{id}: not bought")


def test_a_purchase_is_made_once_although_the_first_answer_is_lost(
    service: TeamService, laptop: Laptop, market: SfcomputeMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sent, posted = len(service.world.broker.store.purchases()), TeamApi._send, list[str]()

    def lossy(api: TeamApi, method: str, path: str, **more: Any) -> Any:
        answer = sent(api, method, path, **more)
        if path.endswith("/purchases"):
            posted.append(path)
            if len(posted) == 1:
                raise Unreachable("the connection was closed")
        return answer

    monkeypatch.setattr(TeamApi, "_send", lossy)
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
    asked = asked_for(laptop)
    assert (asked["state"], len(posted), len(service.world.broker.store.purchases())) == ("asking", 2, before + 1)


def test_a_cancellation_shows_its_terms_and_is_confirmed(
    service: TeamService, laptop: Laptop, market: SfcomputeMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[tuple[str, Money]] = []

    def undo(broker: Broker, id: str, *, by: Actor, max_charge: Money) -> Purchase:
        undone.append((by.identity, max_charge))
        return broker.store.purchase(id)

    terms = UndoTerms(way="cancel", charge=Money.usd(5))
    monkeypatch.setattr(purchases, "undo_terms", lambda broker, id: terms)
    monkeypatch.setattr(purchases, "undo", undo)
    id = asked_for(laptop)["id"]
    assert [laptop("approvals", "grant", id, by=who).code for who in ("apple", "tara")] == [0, 0]
    purchases.buyer(service.world.broker).advance(id)
    command = ("capacity", "undo", id, "--at-most", "5")
    seen = laptop(*command, "--dry-run", "--json", by="mia")
    check("capacity-undo", seen.json)
    unasked = laptop(*command, by="mia")
    assert (unasked.code, "no terminal for the confirmation" in unasked.err) == (2, True)
    monkeypatch.setattr(Terminal, "asks", property(lambda terminal: True))
    for answer, code in ((False, 1), (True, 0)):
        assert undone == []
        monkeypatch.setattr(typer, "confirm", lambda *_, answer=answer, **__: answer)
        done = laptop(*command, by="mia")
        assert (done.code, "charges $5.00 for it" in done.out) == (code, True), done.err
    assert laptop("capacity", "undo", command[2], "--yes", by="mia").code == 0
    assert undone == [("mia", Money.usd(5)), ("mia", Money.ZERO)]


def test_what_a_server_does_not_offer_is_refused_before_anything_happens(laptop: Laptop) -> None:
    for command in (
        ("buy", "--from-plan", "none.json"),
        ("buy", "1", "--line", "2"),
        ("purchases", "purchase-1", "--order"),
    ):
        refused = laptop("capacity", *command, by="mia")
        assert (refused.code, f"capacity {command[0]}" in refused.err) == (2, True), refused.err
        assert "does not work through a team server" in refused.err


def test_an_answer_that_cannot_be_read_says_that_the_change_was_made(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TeamApi, "change", lambda api, path, body: {"id": "purchase-1"})
    done = laptop("capacity", "buy", "1", by="mia")
    assert (done.code, "the change was made (purchase-1), but the answer is not what" in done.err) == (5, True), (
        done.err
    )
