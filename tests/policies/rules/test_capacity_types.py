from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.market.offers import CapacityType
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.machines import CapacityTypes
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement


def rule(config: Any, **scope: tuple[str, ...]) -> CapacityTypes:
    made: Any = CapacityTypes.Config.model_validate(config)
    return CapacityTypes("owned-only", made, Scope(**scope), Source("team.yaml", 3))


class TestCapacityTypes(RuleContract):
    plugin = "capacity_types"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule(["owned", "spot"], team=(TEAM,)),
            stopped=(action(), Facts(NOW)),
            passed=(action(placement=placement(capacity_type=CapacityType.SPOT)), Facts(NOW)),
        )


@pytest.mark.parametrize(
    ("config", "asked", "answer"),
    [
        ("spot", CapacityType.SPOT, Answer.ALLOW),
        ({"deny": ["spot"]}, CapacityType.SPOT, Answer.DENY),
        ({"deny": "spot"}, CapacityType.ON_DEMAND, Answer.ALLOW),
        ({"allow": ["spot"], "deny": ["spot"]}, CapacityType.SPOT, Answer.DENY),
    ],
)
def test_a_denial_wins(config: object, asked: CapacityType, answer: Answer) -> None:
    there = action(placement=placement(capacity_type=asked))

    assert rule(config).judge(there, Facts(NOW)).answer is answer


def test_what_runs_on_it_may_not_go_on_and_its_near_twin_may() -> None:
    running = [action(ActionKind.CONTINUE, placement=placement(capacity_type=one)) for one in CapacityType]

    answers = [rule(["owned"]).judge(one, Facts(NOW)).answer for one in running]

    assert answers == [Answer.ALLOW, Answer.DENY, Answer.DENY, Answer.DENY]


@pytest.mark.parametrize("config", [[], {}, ["sport"], {"allow": []}])
def test_it_must_say_something(config: object) -> None:
    with pytest.raises(ValidationError):
        rule(config)
