from typing import Any

import pytest

from broker.core.job.jobs import Data
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.data_residency import DataResidency
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, placement

EUROPEAN = job(data=Data(location="aws/eu-west-1"))


def rule(config: Any, **scope: tuple[str, ...]) -> DataResidency:
    made: Any = DataResidency.Config.model_validate(config)
    return DataResidency("in-europe", made, Scope(**scope), Source("team.yaml", 3))


class TestDataResidency(RuleContract):
    plugin = "data_residency"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"data": ["*/eu-*"], "run_in": ["*/eu-*", "owned/*"]}, team=(TEAM,)),
            stopped=(action(job=EUROPEAN), Facts(NOW)),
            passed=(action(job=EUROPEAN, placement=placement(region="eu-west-1")), Facts(NOW)),
        )


def test_other_data_may_go_anywhere() -> None:
    american = action(job=job(data=Data(location="aws/us-east-1")))

    assert rule({"data": "*/eu-*", "run_in": "*/eu-*"}).judge(american, Facts(NOW)).code == "other_data"
    assert rule({"run_in": "*/eu-*"}).judge(american, Facts(NOW)).answer is Answer.DENY


def test_sensitive_data_must_say_where_it_is() -> None:
    residency = rule({"run_in": "*/eu-*"})

    assert residency.judge(action(job=job(data=Data(sensitive=True))), Facts(NOW)).code == "data_location_unknown"
    assert residency.judge(action(), Facts(NOW)).code == "no_data"


def test_what_runs_elsewhere_may_not_go_on_and_its_near_twin_may() -> None:
    residency = rule({"run_in": "*/eu-*"})

    assert residency.judge(action(ActionKind.CONTINUE, job=EUROPEAN), Facts(NOW)).answer is Answer.DENY
    near = action(ActionKind.CONTINUE, job=EUROPEAN, placement=placement(region="eu-north-1"))
    assert residency.judge(near, Facts(NOW)).answer is Answer.ALLOW
