"""Policies through the API: seen beforehand, applied once and on record, refused if somebody else was faster."""

from uuid import uuid4

import pytest

from broker.core.access.people import TokenScope
from tests.server.test_changing import ask, lines
from tests.server.world import POLICY, Company

STRICTER = POLICY.replace("cost: $4", "cost: $1")


def test_a_policy_is_previewed_applied_once_and_rolled_back(world: Company) -> None:
    files = {"test.yaml": STRICTER}
    seen = ask(world, "/policies/preview", "adam", {"files": files}).json()
    assert (seen["changed"], seen["active_version"]) == (True, 1)
    assert "$1" in seen["difference"]
    assert seen["past"]["decisions"]["decisions"] >= 3
    assert world.get("/policies", "adam").json()["active"]["number"] == 1, "looking changes nothing"

    key, body = str(uuid4()), {"files": files, "reason": "a tight month", "base": 1}
    first, again = (ask(world, "/policies", "adam", body, key) for _ in range(2))
    assert first.json()["number"] == again.json()["number"] == 2
    assert again.headers["Idempotency-Replayed"] == "true"
    assert world.broker.store.active_policy().by == "adam"  # type: ignore[union-attr]  # there is one
    assert lines(world, "policy") == [
        ("adam", "policy.apply", "begun", ""),
        ("adam", "policy.apply", "done", ""),
    ]

    back = ask(world, "/policies/rollback", "adam", {"reason": "too tight"}).json()
    assert (back["number"], back["note"]) == (3, "rollback to version 1: too tight")
    assert [one["number"] for one in world.get("/policies/versions", "fay").json()["versions"]] == [3, 2, 1]


def test_who_was_slower_is_refused_and_changes_nothing(world: Company) -> None:
    assert ask(world, "/policies", "adam", {"files": {"test.yaml": STRICTER}, "base": 1}).status_code == 200
    late = ask(world, "/policies", "adam", {"files": {"test.yaml": POLICY}, "base": 1})
    assert late.status_code == 409
    assert "version 2 is active, not 1" in late.json()["detail"]
    assert world.broker.store.active_policy().number == 2  # type: ignore[union-attr]  # there is one


@pytest.mark.parametrize("who", ["vic", "mia", "apple", "tara", "fay", "otto"])
@pytest.mark.parametrize("path", ["/policies", "/policies/preview", "/policies/rollback", "/policies/rollback/preview"])
def test_only_administrators_change_policies(seen_world: Company, path: str, who: str) -> None:
    assert ask(seen_world, path, who, {"files": {"test.yaml": STRICTER}}).status_code == 403


def test_a_token_without_the_scope_changes_no_policy(seen_world: Company) -> None:
    narrow = seen_world.token("adam", TokenScope.READ, TokenScope.JOBS, TokenScope.APPROVALS)
    refused = ask(seen_world, "/policies", "adam", {"files": {"test.yaml": STRICTER}}, token=narrow)
    assert refused.status_code == 403
    assert "needs the scope policies" in refused.json()["detail"]


def test_a_team_is_not_told_the_shares_of_others(world: Company) -> None:
    ours = "  - {name: ours, reserved_quota: {gpus: {nlp: 4}}}\n"
    shares = ours + "  - {name: each, reserved_quota: {gpus: {nlp: 4, vision: 8}}}\n"
    world.broker.store.activate_policy({"test.yaml": POLICY + shares}, by="adam")

    def rules(by: str) -> set[str]:
        return {one["name"] for one in world.get("/policies", by).json()["active"]["rules"]} & {"ours", "each"}

    assert (rules("fay"), rules("mia"), rules("otto")) == ({"ours", "each"}, {"ours"}, set())


@pytest.mark.parametrize("name", ["", "x" * 400, "a\nb.yaml", "a\x1b[2J.yaml"])
def test_a_file_has_a_plain_name(seen_world: Company, name: str) -> None:
    assert ask(seen_world, "/policies", "adam", {"files": {name: STRICTER}}).status_code == 422


def test_invalid_files_say_where(seen_world: Company) -> None:
    refused = ask(seen_world, "/policies/preview", "adam", {"files": {"team.yaml": "version: 1\nbudgts: []\n"}})
    assert refused.status_code == 422
    assert "team.yaml" in str(refused.json())


def test_a_team_is_told_no_name_of_another(world: Company) -> None:
    mixed = """\
version: 1
policy: test
guardrails:
  - {name: not-theirs, max_job_cost: $90, except: [{team: vision}]}
  - {name: by-condition, max_job_cost: $80, when: 'job.team == "vision"'}
  - {name: ours, max_job_cost: $70, scope: {team: [nlp]}}
"""
    world.broker.store.activate_policy({"vision.yaml": mixed}, by="adam", note="for vision")
    active = world.get("/policies", "mia").json()["active"]
    assert [one["name"] for one in active["rules"]] == ["ours"]
    told = {**active, "rules": [{**one, "source": ""} for one in active["rules"]], "defaults_said_at": {}}
    assert "vision" not in str(told)
    assert len(world.get("/policies", "fay").json()["active"]["rules"]) == 3
