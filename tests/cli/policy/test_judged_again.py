"""How `gpubroker policy apply --dry-run` tells what the costs of past decisions go by."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from broker.app.policy.replay import PolicyReplay, ReplayedDecision
from broker.app.policy.replayed_job import ReplayBasis
from broker.app.results.trials import JudgedDecisions
from broker.cli.policy.trial_view import HOW, judged_again
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def moved(basis: ReplayBasis, after: str = "0.57", money: MoneyKind = MoneyKind.CASH) -> ReplayedDecision:
    was = Decision(NOW, ActionKind.LAUNCH, "ann", "j", Answer.ALLOW, "1", "", "j-1", 1, "aws/spot")
    costs = Money.usd("0.20"), Money.usd(after)
    return ReplayedDecision(was, Answer.ALLOW, (), MoneyKind.CASH, *costs, False, False, "aws/on_demand", money, basis)


def shown(*outcomes: ReplayedDecision, width: int = 140) -> str:
    console = Console(width=width, file=StringIO())
    for part in judged_again(console, JudgedDecisions.of(PolicyReplay(outcomes, 0))):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return " ".join(console.file.getvalue().split())


@pytest.mark.parametrize("basis", [one for one in ReplayBasis if one is not ReplayBasis.RECORD])
def test_the_footnote_says_what_the_costs_go_by_and_nothing_else(basis: ReplayBasis) -> None:
    text = shown(moved(basis))
    assert "$0.20 → $0.57" in text
    assert [key for key, how in HOW.items() if how in text] == [basis.value]
    assert not any(how in shown(moved(basis, after="0.20")) for how in HOW.values()), "where no cost is different"


def test_hidden_columns_are_named() -> None:
    assert "hidden columns: " in shown(moved(ReplayBasis.PLAN), width=80)


def test_money_of_another_kind_is_said_and_added_up_by_itself() -> None:
    owned = moved(ReplayBasis.METERED_TIME, money=MoneyKind.AMORTISED)
    assert "$0.20 → $0.57 amortised" in shown(owned)
    document = JudgedDecisions.of(PolicyReplay((owned,), 0)).document()
    assert (document["before"]["cost"], document["after"]["cost"]) == (
        {"cash": "0.20"}, {"amortised": "0.57"},
    )  # fmt: skip
    (difference,) = document["differences"]
    assert (difference["money"], difference["money_after"], difference["cost_after_by"]) == (
        MoneyKind.CASH, MoneyKind.AMORTISED, ReplayBasis.METERED_TIME,
    )  # fmt: skip
