from typing import Any

import pytest

from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.prices import ReferencePrices
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement


def rule(config: Any, **scope: tuple[str, ...]) -> ReferencePrices:
    made: Any = ReferencePrices.Config.model_validate(config)
    return ReferencePrices("live-only", made, Scope(**scope), Source("team.yaml", 3))


class TestReferencePrices(RuleContract):
    plugin = "reference_prices"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("forbidden", team=(TEAM,)),
            stopped=(action(placement=placement(reference=True)), Facts(NOW)),
            passed=(action(), Facts(NOW)),
        )


def test_what_runs_already_goes_on() -> None:
    running = action(ActionKind.CONTINUE, placement=placement(reference=True))

    assert rule("forbidden").judge(running, Facts(NOW)).answer is Answer.ALLOW
