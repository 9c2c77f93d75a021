from typing import Any

import pytest

from broker.core.job.jobs import Data
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.places import SensitiveData
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, placement

SENSITIVE = job(data=Data(sensitive=True))


def rule(config: Any, **scope: tuple[str, ...]) -> SensitiveData:
    made: Any = SensitiveData.Config.model_validate(config)
    return SensitiveData("private", made, Scope(**scope), Source("team.yaml", 3))


class TestSensitiveData(RuleContract):
    plugin = "sensitive_data"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("on_premises", team=(TEAM,)),
            stopped=(action(job=SENSITIVE), Facts(NOW)),
            passed=(action(job=SENSITIVE, placement=placement("0", capacity_type=CapacityType.OWNED)), Facts(NOW)),
        )


@pytest.mark.parametrize("kind", [ActionKind.LAUNCH, ActionKind.RE_PLACE, ActionKind.EXTEND, ActionKind.CONTINUE])
def test_what_is_sensitive_stays_at_home_and_what_is_not_may_go(kind: ActionKind) -> None:
    sensitive = SENSITIVE
    reserved = placement("0", capacity_type=CapacityType.RESERVED, money=MoneyKind.AMORTISED)

    assert rule("on_premises").judge(action(kind, job=sensitive), Facts(NOW)).answer is Answer.DENY
    assert rule("on_premises").judge(action(kind, job=sensitive, placement=reserved), Facts(NOW)).answer is Answer.DENY
    assert rule("on_premises").judge(action(kind), Facts(NOW)).answer is Answer.ALLOW
