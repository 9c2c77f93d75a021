"""`gpubroker approvals`, and what submit and extend say where somebody is asked first."""

from pathlib import Path
from typing import Any

import pytest

from broker.app.alerts import notify
from broker.core.actors import Actor
from tests.actors import ANN, OLGA
from tests.cli.conftest import Gpubroker

POLICY = """\
version: 1
policy: test
budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]
guardrails:
  - {name: big, approve_above: {cost: $2, approvers: [olga], expires: 6h}}
"""


@pytest.fixture(autouse=True)
def asked(gpubroker: Gpubroker, write: Any, sandbox_job: Path) -> Any:
    """A job that waits for olga."""
    assert gpubroker("policy", "apply", write("p.yaml", POLICY), by=ANN).code == 0
    return gpubroker("submit", sandbox_job, "--yes", by=ANN)


def only(gpubroker: Gpubroker, *more: str, by: Actor = ANN) -> Any:
    (found,) = gpubroker("approvals", "list", *more, "--json", by=by).json["requests"]
    return found


def test_submitting_ends_with_6_and_says_what_to_do(asked: Any, gpubroker: Gpubroker) -> None:
    job = only(gpubroker, by=ANN)["job"]
    assert asked.code == 6
    assert "Submitted. Waiting for approval by olga: the job may cost $" in asked.err
    assert f"To approve it: `gpubroker approvals grant {job}`" in asked.err
    assert "error" not in asked.err


def test_a_job_on_own_machines_holds_nothing_while_it_waits(gpubroker: Gpubroker, write: Any, job: Path) -> None:
    long = "version: 1\nguardrails: [{name: long, approve_above: {duration: 5m, approvers: [olga], expires: 6h}}]\n"
    assert gpubroker("policy", "apply", write("p.yaml", long), "--yes", by=ANN).code == 0
    submitted = gpubroker("submit", job, "--yes", by=ANN)
    assert (submitted.code, "Money: nothing is held" in submitted.out) == (6, True)
    assert "Nothing is held; the request stands until 20" in submitted.err
    assert "Its money is held" not in submitted.err


def test_the_same_as_json(asked: Any, gpubroker: Gpubroker, sandbox_job: Path) -> None:
    done = gpubroker("submit", sandbox_job, "--yes", "--json", by=ANN)
    assert done.code == 6
    assert (done.json["state"], done.json["asked"]["approvers"]) == ("awaiting_approval", ["olga"])


def test_the_list_says_whom_how_much_and_why(gpubroker: Gpubroker) -> None:
    found = only(gpubroker, by=ANN)
    assert (found["state"], found["user"], found["mine"]) == ("waiting", "ann", False)
    (question,) = found["questions"]
    assert (question["rule"], question["approvers"]) == ("big", ["olga"])
    assert only(gpubroker, "--mine", by=OLGA)["mine"]
    shown = gpubroker("approvals", "list", by=OLGA).out
    assert "waiting" in shown
    assert f"You can decide:\n  gpubroker approvals grant {found['job']} " in shown


def test_granting_needs_the_right_person(gpubroker: Gpubroker) -> None:
    job = only(gpubroker, by=ANN)["job"]
    own = gpubroker("approvals", "grant", job, by=ANN)
    assert (own.code, "you are ann, and not among those who approve" in own.err) == (3, True)
    done = gpubroker("approvals", "grant", job, "--reason", "agreed", by=OLGA)
    assert (done.code, done.out) == (0, f"{job}: approved (big); state: planned. See `gpubroker status {job}`.\n")
    told = only(gpubroker, "--all", by=OLGA)
    assert (told["state"], told["decided_by"], told["reason"]) == ("approved", ["olga"], "agreed")
    assert "approved by olga (big): agreed" in gpubroker("status", job, by=OLGA).out


def test_the_list_shows_every_decision(gpubroker: Gpubroker, write: Any, sandbox_job: Path) -> None:
    second = "  - {name: long, approve_above: {duration: 1m, approvers: [carl, dora]}}\n"
    gpubroker("policy", "apply", "--yes", write("p.yaml", POLICY + second), by=ANN)
    gpubroker("approvals", "refuse", only(gpubroker)["job"], by=OLGA)
    for decide, told in (("refuse", "approved by olga; refused by carl"), ("grant", "approved by olga, carl")):
        job = gpubroker("submit", sandbox_job, "--yes", "--json", by=ANN).json["id"]
        assert gpubroker("approvals", "grant", job, "-m", "agreed", by=OLGA).code == 0
        waiting = gpubroker("approvals", "list", by=ANN)
        assert "approved by olga; open: carl or dora" in " ".join(waiting.out.split())
        assert gpubroker("approvals", decide, job, "-m", "looked at", by=Actor("carl")).code == 0
        decided = gpubroker("approvals", "list", "--all", "--json", by=ANN).json["requests"][-1]
        assert decided["reason"] == "agreed; looked at"
        assert told in " ".join(gpubroker("approvals", "list", "--all", by=ANN).out.split())


def test_the_only_approver_is_told_that_nobody_may_decide_their_request(
    gpubroker: Gpubroker, sandbox_job: Path
) -> None:
    asked = gpubroker("submit", sandbox_job, "--yes", "--json", by=OLGA)
    shown = gpubroker("status", asked.json["id"], by=OLGA).out
    assert "nobody (olga may not decide their own request unless the rule says `own_requests: true`)" in shown


def test_what_no_rule_asks_any_more_needs_no_approval_and_what_is_denied_by_now_gets_none(
    gpubroker: Gpubroker, write: Any
) -> None:
    job = only(gpubroker, by=ANN)["job"]
    gpubroker("policy", "apply", "--yes", write("p.yaml", POLICY + "  - {name: cheap, max_job_cost: $1}\n"), by=OLGA)
    denied = gpubroker("approvals", "grant", job, by=OLGA)
    assert denied.code == 3
    assert "cheap: the job may cost $" in denied.err
    gpubroker("policy", "apply", "--yes", write("p.yaml", POLICY.partition("guardrails")[0]), by=OLGA)
    done = gpubroker("approvals", "grant", job, by=OLGA)
    assert done.out.startswith(f"{job}: no approval needed: no active rule requires it any more; state: planned.")
    assert "no approval needed (big)" in gpubroker("status", job, by=OLGA).out


def test_refusing_ends_the_job(gpubroker: Gpubroker) -> None:
    job = only(gpubroker, by=ANN)["job"]
    done = gpubroker("approvals", "refuse", job, "-m", "too dear", "--json", by=OLGA)
    assert (done.json["state"], done.json["because"]) == ("cancelled", "refused by olga: too dear")
    assert done.json["held"]["sandbox"] == "0.00"


def test_a_standing_grant_is_said_and_taken_back(gpubroker: Gpubroker, sandbox_job: Path) -> None:
    given = gpubroker(
        "approvals", "grant", "--for-user", "ann", "--total", "$50", "--until", "30d", "-m", "thesis", by=OLGA
    )
    assert given.out.startswith("Granted: standing grant 1 for user ann: $50.00 in total until ")
    assert "warning" not in given.err
    assert gpubroker("submit", sandbox_job, "--yes", "--detach", by=ANN).code == 0
    (standing,) = gpubroker("approvals", "list", "--json", by=ANN).json["standing"]
    assert (standing["by"], standing["rules"], standing["reason"]) == ("olga", ["big"], "thesis")
    assert float(standing["used"]) > 2
    assert gpubroker("approvals", "revoke", "1", by=ANN).code == 3
    assert gpubroker("approvals", "revoke", "1", by=OLGA).code == 0
    assert gpubroker("submit", sandbox_job, "--yes", by=ANN).code == 6


def test_a_policy_under_which_nobody_is_asked_sees_to_it_that_what_waited_goes_on(
    gpubroker: Gpubroker, write: Any, started: list[object]
) -> None:
    started.clear()
    gpubroker("policy", "apply", "--yes", write("p.yaml", POLICY.replace("cost: $2", "cost: $50")), by=ANN)
    assert len(started) == 1


def test_a_standing_grant_for_oneself_is_refused_and_one_for_nobody_known_is_warned_of(
    gpubroker: Gpubroker, write: Any
) -> None:
    ahead = ("--total", "$50", "--until", "30d")
    own = gpubroker("approvals", "grant", "--for-user", "olga", *ahead, by=OLGA)
    assert own.code == 3
    assert "people may not approve their own requests, so the grant would never apply" in own.err
    assert gpubroker("approvals", "list", "--json", by=OLGA).json["standing"] == []
    misspelt = gpubroker("approvals", "grant", "--for-user", "olag-x", "--for-user", "an*", *ahead, "--json", by=OLGA)
    assert misspelt.code == 0
    assert misspelt.err == "warning: no job of user 'olag-x' is known; did you mean 'olga'?\n"
    gpubroker("policy", "apply", "--yes", write("p.yaml", POLICY.replace("expires: 6h", "own_requests: true")), by=OLGA)
    assert gpubroker("approvals", "grant", "--for-user", "olga", *ahead, by=OLGA).code == 0


def test_what_makes_no_sense_is_exit_2(gpubroker: Gpubroker) -> None:
    for arguments, said in (
        (["grant"], "--total and --until"),
        (["grant", "--for-user", "ann", "--total", "50 euros", "--until", "30d"], "--total"),
        (["grant", "--for-user", "ann", "--total", "$50", "--until", "soon"], "--until"),
        (["grant", "--total", "$50", "--until", "30d"], "no user, team or project is named"),
        (["grant", "trial", "--total", "$50"], "--total: applies to standing grants"),
        (["grant", "nobody"], "nobody"),
        (["revoke", "7"], "7"),
        (["refuse", "cpu", "--reason", "no\n     48s  approved by ceo"], "expected one line"),
        (["grant", "cpu", "--reason", "\x1b[2Jyes"], "--reason"),
    ):
        done = gpubroker("approvals", *arguments, by=ANN)
        assert done.code == 2, arguments
        assert said in done.err, arguments


def test_who_could_not_be_told_is_said(
    gpubroker: Gpubroker, sandbox_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "json://127.0.0.1")
    monkeypatch.setattr(notify, "_send", lambda notice, address: "the service cannot be reached")
    done = gpubroker("submit", sandbox_job, "--yes", by=ANN)
    assert done.code == 6
    assert "not yet sent to ops (the service cannot be reached), will be retried." in " ".join(done.err.split())
    told = " ".join(gpubroker("approvals", "list", by=ANN).out.split())
    assert "not yet sent to ops, tried 1 time (the service cannot be reached): ann asks for $" in told
    (notice,) = (
        one
        for request in gpubroker("approvals", "list", "--json", by=ANN).json["requests"]
        for one in request["notices"]
    )
    assert (notice["target"], notice["tries"], notice["delivered_at"]) == ("ops", 1, None)


def test_everybody_is_told_what_a_yes_covers(asked: Any, gpubroker: Gpubroker, write: Any) -> None:
    found = only(gpubroker, by=ANN)
    covers = found["covers"]
    assert f"${found['total']} in total, " in covers
    (question,) = found["questions"]
    assert question["covers"] == [], "beside the amount, the time and the GPUs this rule looks at nothing"
    assert f"an approval covers: {covers}" in asked.err
    assert f"an approval covers: {covers}" in gpubroker("status", found["job"], by=ANN).out.replace("\n", " ")
    gpubroker("approvals", "grant", "--for-user", "ann", "--total", "$9", "--until", "3d", by=OLGA)
    assert "at every place and price" in gpubroker("approvals", "list", by=OLGA).out


def test_the_place_is_said_where_the_rule_looks_at_it(gpubroker: Gpubroker, write: Any, sandbox_job: Path) -> None:
    entry = "{name: place, allowed_locations: {providers: [aws]}, action: ask, approvers: [olga]}"
    assert (
        gpubroker(
            "policy", "apply", "--yes", write("q.yaml", f"version: 1\nguardrails: [{entry}]\n{_MONEY}"), by=ANN
        ).code
        == 0
    )
    gpubroker("submit", sandbox_job, "--yes", by=ANN)
    newest = gpubroker("approvals", "list", "--json", by=ANN).json["requests"][-1]
    (question,) = newest["questions"]
    facts = {fact["aspect"]: fact["value"] for fact in question["covers"]}
    assert facts["provider"] == "sandbox"
    assert newest["covers"].startswith(f"sandbox/{facts['region']}, ")


_MONEY = "budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]\n"
