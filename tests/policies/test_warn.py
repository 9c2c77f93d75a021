"""`action: warn`: a guardrail that is judged and told, and stops nothing."""

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Verdict
from broker.core.values.money import Money
from policies.loader import load
from tests.contracts.rule_contract import NOW, action


def said(entry: str, asked: Action) -> Verdict:
    policies = load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: dear, {entry}}}\n"})
    (verdict,) = (v for v in policies.judge(asked, Facts(NOW)) if v.name == "dear")
    return verdict


def costs(dollars: int, kind: ActionKind = ActionKind.LAUNCH) -> Action:
    return action(kind, hold={MoneyKind.CASH: Money.usd(dollars)})


def test_it_allows_what_it_would_deny_and_says_so_with_the_same_figures() -> None:
    warns, denies = (said(f"max_job_cost: $500{more}", costs(501)) for more in (", action: warn", ""))
    assert (warns.answer, warns.warns) == (Answer.ALLOW, True)
    assert warns.message == f"only warns, would deny: {denies.message}"
    assert (warns.code, warns.figures, warns.source) == (denies.code, denies.figures, denies.source)
    fits = said("max_job_cost: $500, action: warn", costs(500))
    assert (fits.answer, fits.warns) == (Answer.ALLOW, False)


def test_what_runs_against_it_runs_on() -> None:
    runs = action(ActionKind.CONTINUE, spent=Money.usd(500), window=None)
    assert said("max_job_cost: $500", runs).answer is Answer.DENY
    found = said("max_job_cost: $500, action: warn", runs)
    assert (found.answer, found.warns) == (Answer.ALLOW, True)


def test_one_that_asks_by_itself_asks_nobody() -> None:
    entry = "approve_above: {cost: $5, approvers: [olga]}"
    assert said(entry, costs(6)).answer is Answer.ASK
    found = said(f"{entry}, action: warn", costs(6))
    assert (found.answer, found.warns) == (Answer.ALLOW, True)
    assert found.message.startswith("only warns, would ask first: ")


def test_condition_and_exception_go_with_it() -> None:
    entry = "max_job_cost: $500, action: warn, when: 'job.workload == \"batch\"'"
    assert not said(entry, costs(501)).warns
    assert said(entry.replace("batch", "training"), costs(501)).warns


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "purchases: {max_commitment: $5, approvers: [olga, ann]}, action: warn",
            "does not apply to purchases, which always need an approval; delete `action`",
        ),
        ("max_job_cost: $5, action: warn, approvers: [olga]", "is for `action: ask` only; the action here is warn"),
    ],
)
def test_what_makes_no_sense_is_refused(entry: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"p.yaml": f"version: 1\nguardrails:\n  - {{name: dear, {entry}}}\n"})
    assert message in [problem.message for problem in caught.value.problems]
