"""People, their roles, tokens and watches through the API: as a program declares them, and never more than one may."""

from datetime import timedelta
from typing import Any

import pytest

from broker.app.access import people, tokens
from broker.core.access.api_tokens import id_of
from broker.core.access.people import TokenScope
from tests.actors import ROOT
from tests.server.test_changing import lines
from tests.server.world import DAY, Company, bearer

MEMBER = {"roles": [], "teams": {"nlp": "member"}}
WATCH = {"trigger": "below", "gpu": ["L4"], "provider": ["sandbox"], "price": "0.5"}


def send(world: Company, method: str, path: str, by: str, body: Any = None, token: str = "") -> Any:
    return world.client.request(method, f"/api/v1{path}", json=body, headers=bearer(token or world.usual(by)))


def test_somebody_is_declared_once_and_again_without_effect(world: Company) -> None:
    first = send(world, "PUT", "/people/zoe", "adam", MEMBER)
    assert (first.status_code, first.json()["teams"]) == (201, {"nlp": "member"}), first.text
    again = send(world, "PUT", "/people/zoe", "adam", MEMBER)
    assert (again.status_code, again.json()) == (200, first.json())
    assert [line[1] for line in lines(world, "zoe")] == ["people.add", "people.set"]
    changed = send(world, "PUT", "/people/zoe", "adam", {"roles": ["finops"], "teams": {}, "disabled": True})
    assert (changed.json()["roles"], changed.json()["teams"]) == (["finops"], {})
    assert changed.json()["disabled_at"]
    moved = send(world, "PUT", "/people/zoe", "adam", MEMBER).json()
    assert moved["disabled_at"] == changed.json()["disabled_at"], "roles enable nobody"
    enabled = send(world, "PUT", "/people/zoe", "adam", {**MEMBER, "disabled": False})
    assert enabled.json()["disabled_at"] is None
    changed = send(world, "PUT", "/people/zoe", "adam", {"roles": ["finops"], "teams": {}, "disabled": True})
    assert send(world, "GET", "/people/zoe", "adam").json() == changed.json()
    assert send(world, "GET", "/people/nobody", "adam").status_code == 404


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("adam", {"roles": []}, "last administrator"),
        ("mia", {"service": True}, "is a person, and remains one"),
        ("bot", {"service": True, "roles": ["administrator"]}, "cannot be administrator"),
        ("bot", {"service": True, "teams": {"nlp": "approver"}}, "cannot be approver"),
        ("zoe", {"teams": {"n*": "member"}}, "not a valid name of a team"),
        ("-x", {}, "not a valid name of a person"),
    ],
)
def test_what_no_administrator_may_do_changes_nothing(world: Company, name: str, change: Any, says: str) -> None:
    before = send(world, "GET", "/people", "adam").json()
    refused = send(world, "PUT", f"/people/{name}", "adam", {"roles": [], "teams": {}, **change})
    assert (refused.status_code, says in refused.json()["detail"]) == (422, True), refused.text
    assert send(world, "GET", "/people", "adam").json() == before


@pytest.mark.parametrize("who", ["mia", "tara", "fay", "otto", "nora"])
def test_only_an_administrator_changes_people(seen_world: Company, who: str) -> None:
    for method, path, body in (
        ("PUT", f"/people/{who}", {"roles": ["administrator"], "teams": {}}),
        ("POST", "/people/adam/tokens", {"scopes": ["read"]}),
        ("DELETE", "/tokens/0123", None),
    ):
        refused = send(seen_world, method, path, who, body)
        assert (refused.status_code, refused.json()["kind"]) == (403, "role_missing")


def test_an_administrator_makes_and_revokes_a_token_of_a_service_account(world: Company) -> None:
    send(world, "PUT", "/people/ci", "adam", {"roles": [], "teams": {"nlp": "member"}, "service": True})
    made = send(world, "POST", "/people/ci/tokens", "adam", {"scopes": ["read", "jobs"], "expires_days": 90})
    assert made.status_code == 201, made.text
    assert send(world, "GET", "/me", "", token=made.json()["token"]).json()["person"]["name"] == "ci"
    refused = send(world, "POST", "/people/ci/tokens", "adam", {"scopes": ["people"]})
    assert (refused.status_code, "service account" in refused.text) == (422, True)
    for _ in range(2):
        revoked = send(world, "DELETE", f"/tokens/{made.json()['id']}", "adam")
        assert (revoked.status_code, revoked.json()["revoked_by"]) == (200, "adam")
    assert send(world, "GET", "/me", "", token=made.json()["token"]).status_code == 401
    assert "gpb_" not in send(world, "GET", "/audit", "adam").text
    used = {
        line.token for _, line in people.audit_log(world.broker, by=ROOT, limit=20) if line.origin.startswith("api")
    }
    assert used == {id_of(world.usual("adam"))}, "each change names the token that made it"


def test_a_member_makes_tokens_of_their_own_which_make_no_others(world: Company) -> None:
    made = send(world, "POST", "/me/tokens", "mia", {"scopes": ["read"], "expires_days": 7, "label": "notebook"})
    assert made.status_code == 201, made.text
    own = made.json()["token"]
    assert send(world, "GET", "/jobs", "", token=own).status_code == 200
    assert send(world, "POST", "/plans", "", {"job_file": ""}, token=own).status_code == 403
    assert send(world, "POST", "/me/tokens", "", {"scopes": ["read"]}, token=own).status_code == 403
    listed = send(world, "GET", "/me/tokens", "mia").json()["tokens"]
    assert {one["person"] for one in listed} == {"mia"}
    assert made.json()["id"] in [one["id"] for one in listed]
    assert send(world, "DELETE", f"/me/tokens/{made.json()['id']}", "otto").status_code == 404
    assert send(world, "DELETE", f"/me/tokens/{made.json()['id']}", "mia").status_code == 200
    assert send(world, "GET", "/jobs", "", token=own).status_code == 401


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"scopes": ["approvals"]}, "scopes"),
        ({"scopes": ["people"]}, "scopes"),
        ({"scopes": ["read"], "expires_days": 30}, "expires_days"),
    ],
)
def test_a_token_makes_none_that_may_more_or_lasts_longer(world: Company, body: Any, where: str) -> None:
    narrow = world.token("mia", TokenScope.READ, TokenScope.PEOPLE, expires=7 * DAY)
    refused = send(world, "POST", "/me/tokens", "", body, token=narrow)
    assert (refused.status_code, refused.json()["where"]) == (422, where), refused.text
    short = {"scopes": ["read"], "expires_days": 6}
    assert send(world, "POST", "/me/tokens", "", short, token=narrow).status_code == 201


def test_a_token_ends_with_the_rights_of_its_owner(world: Company) -> None:
    own = send(world, "POST", "/me/tokens", "mia", {"scopes": ["read", "jobs"], "expires_days": 7}).json()["token"]
    people.disable(world.broker, "mia", by=ROOT)
    assert send(world, "GET", "/jobs", "", token=own).status_code == 401
    people.enable(world.broker, "mia", by=ROOT)
    send(world, "PUT", "/people/mia", "adam", {"roles": [], "teams": {"nlp": "viewer"}})
    assert send(world, "GET", "/jobs", "", token=own).status_code == 401, "roles changed"
    service = tokens.create(world.broker, "bot", "", {TokenScope.READ}, timedelta(days=2), by=ROOT, service=True)
    assert send(world, "POST", "/me/tokens", "", {"scopes": ["read"]}, token=service.text).status_code == 403


def test_a_watch_is_declared_changed_by_its_owner_alone_and_deleted(world: Company) -> None:
    first = send(world, "PUT", "/watches/cheap", "mia", WATCH)
    assert (first.status_code, first.json()["price_per_gpu_hour"]) == (201, "0.50"), first.text
    assert send(world, "PUT", "/watches/cheap", "mia", WATCH).json()["made_at"] == first.json()["made_at"]
    assert [line[1] for line in lines(world, "cheap")] == ["watches.set"], "again: no effect"
    dearer = send(world, "PUT", "/watches/cheap", "mia", WATCH | {"price": "0.7"})
    assert (dearer.status_code, dearer.json()["waits_for"].count("$0.70")) == (200, 1)
    for method, body in (("PUT", WATCH), ("DELETE", None)):
        refused = send(world, method, "/watches/cheap", "otto", body)
        assert (refused.status_code, "mia's" in refused.text) == (403, True), refused.text
        assert send(world, method, "/watches/cheap", "vic", body).status_code == 403
    assert send(world, "DELETE", "/watches/cheap", "adam").json() == {"removed": "cheap"}
    assert send(world, "DELETE", "/watches/cheap", "adam").status_code == 404


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"price": None}, "price"),
        ({"stale_after_seconds": 600}, "stale_after_seconds"),
        ({"trigger": "rises"}, "price"),
    ],
)
def test_a_watch_has_the_terms_of_its_trigger(seen_world: Company, change: Any, where: str) -> None:
    refused = send(seen_world, "PUT", "/watches/odd", "mia", WATCH | change)
    assert (refused.status_code, refused.json()["where"]) == (422, where)


def test_a_stranger_is_not_told_where_alerts_go(seen_world: Company) -> None:
    assert send(seen_world, "GET", "/watches", "vic").json()["targets"] == []
