"""The files that people copy must load, say what they do, and do what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer, BudgetUse, Facts
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from policies.loader import load
from policies.policyset import ActivePolicies
from tests.contracts.rule_contract import NOW, action, job, placement

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "policies/library").glob("*.test.yaml"))
LIBRARY = sorted(set((ROOT / "policies/library").glob("*.yaml")) - set(CASES))


def read(*names: str) -> ActivePolicies:
    paths = [ROOT / name for name in names]
    return load({path.name: path.read_text("utf-8") for path in paths})


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.name)
def test_each_file_of_the_library_loads_and_explains_itself(path: Path) -> None:
    text = path.read_text("utf-8")
    policies = load({path.name: text})

    assert text.startswith("# "), "says first whom it is for"
    assert policies.defaults.grants_cash
    assert len(policies.rules) >= 3


def test_there_is_one_for_each_kind_of_team() -> None:
    assert [path.stem for path in LIBRARY] == ["enterprise", "on-premises-first", "research-lab", "startup"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_each_file_does_what_its_cases_say(path: Path) -> None:
    policies = read(f"policies/library/{path.name.replace('.test.', '.')}")
    results = policies.try_cases(path.name, path.read_text("utf-8"))

    assert [result for result in results if result.wrong] == []
    assert {result.answer for result in results} >= {Answer.ALLOW, Answer.DENY}


def test_each_guardrail_of_each_file_is_the_reason_of_some_case() -> None:
    for path in LIBRARY:
        cases = path.with_name(path.name.replace(".yaml", ".test.yaml")).read_text("utf-8")
        policies = read(f"policies/library/{path.name}")
        objecting = {
            verdict.name
            for result in policies.try_cases("cases", cases)
            for verdict in result.verdicts
            if verdict.answer is not Answer.ALLOW
        }
        assert {rule.name for rule in policies.rules if rule.kind != "budget"} - objecting == set()


def test_the_example_governs_the_sandbox_and_real_money_apart() -> None:
    policies = read("examples/policy.yaml")
    act = action(user="you", job=job(team=None), placement=placement("24"))
    uses = {
        spec.id: tuple(
            BudgetUse(*period, Money.ZERO, Money.ZERO)
            for period in periods_touching(spec.period, spec.timezone, act.window or (NOW, NOW))
        )
        for spec in policies.budgets(act.job, act.user)
    }

    def over(kind: MoneyKind, amount: str) -> list[str]:
        asked = replace(act, hold={kind: Money.usd(amount)})
        verdicts = policies.judge(asked, Facts(NOW, budgets=uses))
        return [verdict.name for verdict in verdicts if verdict.answer is not Answer.ALLOW]

    assert over(MoneyKind.CASH, "500") == over(MoneyKind.SANDBOX, "200") == []
    assert over(MoneyKind.CASH, "501") == ["monthly"]
    assert over(MoneyKind.SANDBOX, "201") == ["sandbox-monthly"]
