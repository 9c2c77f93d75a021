from typing import Any

import pytest

from broker.core.market.offers import Interconnect
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.machines import MinInterconnect
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement


def rule(config: Any, **scope: tuple[str, ...]) -> MinInterconnect:
    made: Any = MinInterconnect.Config.model_validate(config)
    return MinInterconnect("nvlink", made, Scope(**scope), Source("team.yaml", 3))


class TestMinInterconnect(RuleContract):
    plugin = "min_interconnect"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("nvlink", team=(TEAM,)),
            stopped=(action(placement=placement(interconnect=Interconnect.PCIE)), Facts(NOW)),
            passed=(action(placement=placement(interconnect=Interconnect.NVLINK)), Facts(NOW)),
        )


@pytest.mark.parametrize(
    ("config", "count", "link", "answer"),
    [
        ("pcie", 8, Interconnect.PCIE, Answer.ALLOW),
        ("pcie", 8, Interconnect.NONE, Answer.DENY),
        ("nvlink", 8, None, Answer.DENY),  # what nobody knows is too weak
        ("nvlink", 1, Interconnect.PCIE, Answer.ALLOW),  # joined to nothing
        ({"at_least": "nvlink", "from_gpus": 4}, 2, Interconnect.PCIE, Answer.ALLOW),
        ({"at_least": "nvlink", "from_gpus": 4}, 4, Interconnect.PCIE, Answer.DENY),
    ],
)
def test_several_gpus_need_a_known_and_strong_link(
    config: object, count: int, link: Interconnect | None, answer: Answer
) -> None:
    machine = placement(count=count, interconnect=link)

    for kind in (ActionKind.LAUNCH, ActionKind.CONTINUE):
        assert rule(config).judge(action(kind, placement=machine), Facts(NOW)).answer is answer
