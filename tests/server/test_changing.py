"""The routes that change something: who may, once however often it is asked, on record, and from no other site."""

from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from broker.app.access import people
from broker.app.access.idempotency import ChangeAnswer, ChangeRequest, ChangeUnderWay, run_once
from broker.app.jobs import jobs
from broker.core.access.people import Permission, TokenScope
from broker.core.errors import CommitUnknown, StoreProblem
from broker.server.api.routes import ROUTES, ApiRoute
from tests.actors import ROOT
from tests.server.test_matrix import TEAMS, access_of, named
from tests.server.world import EVERYBODY, POLICY, Company, bearer, submitted

CHANGES = [route for route in ROUTES if route.method == "POST" and "{id}" in route.path]
BODIES: dict[str, Any] = {"extend_job": {"max_duration": "8h"}, "resume_job": {"job_file": "name: again\nrun: echo\n"}}


def ask(world: Company, path: str, by: str, body: Any = None, key: str | None = None, token: str = "") -> Any:
    headers = bearer(token or world.usual(by)) | {"Idempotency-Key": key or str(uuid4())}
    return world.client.post(f"/api/v1{path}", json={} if body is None else body, headers=headers)


def lines(world: Company, subject: str) -> list[tuple[str, str, str, str]]:
    found = people.audit_log(world.broker, by=ROOT, limit=20, subject=subject)
    return [(line.person, line.action, line.outcome.value, line.reason) for _, line in reversed(found)]


def may_change(who: str, which: str) -> bool:
    access = access_of(who)
    needed = (
        Permission.CHANGE_OWN_JOBS if who == ("otto" if which == "foreign" else "mia") else Permission.CHANGE_TEAM_JOBS
    )
    return access.may(needed, TEAMS[which])


def refusals() -> list[tuple[ApiRoute, str, str]]:
    """Every change that the tables refuse."""
    found = []
    for route, which, who in product(CHANGES, TEAMS, EVERYBODY):
        approves = route.permission is Permission.APPROVE
        allowed = access_of(who).may(Permission.APPROVE, TEAMS[which]) if approves else may_change(who, which)
        if not allowed:
            found.append((route, which, who))
    return found


@pytest.mark.parametrize(
    ("route", "which", "who"), refusals(), ids=lambda one: one if isinstance(one, str) else named(one)
)
def test_who_may_not_changes_nothing(seen_world: Company, route: ApiRoute, which: str, who: str) -> None:
    id, access = getattr(seen_world, which), access_of(who)
    before = jobs.events(seen_world.broker, jobs.find(seen_world.broker, id))
    answer = ask(seen_world, route.path.format(id=id), who, BODIES.get(route.endpoint.__name__))
    assert route.permission is not None
    hidden = access.anywhere(route.permission) and not access.may(Permission.SEE_JOBS, TEAMS[which])
    expected = (404, "unknown_name") if hidden else (403, "role_missing")
    assert (answer.status_code, answer.json()["kind"]) == expected, answer.text
    assert jobs.events(seen_world.broker, jobs.find(seen_world.broker, id)) == before


@pytest.mark.parametrize("who", ["mia", "tara", "adam"])
def test_a_job_is_cancelled_by_its_owner_and_its_administrators(world: Company, who: str) -> None:
    answer = ask(world, f"/jobs/{world.mine}/cancel", who)
    assert (answer.status_code, answer.json()["cancel_requested"]) == (200, True)
    assert lines(world, world.mine) == [(who, "jobs.cancel", "begun", ""), (who, "jobs.cancel", "done", "")]


def test_a_change_is_in_the_audit_log_with_token_and_address_before_and_after(world: Company) -> None:
    token = world.token("mia")
    ask(world, f"/jobs/{world.mine}/cancel", "mia", token=token)
    (_, done), (_, begun) = people.audit_log(world.broker, by=ROOT, limit=2, subject=world.mine)
    assert (done.origin, done.token) == ("api testclient", token.split("_")[1])
    assert "to be cancelled" in done.after
    assert done.before == begun.before
    assert "to be cancelled" not in done.before


def test_an_extension_is_made_once_however_often_it_is_asked(world: Company) -> None:
    key = str(uuid4())
    first = ask(world, f"/jobs/{world.mine}/extend", "mia", {"max_duration": "3h"}, key)
    assert first.status_code == 200, first.text
    assert first.json()["max_duration"] == 3 * 3600
    again = ask(world, f"/jobs/{world.mine}/extend", "mia", {"max_duration": "3h"}, key)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    events = jobs.events(world.broker, jobs.find(world.broker, world.mine))
    assert [event.body.kind for event in events].count("extended") == 1
    other = ask(world, f"/jobs/{world.mine}/extend", "mia", {"max_duration": "4h"}, key)
    assert (other.status_code, other.json()["where"]) == (422, "Idempotency-Key")


def test_a_key_is_its_owners_alone(world: Company) -> None:
    key = str(uuid4())
    ask(world, f"/jobs/{world.mine}/cancel", "mia", key=key)
    answer = ask(world, f"/jobs/{world.mine}/cancel", "tara", key=key)
    assert "Idempotency-Replayed" not in answer.headers


def test_a_refusal_is_not_kept_and_the_key_may_ask_again(world: Company) -> None:
    key = str(uuid4())
    path = f"/jobs/{world.mine}/extend"
    refused = ask(world, path, "mia", {"max_duration": "1h"}, key)
    assert (refused.status_code, refused.json()["kind"]) == (422, "invalid_input")
    assert lines(world, world.mine)[-1] == ("mia", "jobs.extend", "refused", "invalid_input")
    assert ask(world, path, "mia", {"max_duration": "3h"}, key).status_code == 200


def test_an_extension_that_needs_an_approval_waits_for_it(world: Company) -> None:
    answer = ask(world, f"/jobs/{world.mine}/extend", "mia", {"max_duration": "48h"})
    assert answer.status_code == 202
    assert "apple" in answer.json()["asked"]["approvers"]


def test_a_refusal_of_a_policy_has_its_words_and_exit_code(world: Company) -> None:
    stricter = POLICY + "  - {name: never, max_price_per_gpu_hour: $0.01}\n"
    world.broker.store.activate_policy({"test.yaml": stricter}, by="adam")
    answer = ask(world, f"/approvals/{world.asking}/grant", "apple")
    document = answer.json()
    assert (answer.status_code, document["kind"], document["exit_code"]) == (403, "not_allowed", 3)
    assert "never" in document["detail"]
    assert "approvals refuse" in document["hint"]


def test_a_request_that_broke_off_is_told_so(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: object, **__: object) -> None:
        raise RuntimeError("the power went")

    key, path = str(uuid4()), f"/jobs/{world.mine}/cancel"
    with monkeypatch.context() as patch:
        patch.setattr("broker.app.use_cases.jobs.details.details", died)
        assert ask(world, path, "mia", key=key).status_code == 500
    answer = ask(world, path, "mia", key=key)
    assert (answer.status_code, answer.json()["kind"]) == (409, "change_under_way")
    assert lines(world, world.mine) == [("mia", "jobs.cancel", "begun", "")], "on record although nobody could end it"


def test_a_store_that_is_away_leaves_the_key_free(world: Company) -> None:
    asked = ChangeRequest("mia", "t", "api", "12345678", "d", "jobs.cancel", "j")

    def away() -> None:
        raise StoreProblem("away")

    def never(_: None) -> Any:
        raise AssertionError

    for _ in range(2):
        with pytest.raises(StoreProblem):
            run_once(world.broker, asked, away, never)


def test_a_key_whose_change_may_be_on_record_changes_nothing_again(world: Company) -> None:
    asked, made = ChangeRequest("mia", "t", "api", "12345678", "d", "jobs.submit", "j"), list[str]()

    def broken_off() -> str:
        made.append("perhaps")
        raise CommitUnknown("the connection was lost")

    with pytest.raises(CommitUnknown):
        run_once(world.broker, asked, broken_off, lambda _: ChangeAnswer(201, "{}"))
    with pytest.raises(ChangeUnderWay):
        run_once(world.broker, asked, broken_off, lambda _: ChangeAnswer(201, "{}"))
    assert made == ["perhaps"]


def test_an_approver_grants_and_refuses(world: Company) -> None:
    granted = ask(world, f"/approvals/{world.asking}/grant", "apple", {"reason": "agreed"})
    assert granted.status_code == 200, granted.text
    assert granted.json()["asked"] is None
    second = submitted(world.broker, "second", "mia", "nlp", most="6h")
    assert ask(world, f"/approvals/{second}/refuse", "apple").status_code == 200
    again = ask(world, f"/approvals/{second}/grant", "apple")
    assert (again.status_code, again.json()["kind"]) == (409, "conflict")


def test_nobody_approves_their_own_request_through_a_token_either(world: Company) -> None:
    own = submitted(world.broker, "own", "adam", "nlp", most="6h")
    answer = ask(world, f"/approvals/{own}/grant", "adam")
    assert answer.status_code == 403
    assert "which another person must approve" in answer.json()["detail"]
    assert jobs.find(world.broker, own).asked is not None


def test_a_role_without_the_policys_word_does_not_approve(world: Company) -> None:
    answer = ask(world, f"/approvals/{world.asking}/grant", "tara")
    assert answer.status_code == 403
    assert "not among those who approve" in answer.json()["detail"]


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_a_token_to_read_changes_nothing(seen_world: Company, route: ApiRoute) -> None:
    token = seen_world.token("adam", TokenScope.READ)
    answer = ask(
        seen_world, route.path.format(id=seen_world.mine), "adam", BODIES.get(route.endpoint.__name__), token=token
    )
    assert (answer.status_code, answer.json()["kind"]) == (403, "role_missing")


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_another_site_posts_nothing(seen_world: Company, route: ApiRoute) -> None:
    """A page elsewhere can send forms and cookies, no Authorization; and there is no cookie that lets anybody in."""
    path = route.full_path.format(id=seen_world.mine)
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Idempotency-Key": str(uuid4())}
    form = seen_world.client.post(path, data={"max_duration": "8h"}, headers=headers)
    assert form.status_code == 401
    asked_before = seen_world.client.options(path, headers=headers | {"Access-Control-Request-Method": "POST"})
    assert asked_before.status_code == 405
    assert not [name for name in asked_before.headers if name.startswith("access-control")]
    assert "set-cookie" not in form.headers


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_nothing_is_changed_by_get(seen_world: Company, route: ApiRoute) -> None:
    assert seen_world.get(route.path.format(id=seen_world.mine), "adam").status_code == 405


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({}, b"{}"),  # no key
        ({"Idempotency-Key": "short"}, b"{}"),
        ({"Idempotency-Key": "with space in it"}, b"{}"),
        ({"Idempotency-Key": "12345678"}, b'{"max_cost": 5}'),
        ({"Idempotency-Key": "12345678"}, b'{"max_cost": "lots"}'),
        ({"Idempotency-Key": "12345678"}, b'{"max_costs": "$5"}'),
        ({"Idempotency-Key": "12345678"}, b"{"),
        ({"Idempotency-Key": "12345678"}, b""),
    ],
)
def test_what_does_not_fit_is_a_problem_with_its_place(
    seen_world: Company, headers: dict[str, str], content: bytes
) -> None:
    answer = seen_world.client.post(
        f"/api/v1/jobs/{seen_world.mine}/extend",
        content=content,
        headers=bearer(seen_world.token("mia")) | headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["problems"] or answer.json()["where"]
    about_the_key = not headers.get("Idempotency-Key", "").isdigit()
    assert ("UUID" in answer.json()["hint"]) == about_the_key


def test_too_large_a_request_is_not_read(seen_world: Company) -> None:
    headers = bearer(seen_world.token("mia")) | {"Idempotency-Key": "12345678", "Content-Type": "application/json"}
    path = f"/api/v1/jobs/{seen_world.mine}/extend"
    said = seen_world.client.post(path, content=b" " * 1_000_001, headers=headers)
    assert (said.status_code, said.json()["kind"]) == (413, "too_large")
    unsaid = seen_world.client.post(path, content=iter([b" " * 600_000] * 2), headers=headers)
    assert unsaid.status_code == 413
