from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.policy.policy import ActionKind, Answer, Facts, Source, UnusualSpending
from broker.core.values.money import Money
from policies.rules.running import UnusualSpendingRule
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action

FOUND = UnusualSpending(Money.usd("50.01"), NOW - timedelta(hours=1))
RUNNING = action(ActionKind.CONTINUE)


def rule(**scope: tuple[str, ...]) -> UnusualSpendingRule:
    made: Any = UnusualSpendingRule.Config.model_validate({"above": "$50"})
    return UnusualSpendingRule("odd", made, Scope(**scope), Source("team.yaml", 3))


class TestUnusualSpending(RuleContract):
    plugin = "unusual_spending"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule(team=(TEAM,)),
            stopped=(RUNNING, Facts(NOW, unusual=FOUND)),
            passed=(RUNNING, Facts(NOW, unusual=replace(FOUND, excess=Money.usd("50")))),
        )


@pytest.mark.parametrize(
    ("found", "answer", "code"),
    [
        (None, Answer.ALLOW, "usual"),
        (replace(FOUND, known_since=NOW - timedelta(minutes=59)), Answer.ALLOW, "awaits_answer"),
        (FOUND, Answer.DENY, "unusual"),
        (replace(FOUND, known_since=NOW, said_by="bob"), Answer.DENY, "unusual"),  # nobody has to wait any more
    ],
)
def test_people_have_an_hour_to_answer(found: UnusualSpending | None, answer: Answer, code: str) -> None:
    verdict = rule().judge(RUNNING, Facts(NOW, unusual=found))
    assert (verdict.answer, verdict.code) == (answer, code)


def test_a_start_is_in_no_anomaly() -> None:
    assert rule().judge(action(), Facts(NOW, unusual=FOUND)).answer is Answer.ALLOW
