"""How `gpubroker policy apply --dry-run` tells what the costs of past decisions go by."""

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from broker.app.policy.replay import PolicyReplay, ReplayedDecision
from broker.app.policy.trial_documents import JudgedDecisions
from broker.cli.policy.trial_view import replay_lines
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def moved(after: str = "0.57", money: MoneyKind = MoneyKind.CASH) -> ReplayedDecision:
    was = Decision(NOW, ActionKind.LAUNCH, "ann", "j", Answer.ALLOW, "1", "", "j-1", 1, "aws/spot")
    costs = Money.usd("0.20"), Money.usd(after)
    return ReplayedDecision(was, Answer.ALLOW, (), MoneyKind.CASH, *costs, "aws/on_demand", money)


def shown(*outcomes: ReplayedDecision, width: int = 140) -> str:
    console = Console(width=width, file=StringIO())
    for part in replay_lines(console, JudgedDecisions.of(PolicyReplay(outcomes, 0))):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_footnote_stands_where_a_new_cost_is_expected() -> None:
    text = shown(moved())
    assert "$0.20 → $0.57" in text
    assert "what its plan expected" in text


def test_hidden_columns_are_named() -> None:
    assert "hidden columns: " in shown(moved(), width=80)


def test_money_of_another_kind_is_said_and_added_up_by_itself() -> None:
    owned = moved(money=MoneyKind.AMORTISED)
    assert "$0.20 → $0.57 amortised" in shown(owned)
    document = JudgedDecisions.of(PolicyReplay((owned,), 0)).document()
    assert (document["before"]["cost"], document["after"]["cost"]) == (
        {"cash": "0.20"}, {"amortised": "0.57"},
    )  # fmt: skip
    (difference,) = document["differences"]
    assert (difference["money"], difference["money_after"]) == (MoneyKind.CASH, MoneyKind.AMORTISED)
