from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, LiveAttempt, Source
from policies.loader import load
from policies.rules.concurrency import Gpus, MaxConcurrentGpus
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, live, placement


def rule(limit: int, **scope: tuple[str, ...]) -> MaxConcurrentGpus:
    return MaxConcurrentGpus("few", Gpus(limit), Scope(**scope), Source("team.yaml", 5))


def answer(limit: int, running: list[LiveAttempt], *, scope: Any = None, **asked: Any) -> Answer:
    return rule(limit, **(scope or {})).judge(action(**asked), Facts(NOW, tuple(running))).answer


class TestMaxConcurrentGpus(RuleContract):
    plugin = "max_concurrent_gpus"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule(16, team=(TEAM,)),
            stopped=(action(), Facts(NOW, (live(9),))),
            passed=(action(), Facts(NOW, (live(8),))),
        )


def test_all_nodes_count() -> None:
    assert answer(16, [], placement=placement(nodes=2)) is Answer.ALLOW
    assert answer(16, [], placement=placement(nodes=3)) is Answer.DENY


def test_only_those_in_the_scope_count() -> None:
    running = [live(8, team="vision"), live(4, job_id="j-2", user="eve"), live(4, job_id="j-3")]

    assert answer(16, running, scope={"team": ("nlp",)}) is Answer.ALLOW
    assert answer(15, running, scope={"team": ("nlp",)}) is Answer.DENY
    assert answer(23, running) is Answer.DENY


def test_a_job_that_is_placed_anew_does_not_count_twice() -> None:
    running = [live(8, job_id="j-9")]

    for kind in (ActionKind.RE_PLACE, ActionKind.EXTEND):
        assert answer(8, running, kind=kind, job_id="j-9") is Answer.ALLOW
        assert answer(8, running, kind=kind, job_id="j-5") is Answer.DENY


def test_a_job_that_works_while_its_next_machine_starts_counts_with_both() -> None:
    running, asked = [live(8, job_id="j-9")], {"kind": ActionKind.RE_PLACE, "job_id": "j-9"}

    assert answer(16, running, beside=placement(), **asked) is Answer.ALLOW
    assert answer(15, running, beside=placement(), **asked) is Answer.DENY


def test_simulated_gpus_are_counted_among_themselves() -> None:
    running = [live(16, money=MoneyKind.SANDBOX)]
    simulated = placement(money=MoneyKind.SANDBOX)

    assert answer(16, running) is Answer.ALLOW
    assert answer(16, running, placement=simulated) is Answer.DENY
    assert answer(16, [live(16)], placement=simulated) is Answer.ALLOW


def test_of_the_same_facts_each_kind_is_counted_for_itself() -> None:
    limit, facts = rule(16), Facts(NOW, (live(9), live(4, job_id="j-2", money=MoneyKind.SANDBOX)))
    simulated = action(placement=placement(money=MoneyKind.SANDBOX))

    answers = [limit.judge(asked, facts).answer for asked in (action(), simulated, action(job_id="j-1"), action())]

    assert answers == [Answer.DENY, Answer.ALLOW, Answer.ALLOW, Answer.DENY]


def test_owned_gpus_are_gpus() -> None:
    assert answer(16, [live(9, money=MoneyKind.AMORTISED)]) is Answer.DENY


@pytest.mark.parametrize("kind", [ActionKind.CONTINUE, ActionKind.RESERVE])
def test_what_starts_nothing_is_not_counted(kind: ActionKind) -> None:
    assert answer(1, [live(64)], kind=kind) is Answer.ALLOW


def test_facts_that_change_are_counted_anew() -> None:
    limit = rule(16)

    answers = [limit.judge(action(), Facts(NOW, (live(gpus),))).answer for gpus in (8, 9, 8, 9)]

    assert answers == [Answer.ALLOW, Answer.DENY, Answer.ALLOW, Answer.DENY]


@pytest.mark.parametrize(("kind", "limit"), [("max_concurrent_gpus", 16), ("max_concurrent_jobs", 2)])
def test_a_limit_per_user_team_or_project_counts_each_by_itself(kind: str, limit: int) -> None:
    ann = action().user
    running = Facts(NOW, (live(8, user=ann), live(8, job_id="j-2", user="eve", team="vision")))

    def judged(per: str, **asked: Any) -> Answer:
        text = f"version: 1\nguardrails: [{{name: each, {kind}: {limit}{per}}}]\n"
        (verdict,) = (v for v in load({"p.yaml": text}).judge(action(**asked), running) if v.name == "each")
        return verdict.answer

    assert judged("") is Answer.DENY
    assert judged(", per: user") is Answer.ALLOW
    assert judged(", per: team") is Answer.ALLOW
    assert judged(", per: project") is Answer.ALLOW, "neither is in a project"
    twice = Facts(NOW, (live(8, user=ann), live(8, job_id="j-3", user=ann)))
    each = load({"p.yaml": f"version: 1\nguardrails: [{{name: each, {kind}: {limit}, per: user}}]\n"})
    (said,) = (v for v in each.judge(action(), twice) if v.name == "each")
    assert (said.answer, f"running for user {ann}" in said.message) == (Answer.DENY, True)


def test_what_judges_each_job_by_itself_takes_no_per() -> None:
    with pytest.raises(InvalidInput) as refused:
        load({"p.yaml": "version: 1\nguardrails: [{name: g, max_job_cost: $5, per: user}]\n"})
    assert "max_job_cost is not a limit on concurrent use" in str(refused.value.problems[0])
