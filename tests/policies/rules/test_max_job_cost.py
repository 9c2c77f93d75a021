from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from broker.core.values.money import Money
from policies.rules.job_limits import MaxJobCost
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action


def rule(config: Any, **scope: tuple[str, ...]) -> MaxJobCost:
    made: Any = MaxJobCost.Config.model_validate(config)
    return MaxJobCost("cheap", made, Scope(**scope), Source("team.yaml", 3))


class TestMaxJobCost(RuleContract):
    plugin = "max_job_cost"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("$100", team=(TEAM,)),
            stopped=(action(hold={MoneyKind.CASH: Money.usd("100.01")}), Facts(NOW)),
            passed=(action(hold={MoneyKind.CASH: Money.usd(100)}), Facts(NOW)),
        )


@pytest.mark.parametrize(
    ("spent", "held", "asked", "code"),
    [("0", "0", "100", "within_limit"), ("40", "30", "30", "within_limit"), ("40", "30", "30.01", "job_too_dear")],
)
def test_what_was_spent_and_is_held_counts_too(spent: str, held: str, asked: str, code: str) -> None:
    more = action(
        ActionKind.EXTEND, spent=Money.usd(spent), held=Money.usd(held), hold={MoneyKind.CASH: Money.usd(asked)}
    )

    assert rule("$100").judge(more, Facts(NOW)).code == code


def test_what_was_paid_for_before_does_not_count() -> None:
    owned = action(hold={MoneyKind.AMORTISED: Money.usd(900)})

    assert rule("$100").judge(owned, Facts(NOW)).answer is Answer.ALLOW


def test_what_runs_is_stopped_at_the_limit_and_its_near_twin_goes_on() -> None:
    def goes_on(spent: str) -> str:
        return rule("$100").judge(action(ActionKind.CONTINUE, spent=Money.usd(spent)), Facts(NOW)).code

    assert (goes_on("99.999999"), goes_on("100")) == ("within_limit", "job_cost_reached")
