from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import covers
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source
from broker.core.values.money import Money
from policies.rules.approvals import Purchases
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement

FACTS = Facts(NOW)


def rule(scope: tuple[str, ...] = (), **config: Any) -> Purchases:
    made: Any = Purchases.Config.model_validate({"max_commitment": "$500", "approvers": ["bob"]} | config)
    return Purchases("shop", made, Scope.model_construct(team=scope), Source("team.yaml", 3))


def purchase(total: str = "500", **changes: Any) -> Action:
    return action(ActionKind.RESERVE, **{"hold": {MoneyKind.CASH: Money.usd(total)}} | changes)


class TestPurchases(RuleContract):
    plugin = "purchases"

    @pytest.fixture
    def case(self) -> Case:
        jobs = action(hold={MoneyKind.CASH: Money.usd("500.01")})
        return Case(rule((TEAM,)), stopped=(purchase("500.01"), FACTS), passed=(jobs, FACTS))


@pytest.mark.parametrize(
    ("config", "bought", "code"),
    [
        ({}, purchase(), "purchase"),
        ({}, purchase("500.000001"), "too_dear"),
        ({"buyers": ["ann"]}, purchase(), "purchase"),
        ({"buyers": ["a*"]}, purchase(), "purchase"),
        ({"buyers": ["carl"]}, purchase(), "not_a_buyer"),
        ({"providers": ["gcp", "aw*"]}, purchase(), "purchase"),
        ({"providers": ["gcp"]}, purchase(), "wrong_provider"),
    ],
)
def test_within_the_terms_the_approvers_are_asked(config: dict[str, Any], bought: Action, code: str) -> None:
    verdict = rule(**config).judge(bought, FACTS)
    assert verdict.code == code
    assert verdict.answer is (Answer.ASK if code == "purchase" else Answer.DENY)
    assert verdict.approvers == (("bob",) if code == "purchase" else ())


def test_an_approval_covers_the_same_region_alone() -> None:
    there = replace(placement(), offer=replace(placement().offer, region="elsewhere"))
    seen, other = (rule().looks_at(one, FACTS) for one in (purchase(), purchase(placement=there)))
    assert (covers(seen, seen), covers(seen, other)) == (True, False)


def test_a_purchase_is_not_longer_than_the_term() -> None:

    def lasting(time: timedelta) -> Action:
        return purchase(placement=replace(placement(), duration=time))

    limited = rule(max_term="2d")
    assert limited.judge(lasting(timedelta(days=2)), FACTS).code == "purchase"
    assert limited.judge(lasting(timedelta(days=2, seconds=1)), FACTS).code == "too_long"
