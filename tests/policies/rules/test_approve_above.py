from datetime import timedelta
from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Grant, Source, Verdict
from broker.core.values.money import Money
from policies.rules.approvals import ApproveAbove
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement

FACTS = Facts(NOW)


def rule(scope: tuple[str, ...] = (), **config: Any) -> ApproveAbove:
    said = {"approvers": ["bob"]} | config
    made: Any = ApproveAbove.Config.model_validate(said)
    return ApproveAbove("big", made, Scope.model_construct(team=scope), Source("team.yaml", 3))


class TestApproveAbove(RuleContract):
    plugin = "approve_above"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule((TEAM,), cost="$500"),
            stopped=(action(hold={MoneyKind.CASH: Money.usd("500.01")}), FACTS),
            passed=(action(hold={MoneyKind.CASH: Money.usd(500)}), FACTS),
        )


def said(made: ApproveAbove, **asked: Any) -> Verdict:
    return made.judge(action(**{"hold": {}} | asked), FACTS)


def test_it_asks_and_says_whom_and_until_when() -> None:
    verdict = said(rule(cost="$500", expires="6h", own_requests=True), hold={MoneyKind.CASH: Money.usd(501)})

    assert verdict.answer is Answer.ASK
    assert (verdict.approvers, verdict.expires, verdict.own_requests) == (("bob",), timedelta(hours=6), True)
    assert verdict.message == "the job may cost $501.00; more than $500.00 per job requires approval"


@pytest.mark.parametrize(
    ("spent", "held", "asked", "answer"), [(100, 200, 200, Answer.ALLOW), (100, 200, 201, Answer.ASK)]
)
def test_what_was_spent_and_is_held_counts_too(spent: int, held: int, asked: int, answer: Answer) -> None:
    more = {"spent": Money.usd(spent), "held": Money.usd(held), "hold": {MoneyKind.CASH: Money.usd(asked)}}

    assert said(rule(cost="$500"), kind=ActionKind.EXTEND, **more).answer is answer


def test_what_was_paid_for_before_does_not_count() -> None:
    assert said(rule(cost="$500"), hold={MoneyKind.AMORTISED: Money.usd(900)}).answer is Answer.ALLOW


def test_time_is_counted_from_the_first_attempt_on() -> None:
    made, ten = rule(duration="12h"), (NOW, NOW + timedelta(hours=10))

    assert said(made, window=ten, elapsed=timedelta(hours=2)).answer is Answer.ALLOW
    assert said(made, window=ten, elapsed=timedelta(hours=2, seconds=1)).code == "duration_above"


def test_machines_count_together() -> None:
    assert said(rule(gpus=16), placement=placement(nodes=2)).answer is Answer.ALLOW
    assert said(rule(gpus=16), placement=placement(nodes=3)).code == "gpus_above"


def test_what_runs_is_not_asked_about() -> None:
    assert said(rule(cost="$1"), kind=ActionKind.CONTINUE, spent=Money.usd(900)).answer is Answer.ALLOW


def test_a_rule_without_a_threshold_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="expected cost, duration or gpus"):
        rule()


def test_grants_are_about_the_rule_that_asked() -> None:
    from policies.loader import load

    text = "version: 1\nguardrails:\n  - {name: big, approve_above: {cost: $500, approvers: [bob]}}\n"
    policies = load({"a.yaml": text})
    act = action(hold={MoneyKind.SANDBOX: Money.usd(600)}, placement=placement(money=MoneyKind.SANDBOX))

    def answer(*grants: Grant) -> Answer:
        return policies.judge(act, Facts(NOW, grants=grants))[-1].answer

    assert answer() is Answer.ASK
    assert answer(Grant("bob", ("other",), Money.usd(600))) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd("599.99"))) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd(600))) is Answer.ALLOW
    assert answer(Grant("bob", ("big",), Money.usd(600), max_duration=timedelta(hours=9))) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd(600), gpus=7)) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd(600), gpus=8, max_duration=timedelta(hours=10))) is Answer.ALLOW
    assert answer(Grant("eve", ("big",), Money.usd(600), standing=1, until=NOW + timedelta(1))) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd(600), standing=1, until=NOW)) is Answer.ASK
    assert answer(Grant("bob", ("big",), Money.usd(600), standing=1, until=NOW + timedelta(1))) is Answer.ALLOW


def test_an_approver_who_does_not_exist_is_a_located_mistake() -> None:
    from broker.core.errors import InvalidInput
    from policies.loader import load

    asks = "  - {name: big, approve_above: {cost: $5, approvers: [an, phd-7, bob]}}\n"
    teams = "teams: {nlp: {members: [ann, bob, 'phd-*']}}\n"
    assert load({"a.yaml": f"version: 1\nguardrails:\n{asks}"}).rules
    with pytest.raises(InvalidInput) as found:
        load({"a.yaml": f"version: 1\n{teams}guardrails:\n{asks}"})
    (problem,) = found.value.problems
    assert (problem.line, problem.column, problem.key) == (4, 55, "guardrails[0].approve_above.approvers[0]")
    assert "no team has a member 'an'" in problem.message
    assert "did you mean 'ann'" in problem.message
