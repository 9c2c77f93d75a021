from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.concurrency import MaxConcurrentJobs
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, live, placement


def rule(config: Any, **scope: tuple[str, ...]) -> MaxConcurrentJobs:
    made: Any = MaxConcurrentJobs.Config.model_validate(config)
    return MaxConcurrentJobs("few", made, Scope(**scope), Source("team.yaml", 3))


class TestMaxConcurrentJobs(RuleContract):
    plugin = "max_concurrent_jobs"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule(2, team=(TEAM,)),
            stopped=(action(), Facts(NOW, (live(1), live(1, job_id="j-2")))),
            passed=(action(), Facts(NOW, (live(1), live(1, job_id="j-1")))),
        )


def test_only_those_in_the_scope_count_and_a_job_that_moves_does_not_count_twice() -> None:
    running = (live(1), live(1, job_id="j-2", team="vision"))

    assert rule(1, team=("vision",)).judge(action(), Facts(NOW, running)).code == "out_of_scope"
    assert rule(2).judge(action(), Facts(NOW, running)).message == (
        "2 jobs are running; the limit is 2; one more passes once 1 of them has ended"
    )
    assert rule(2).judge(action(ActionKind.RE_PLACE, job_id="j-2"), Facts(NOW, running)).answer is Answer.ALLOW


def test_simulated_machines_are_counted_among_themselves() -> None:
    running = (live(1, money=MoneyKind.SANDBOX),)

    assert rule(1).judge(action(), Facts(NOW, running)).answer is Answer.ALLOW
    simulated = action(placement=placement(money=MoneyKind.SANDBOX))
    assert rule(1).judge(simulated, Facts(NOW, running)).answer is Answer.DENY


def test_of_two_that_run_neither_is_the_one_too_many() -> None:
    both = Facts(NOW, (live(1), live(1, job_id="j-2")))

    assert rule(1).judge(action(ActionKind.CONTINUE, job_id="j-1"), both).answer is Answer.ALLOW
