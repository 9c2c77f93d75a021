"""Purchases through the API: who sees them, and who approves them, once."""

from datetime import timedelta
from uuid import uuid4

import pytest

from broker.core.policy.approvals import Question
from broker.core.purchases.purchase_events import Intended
from broker.core.purchases.purchases import PurchaseState, start_purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, Undo
from broker.core.values.money import Money
from broker.procurement.money import ceiling_entries
from tests.server.page.browsing import FormFields, site_of
from tests.server.test_changing import ask, lines
from tests.server.world import POLICY, Company

ID = "purchase-0123456789ab"


SHOP = """\
  - {name: shop, purchases: {max_commitment: $9000, approvers: [mia, apple, tara, adam]}}
"""


def asked_for(world: Company, user: str = "mia", team: str = "nlp") -> None:
    """A purchase that two people must approve, by the policy in force."""
    cash = "  - {name: cash, amount: $9000, period: month}\n"
    policy = POLICY.replace("guardrails:\n", f"{cash}guardrails:\n") + SHOP
    world.broker.store.activate_policy({"test.yaml": policy}, by="adam")
    now = world.broker.clock.now()
    quote = CapacityQuote(
        product=PurchaseProduct.CAPACITY_BLOCK, provider="aws", offering="cb-1", region="us-east-1", instance_type="p5",
        accelerator="H100", count=8, machines=2, starts=now + timedelta(days=1), ends=now + timedelta(days=3),
        total=Money.usd(3900), undo=Undo.NONE, quoted_at=now,
    )  # fmt: skip
    event = Intended(
        quote=quote, ceiling=quote.total, binding="b1", user=user, team=team, approvals=2,
        questions=(Question(rule="shop", approvers=("mia", "apple", "tara", "adam")),),
    )  # fmt: skip
    with world.broker.store.writing() as tx:
        tx.post(ceiling_entries(start_purchase(ID, event, now), now))
        tx.append_purchase(ID, event, now)


def test_two_people_approve_and_a_repetition_is_none(world: Company) -> None:
    asked_for(world)
    assert ask(world, f"/purchases/{ID}/grant", "apple", {"binding": "other"}).status_code == 409
    key = str(uuid4())
    one, again = (ask(world, f"/purchases/{ID}/grant", "apple", {"binding": "b1"}, key) for _ in range(2))
    assert (one.status_code, one.json()["approved_by"]) == (200, ["apple"]), one.text
    assert again.json() == one.json()
    assert ask(world, f"/purchases/{ID}/grant", "apple").status_code == 409, "not twice"
    done = ask(world, f"/purchases/{ID}/grant", "tara", {"binding": "b1"})
    assert done.json()["approvals_missing"] == 0
    assert world.broker.store.purchase(ID).state is not PurchaseState.ASKING
    assert ("apple", "purchases.grant", "done", "") in lines(world, ID)


def test_a_refusal_releases_the_money(world: Company) -> None:
    asked_for(world)
    refused = ask(world, f"/purchases/{ID}/refuse", "apple", {"reason": "not this quarter"})
    assert refused.status_code == 200, refused.text
    assert (refused.json()["reason"], refused.json()["held_usd"]) == ("rejected", "0.00")


@pytest.mark.parametrize(("who", "status"), [("mia", 403), ("vic", 403), ("fay", 403), ("otto", 404), ("nora", 403)])
def test_others_approve_nothing(world: Company, who: str, status: int) -> None:
    asked_for(world)
    for decision in ("grant", "refuse"):
        assert ask(world, f"/purchases/{ID}/{decision}", who).status_code == status
    assert world.broker.store.purchase(ID).approved_by == ()


def test_nobody_approves_their_own_purchase(world: Company) -> None:
    asked_for(world, user="apple")
    own = ask(world, f"/purchases/{ID}/grant", "apple")
    assert (own.status_code, "their own" in own.text) == (403, True)


def test_a_purchase_of_another_team_is_not_there(world: Company) -> None:
    asked_for(world, user="otto", team="vision")
    assert world.get("/purchases", "mia").json()["purchases"] == []
    assert world.get(f"/purchases/{ID}", "mia").status_code == 404
    assert [one["id"] for one in world.get("/purchases", "fay").json()["purchases"]] == [ID]


def test_two_people_approve_on_the_page_what_they_have_seen(world: Company) -> None:
    asked_for(world)
    site, where = site_of(world), f"/purchases/{ID}"
    for who in ("mia", "vic", "fay"):
        assert f"{where}/approve" not in FormFields(site.of(who).get(where).text).forms
    forms = FormFields(site.of("apple").get(where).text).forms
    assert (
        site.of("apple").post(f"{where}/approve", forms[f"{where}/approve"] | {"binding": "other"}).status_code == 409
    )
    for _ in range(2):
        assert site.of("apple").post(f"{where}/approve", forms[f"{where}/approve"]).status_code == 303, "once"
    assert world.broker.store.purchase(ID).approved_by == ("apple",)
    assert f"{where}/approve" not in FormFields(site.of("apple").get(where).text).forms, "not twice"
    assert f'href="{where}"' in site.of("tara").get("/approvals").text
    assert site.of("tara").send_form(where, f"{where}/approve").status_code == 303
    assert world.broker.store.purchase(ID).state is not PurchaseState.ASKING


def test_a_purchase_is_refused_on_the_page(world: Company) -> None:
    asked_for(world)
    where = f"/purchases/{ID}"
    assert site_of(world).of("apple").send_form(where, f"{where}/reject", reason="not now").status_code == 303
    assert world.get(where, "mia").json()["purchase"]["reason"] == "rejected"
