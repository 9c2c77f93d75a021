"""`action: ask`: a guardrail that asks somebody instead of refusing, and lets what was approved pass."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import matches_any
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Grant, Verdict
from broker.core.values.money import Money
from policies.loader import load
from policies.policyset import ActivePolicies
from policies.scope import restrict_to
from tests.contracts.rule_contract import NOW, action, placement

ASKS = "action: ask, approvers: [olga, 'lead-*'], expires: 2h"
GRANT = Grant("olga", ("dear",), Money.usd(900))


def said(entry: str, asked: Action, *grants: Grant) -> Verdict:
    """What a guardrail says."""
    policies = load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: dear, {entry}}}\n"})
    (verdict,) = (v for v in policies.judge(asked, Facts(NOW, grants=grants)) if v.name == "dear")
    return verdict


def costs(dollars: int, kind: ActionKind = ActionKind.LAUNCH) -> Action:
    return action(kind, hold={MoneyKind.CASH: Money.usd(dollars)})


def test_it_asks_where_it_would_deny_with_the_same_words() -> None:
    asks, denies = (said(f"max_job_cost: $500{more}", costs(501)) for more in (f", {ASKS}", ""))

    assert (asks.answer, denies.answer) == (Answer.ASK, Answer.DENY)
    assert (asks.message, asks.code, asks.figures) == (denies.message, denies.code, denies.figures)
    assert (asks.approvers, asks.expires, asks.own_requests) == (("olga", "lead-*"), timedelta(hours=2), False)
    assert said(f"max_job_cost: $500, {ASKS}", costs(500)).answer is Answer.ALLOW


def test_it_asks_about_single_placements_too() -> None:
    entry = f"allowed_locations: {{providers: [gcp]}}, {ASKS}"

    assert said(entry, action(placement=placement(provider="aws"))).answer is Answer.ASK
    assert said(entry, action(placement=placement(provider="gcp"))).answer is Answer.ALLOW


def test_what_was_approved_passes_up_to_what_it_was_approved_for() -> None:
    entry = f"max_job_cost: $500, {ASKS}"

    found = said(entry, costs(900), GRANT)
    assert (found.answer, found.code) == (Answer.ALLOW, "approved")
    assert found.message.startswith("approved by olga: the job may cost $900.00")
    assert said(entry, costs(901), GRANT).answer is Answer.ASK
    assert said("max_job_cost: $500", costs(900), GRANT).answer is Answer.DENY, "a denial stays what it is"


def test_what_runs_against_it_is_stopped_unless_it_was_approved() -> None:
    entry = f"max_job_cost: $500, {ASKS}"
    runs = action(ActionKind.CONTINUE, spent=Money.usd(500), window=None)

    stopped = said(entry, runs)
    assert (stopped.answer, stopped.approvers, stopped.code) == (Answer.DENY, (), "job_cost_reached")
    assert said(entry, runs, GRANT).answer is Answer.ALLOW


def test_a_condition_goes_with_it() -> None:
    entry = f"max_job_cost: $500, when: 'job.workload == \"batch\"', {ASKS}"

    assert said(entry, costs(501)).answer is Answer.ALLOW
    assert said(entry.replace("batch", "training"), costs(501)).answer is Answer.ASK


def test_who_asks_is_known_of_the_whole_set() -> None:
    text = f"version: 1\nguardrails:\n  - {{name: dear, max_job_cost: $5, {ASKS}}}\n  - {{name: x, max_job_cost: $9}}\n"
    text += "  - {name: big, approve_above: {gpus: 8, approvers: ann}}\n"
    policies = load({"p.yaml": text})

    assert policies.asks
    assert [policies.approvers(name) for name in ("dear", "x", "big")] == [("olga", "lead-*"), (), ("ann",)]
    assert not load({"p.yaml": "version: 1\nguardrails: [{name: x, max_job_cost: $9}]"}).asks


def test_above_one_limit_somebody_is_asked_and_above_another_nobody() -> None:
    text = f"version: 1\nguardrails:\n  - {{name: a, max_job_cost: $5, {ASKS}}}\n  - {{name: b, max_job_cost: $9}}\n"
    policies = load({"p.yaml": text})

    def answers(dollars: int) -> list[Answer]:
        verdicts = policies.judge(costs(dollars), Facts(NOW))
        return [v.answer for v in verdicts if v.name in ("a", "b")]

    assert [answers(n) for n in (5, 6, 10)] == [
        [Answer.ALLOW, Answer.ALLOW], [Answer.ASK, Answer.ALLOW], [Answer.ASK, Answer.DENY],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("max_job_cost: $5, action: ask", "3:44 guardrails[0].action: `ask` needs `approvers`, such as"
         " approvers: [ann, bob]"),
        ("max_job_cost: $5, approvers: [olga]",
         "3:47 guardrails[0].approvers: is for `action: ask` only; the action here is deny"),
        ("max_job_cost: $5, action: alert", "3:44 guardrails[0].action: expected one of ask, deny, warn; got 'alert'"),
        ("idle_shutdown: {below: 5%, for: 1h}, action: ask, approvers: [olga]",
         "3:63 guardrails[0].action: does not apply to idle_shutdown, which judges running jobs only; delete `action`"),
        ("approve_above: {cost: $5, approvers: [bob]}, action: ask, approvers: [olga]",
         "3:71 guardrails[0].action: is redundant: approve_above always asks its approvers; "
             "delete `action`"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_place(entry: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: dear, {entry}}}\n"})

    assert message in [f"{p.line}:{p.column} {p.key}: {p.message}" for p in caught.value.problems]


def test_an_approver_must_be_somebody() -> None:
    text = "version: 1\nteams: {finance: {members: [olga]}}\nguardrails:\n"
    text += "  - {name: dear, max_job_cost: $5, action: ask, approvers: [olgo]}\n"
    with pytest.raises(InvalidInput) as caught:
        load({"p.yaml": text})

    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (4, "guardrails[0].approvers[0]")
    assert "no team has a member 'olgo'" in problem.message
    assert "did you mean 'olga'?" in problem.message


@pytest.mark.parametrize(
    ("approvers", "people", "asked"),
    [
        (("av*",), (), ("av*",)),  # nobody is listed: anybody may be meant
        (("av*", "bob"), ("ava", "avery", "bob"), ("ava", "avery", "bob")),
        (("av*", "ava"), ("ava",), ("ava",)),
        (("av*",), ("bob",), ()),
        (("phd-7", "phd-1*"), ("phd-*",), ("phd-7", "phd-1*")),
        (("*",), ("ann", "phd-*"), ("ann", "phd-*")),
        (("phd-?",), ("phd-*",), ("phd-?",)),
        (("?nn",), ("*nn",), ("?nn",)),
        (("*nn",), ("?nn",), ("?nn",)),
        (("*a*",), ("[ab]x",), ()),  # who can tell
    ],
)
def test_of_those_whom_a_pattern_matches_only_members_of_teams_are_asked(
    approvers: tuple[str, ...], people: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    assert restrict_to(approvers, people) == asked


_SOME = st.text("ab*?[]", min_size=1, max_size=4)


@given(st.lists(_SOME, max_size=3), st.lists(_SOME, min_size=1, max_size=3), st.text("ab", max_size=4))
def test_nobody_is_asked_who_is_not_both_meant_and_listed(approvers: list[str], people: list[str], who: str) -> None:
    assert not matches_any(restrict_to(approvers, people), who) or (
        matches_any(approvers, who) and matches_any(people, who)
    )


@pytest.mark.parametrize(
    "entry", ["max_job_cost: $5, action: ask, approvers: {}", "approve_above: {{cost: $5, approvers: {}}}"]
)
def test_a_pattern_asks_members_of_teams_only(entry: str) -> None:
    text = "version: 1\nteams: {finance: {members: [olga, avery]}}\nguardrails:\n  - {name: dear, "

    def loaded(approvers: str) -> ActivePolicies:
        return load({"p.yaml": f"{text}{entry.format(approvers)}}}\n"})

    def dear(*grants: Grant) -> Verdict:
        return next(v for v in policies.judge(costs(6), Facts(NOW, grants=grants)) if v.name == "dear")

    policies = loaded("'av*'")
    assert dear().approvers == policies.approvers("dear") == ("avery",)
    ahead = [Grant(by, ("dear",), Money.usd(9), standing=1, until=NOW + timedelta(1)) for by in ("avril", "avery")]
    assert [dear(grant).answer for grant in ahead] == [Answer.ASK, Answer.ALLOW], "avril is in no team"

    with pytest.raises(InvalidInput) as caught:
        loaded("[olga, 'ave', 'bo*']")
    name, pattern = caught.value.problems
    assert [(one.line, one.key.rpartition(".")[2]) for one in (name, pattern)] == [
        (4, "approvers[1]"), (4, "approvers[2]"),
    ]  # fmt: skip
    assert "no team has a member who matches 'bo*', so nobody can approve" in pattern.message


@pytest.mark.parametrize(
    ("approvers", "more", "warns"),
    [
        ("[olga]", "", True),
        ("[olga]", ", own_requests: true", False),
        ("[olga, paul]", "", False),
        ("['lead-*']", "", False),
    ],
)
@pytest.mark.parametrize("written", ["max_job_cost: $500, action: ask", "approve_above: {cost: $500}"])
def test_a_sole_approver_is_warned_of(written: str, approvers: str, more: str, warns: bool) -> None:
    settings = f", approvers: {approvers}{more}"
    entry = f"{written[:-1]}{settings}}}" if written.endswith("}") else f"{written}{settings}"
    found = load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: dear, {entry}}}\n"}).warnings
    assert len(found) == warns
    assert all("olga is the only approver of 'dear'" in text for text in found)


def test_of_a_pattern_that_matches_one_listed_person_that_person_is_the_sole_approver() -> None:
    teams = "teams:\n  nlp: {members: [lead-ann, bob]}\n"
    rule = "guardrails:\n  - {name: dear, max_job_cost: $500, action: ask, approvers: ['lead-*']}\n"
    (warning,) = load({"p.yaml": f"version: 1\n{teams}{rule}"}).warnings
    assert warning.startswith("p.yaml:5:")
    assert "lead-ann is the only approver" in warning
