from datetime import timedelta
from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.prices import MaxPriceAge
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement


def rule(config: Any, **scope: tuple[str, ...]) -> MaxPriceAge:
    made: Any = MaxPriceAge.Config.model_validate(config)
    return MaxPriceAge("fresh", made, Scope(**scope), Source("team.yaml", 3))


class TestMaxPriceAge(RuleContract):
    plugin = "max_price_age"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("30m", team=(TEAM,)),
            stopped=(action(), Facts(NOW + timedelta(minutes=30, seconds=1))),
            passed=(action(), Facts(NOW + timedelta(minutes=30))),
        )


def test_only_what_costs_cash_has_a_price_that_ages() -> None:
    later = Facts(NOW + timedelta(days=1))

    for money, answer in ((MoneyKind.CASH, Answer.DENY), (MoneyKind.AMORTISED, Answer.ALLOW)):
        assert rule("30m").judge(action(placement=placement(money=money)), later).answer is answer


def test_what_runs_keeps_the_price_it_was_started_at() -> None:
    assert rule("30m").judge(action(ActionKind.CONTINUE), Facts(NOW + timedelta(days=1))).answer is Answer.ALLOW
