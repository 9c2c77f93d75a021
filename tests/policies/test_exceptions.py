"""`except:` of a guardrail: whom that rule, and no other, is not about."""

from datetime import timedelta
from typing import Any

import pytest

from broker.app.jobs.preview import preview
from broker.app.jobs.submit import submit
from broker.app.policy.policies import explain
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.policy.policy import ActionKind, Answer, Facts, Verdict
from broker.core.ports import LimitsIdleness
from broker.core.values.money import Money
from policies.loader import load
from policies.policyset import ActivePolicies
from tests.actors import ANN
from tests.contracts.rule_contract import NOW, action, job, live
from tests.policies.guardrail_twins import PAIRS, activate, entry, machine, site
from tests.policies.guardrail_twins import job as job_of

__all__ = ["machine", "site"]

# What judges a place, a job, and what runs beside it; asks; and has a condition. Each asks its scope in one way.
SOME = ("locations", "cost", "asks", "condition", "gpus", "quota")


def policies(*rules: str, more: str = "") -> ActivePolicies:
    lines = [f"  - {{name: {name}, {rule}}}" for name, rule in zip("abc", rules, strict=False)]
    return load({"p": "\n".join(["version: 1", "guardrails:", *lines, more])})


def verdict(of: ActivePolicies, name: str, **said: Any) -> Verdict:
    asked = action(**said)
    return next(one for one in of.judge(asked, Facts(NOW, (live(8),))) if one.name == name)


def wrong(*rules: str, more: str = "") -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        policies(*rules, more=more)
    return [f"{one.line}:{one.column} {one.key}: {one.message}" for one in caught.value.problems]


@pytest.mark.parametrize("name", SOME)
def test_at_the_gate_a_rule_stops_others_and_lets_the_excepted_through(
    site: Broker, machine: dict[str, Any], name: str
) -> None:
    pair = PAIRS[name]
    machine.update(pair.machine)
    asked = job_of(site, "a", pair.job)
    if name == "gpus":
        activate(site)
        submit(site, job_of(site, "a"), by=ANN)  # the first of two

    def said(user: str) -> int:
        activate(site, entry(site, "g", f"{pair.stops}, except: {{user: {user}}}", "a", pair.section))
        return preview(site, asked, by=ANN).exit_code

    assert said("somebody") == pair.ends
    assert said("ann") == 0


def test_what_runs_is_let_be_too_and_told_where_that_is_said() -> None:
    found = policies(
        "max_job_cost: $5",
        "idle_shutdown: {below: 5%, for: 30m}, except: {team: nlp}",
        "max_job_cost: $5, scope: {team: [nlp, vision]}, except: [{user: bob}, {project: 'ap*'}]",
    )
    runs = {"kind": ActionKind.CONTINUE, "spent": Money.usd(9), "hold": None, "elapsed": timedelta(hours=3)}
    inside, outside = job(project="apollo"), job(project="mars")

    assert verdict(found, "c", **runs, job=outside).answer is Answer.DENY
    excused = verdict(found, "c", **runs, job=inside)
    assert (excused.answer, excused.code, excused.message) == (
        Answer.ALLOW, "out_of_scope", "does not apply: excepted (p:5)"
    )  # fmt: skip
    assert verdict(found, "c", **runs, job=inside.model_copy(update={"team": "audio"})).message == (
        "does not apply to this job"
    )
    assert verdict(found, "a", **runs, job=inside).answer is Answer.DENY, "another rule of the file holds"
    idle = next(rule for rule in found.rules if isinstance(rule, LimitsIdleness))
    assert idle.idle_limit(action(ActionKind.CONTINUE)) is None
    assert idle.idle_limit(action(ActionKind.CONTINUE, job=job(team="vision"))) is not None


def test_another_file_is_not_loosened() -> None:
    limit = "version: 1\nguardrails: [{name: %s, max_job_cost: $5%s}]\n"
    found = load({"a": limit % ("a", ""), "b": limit % ("b", ", except: {team: nlp}")})
    asked = {"hold": {}, "spent": Money.usd(9), "kind": ActionKind.CONTINUE}
    assert [verdict(found, name, **asked).answer for name in "ab"] == [Answer.DENY, Answer.ALLOW]


def test_what_the_excepted_run_does_not_count() -> None:
    for excepted, answer in (("vision", Answer.DENY), ("nlp", Answer.ALLOW)):  # eight GPUs of nlp run
        found = policies(f"max_concurrent_gpus: 8, except: {{team: {excepted}}}")
        assert verdict(found, "a", job=job(team="audio")).answer is answer


def test_all_that_an_exception_says_must_match_and_one_of_several_does() -> None:
    one = policies("max_job_cost: $5, except: {team: nlp, user: bob}")
    several = policies("max_job_cost: $5, except: [{team: nlp}, {user: bob}]")
    spent = {"kind": ActionKind.CONTINUE, "spent": Money.usd(9)}
    for user, team, both, either in (
        ("bob", "nlp", 0, 0),
        ("ann", "nlp", 1, 0),
        ("bob", "x", 1, 0),
        ("ann", "x", 1, 1),
    ):
        for of, denied in ((one, both), (several, either)):
            said = verdict(of, "a", **spent, user=user, job=job(team=team))
            assert (said.answer is Answer.DENY) is bool(denied)


def test_with_a_condition_and_a_question_it_is_the_same() -> None:
    more = 'when: "spend.spent > 8.0", action: ask, approvers: [olga], except: {team: nlp}'
    found = policies(f"max_job_cost: $5, {more}")
    spent = {"kind": ActionKind.CONTINUE, "spent": Money.usd(9)}
    assert verdict(found, "a", **spent).message == "does not apply: excepted (p:3)"
    assert verdict(found, "a", **spent, job=job(team="x")).answer is Answer.DENY


def test_rules_of_a_file_whose_exceptions_differ_are_right_together() -> None:
    for one, other in (
        ("max_job_cost: $5, except: {team: nlp}", "max_job_cost: $50"),
        ("max_job_cost: $5, except: {team: nlp}", "max_job_cost: $50, scope: {team: nlp}"),
        ("capacity_types: [spot], except: {team: nlp}", "capacity_types: [owned], scope: {team: nlp}"),
        ("capacity_types: [spot], except: {team: nlp}", "capacity_types: [owned], except: {team: vision}"),
    ):
        assert policies(one, other).warnings == []
    (twin,) = wrong("max_job_cost: $5, except: {team: nlp}", "max_job_cost: $50, except: {team: nlp}")
    assert "covers the same jobs as the max_job_cost in line 3" in twin


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("{}", "3:41 guardrails[0].except: contains an empty scope; expected a team, project"),
        ("[]", "3:41 guardrails[0].except: contains an empty scope; expected a team, project"),
        ("[{}]", "3:41 guardrails[0].except: contains an empty scope; expected a team, project"),
        (
            "nlp",
            "3:41 guardrails[0].except: expected lines of the form 'key: value'; got 'nlp'; known here: environment",
        ),
        ("{teem: nlp}", "3:42 guardrails[0].except.teem: unknown key; did you mean 'team'?"),
        ("{team: []}", "3:48 guardrails[0].except.team: is an empty list"),
        ("[{team: x}, {workload: trainin}]", "3:64 guardrails[0].except[1].workload: expected one of training"),
        ("", "3:33 guardrails[0].except: has no value"),
    ],
)
def test_what_is_written_wrong_is_told(said: str, found: str) -> None:
    (problem,) = wrong(f"max_job_cost: $5, except: {said}")
    assert problem.startswith(found)


def test_names_are_checked_like_those_of_scopes() -> None:
    teams = "teams: {nlp: {members: [ann]}}"
    assert wrong("max_job_cost: $5, except: [{team: nlp}, {team: [nlp, nlq]}]", more=teams) == [
        "3:68 guardrails[0].except[1].team[1]: no file lists a team 'nlq'; did you mean 'nlp'?"
    ]
    found = policies("max_job_cost: $5, except: {user: [ann, 'b*'], project: apollo}").names
    assert [(name.kind, name.text, str(name.source)) for name in found] == [
        ("user", "ann", "p:3:49"),
        ("project", "apollo", "p:3:70"),
    ]


def test_a_budget_has_none() -> None:
    budget = "budgets: [{name: m, amount: $5, period: month, except: {team: nlp}}]"
    assert wrong("max_job_cost: $5", more=budget) == [
        "4:48 budgets[0].except: budgets have no exceptions (only guardrails do); narrow the scope instead"
    ]


def test_the_set_is_another_and_says_whom_it_is_about() -> None:
    without, one, other = (
        policies(f"max_job_cost: $5{said}")
        for said in ("", ", except: {team: nlp}", ", scope: {team: nlp}, except: [{user: bob}, {project: x}]")
    )
    assert len({without.version, one.version, other.version}) == 3
    assert [str(getattr(found.rules[0], "scope", None)) for found in (one, other)] == [
        "everybody except team nlp", "team nlp except user bob; project x",
    ]  # fmt: skip


def test_explain_says_where_it_is_excepted(site: Broker) -> None:
    activate(site, entry(site, "g", "max_job_cost: $2, except: {user: ann}", "a"))
    said = explain(site, job_of(site, "a"), by=ANN)

    assert said is not None
    (found,) = (one for one in said.admission.verdicts if one.name == "g")
    assert (found.answer, found.message) == (Answer.ALLOW, "does not apply: excepted (0.yaml:3)")
