from typing import Any

import pytest

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from policies.rules.always import BudgetRequired
from tests.contracts.rule_contract import NOW, action, placement

FACTS = Facts(NOW)
OWNED = placement("0", capacity_type=CapacityType.OWNED, money=MoneyKind.AMORTISED)
SANDBOX = placement(money=MoneyKind.SANDBOX)
RENTED = placement()


def granting(*counts: str, **scope: Any) -> BudgetRequired:
    return BudgetRequired((BudgetSpec("b", "month", "UTC", frozenset(counts), **scope),))


def holding(kind: MoneyKind) -> dict[MoneyKind, Money]:
    return {kind: Money.usd(10)}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"placement": RENTED}, "no_budget"),
        ({"placement": RENTED, "hold": holding(MoneyKind.CASH)}, "no_budget"),
        ({"placement": RENTED, "hold": {}}, "no_budget"),
        ({"placement": OWNED, "hold": holding(MoneyKind.CASH)}, "no_budget"),  # may move to what costs cash
        ({"placement": None, "hold": holding(MoneyKind.CASH)}, "no_budget"),
        ({"placement": RENTED, "kind": ActionKind.RE_PLACE}, "no_budget"),
        ({"placement": None}, "no_cash"),
        ({"placement": OWNED, "hold": holding(MoneyKind.AMORTISED)}, "no_cash"),
        ({"placement": SANDBOX, "hold": holding(MoneyKind.SANDBOX)}, "no_cash"),
        ({"placement": RENTED, "kind": ActionKind.CONTINUE}, "no_cash"),  # held long ago
        ({"placement": RENTED, "kind": ActionKind.CONTINUE, "hold": holding(MoneyKind.CASH)}, "no_budget"),
    ],
)
def test_without_a_budget_nothing_costs_cash(asked: dict[str, Any], code: str) -> None:
    verdict = BudgetRequired(()).judge(action(**asked), FACTS)

    assert verdict.code == code
    assert (verdict.answer is Answer.DENY) == (code == "no_budget")


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (granting("cash"), "budget_granted"),
        (granting("cash", "amortised"), "budget_granted"),
        (granting("sandbox"), "no_budget"),
        (granting("amortised"), "no_budget"),
        (granting("cash", teams=("nlp",)), "budget_granted"),
        (granting("cash", teams=("vision",)), "no_budget"),
        (granting("cash", users=("bob",)), "no_budget"),
        (granting("cash", projects=("*",)), "no_budget"),
    ],
)
def test_the_budget_must_be_of_cash_and_for_the_job(rule: BudgetRequired, code: str) -> None:
    assert rule.judge(action(hold=holding(MoneyKind.CASH)), FACTS).code == code
