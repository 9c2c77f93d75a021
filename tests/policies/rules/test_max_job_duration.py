from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.job_limits import MaxJobDuration
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action


def rule(config: Any, **scope: tuple[str, ...]) -> MaxJobDuration:
    made: Any = MaxJobDuration.Config.model_validate(config)
    return MaxJobDuration("short", made, Scope(**scope), Source("team.yaml", 3))


class TestMaxJobDuration(RuleContract):
    plugin = "max_job_duration"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("10h", team=(TEAM,)),
            stopped=(action(window=(NOW, NOW + timedelta(hours=10, seconds=1))), Facts(NOW)),
            passed=(action(), Facts(NOW)),
        )


def test_time_used_before_counts() -> None:
    moved = action(ActionKind.RE_PLACE, elapsed=timedelta(hours=1), window=(NOW, NOW + timedelta(hours=9)))
    longer = replace(moved, elapsed=timedelta(hours=2))

    assert rule("10h").judge(moved, Facts(NOW)).answer is Answer.ALLOW
    assert rule("10h").judge(longer, Facts(NOW)).message == (
        "the job may run for 11h; the limit is 10h per job; set a lower max_duration in the job file"
    )


def test_what_runs_is_stopped_at_the_limit_and_its_near_twin_goes_on() -> None:
    def goes_on(hours: float) -> str:
        running = action(ActionKind.CONTINUE, elapsed=timedelta(hours=hours), window=None)
        return rule("10h").judge(running, Facts(NOW)).code

    assert (goes_on(9.99), goes_on(10)) == ("within_limit", "job_duration_reached")
