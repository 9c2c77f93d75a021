from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.machines import AllowedAccelerators
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement


def rule(config: Any, **scope: tuple[str, ...]) -> AllowedAccelerators:
    made: Any = AllowedAccelerators.Config.model_validate(config)
    return AllowedAccelerators("small", made, Scope(**scope), Source("team.yaml", 3))


class TestAllowedAccelerators(RuleContract):
    plugin = "accelerators"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule(["L4", "RTX*"], team=(TEAM,)),
            stopped=(action(), Facts(NOW)),
            passed=(action(placement=placement(accelerator="L4")), Facts(NOW)),
        )


def test_aliases_patterns_and_denials() -> None:
    big = rule({"deny": ["h100 sxm", "B*"]})

    answers = [
        big.judge(action(placement=placement(accelerator=name)), Facts(NOW)).answer for name in ("H100", "B200", "A100")
    ]

    assert answers == [Answer.DENY, Answer.DENY, Answer.ALLOW]


@pytest.mark.parametrize(
    ("denied", "accelerators"),
    [
        ("A100", {"A100": True, "A100-80GB": True, "A100-1of2": True, "A10": False, "H100": False}),
        ("=A100", {"A100": True, "A100-80GB": False}),
        ("A100-80GB", {"A100": False, "A100-80GB": True}),
        ("H100", {"H100-NVL": True, "H100-PCIe": True, "H200": False}),
    ],
)
def test_a_name_stands_for_its_variants_unless_it_says_exactly(denied: str, accelerators: dict[str, bool]) -> None:
    names = rule({"deny": [denied]})
    verdicts = {
        name: names.judge(action(placement=placement(accelerator=name)), Facts(NOW)).answer is Answer.DENY
        for name in accelerators
    }
    assert verdicts == accelerators


def test_machines_without_accelerators_are_not_meant() -> None:
    assert rule(["L4"]).judge(action(placement=placement(accelerator=None, count=0)), Facts(NOW)).answer is Answer.ALLOW


def test_an_accelerator_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="did you mean 'H100'"):
        rule(["H1000"])


def test_what_runs_on_it_may_not_go_on_and_its_near_twin_may() -> None:
    small = rule(["L4"])

    assert small.judge(action(ActionKind.CONTINUE), Facts(NOW)).answer is Answer.DENY
    running = action(ActionKind.CONTINUE, placement=placement(accelerator="L4"))
    assert small.judge(running, Facts(NOW)).answer is Answer.ALLOW
