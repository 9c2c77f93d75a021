"""Two budget owners' files: the outcome, its explanation, and what the documents say about it agree."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import Action, Answer, BudgetUse, Facts
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from policies.loader import load
from policies.policyset import ActivePolicies
from tests.contracts.rule_contract import NOW, action, job, placement

FINANCE = """\
version: 1
policy: finance
teams: {nlp: {members: [ann, bob]}}
defaults: {max_duration: 24h, allow_reference_prices: false}
budgets:
  - {name: company, amount: $1000, period: month}
guardrails:
  - {name: finance-price, max_price_per_gpu_hour: $5}
  - {name: finance-places, allowed_locations: {providers: [aws, gcp]}}
"""
TEAM = """\
version: 1
policy: nlp
teams: {nlp: {members: [ann, carol]}}
defaults: {max_duration: 48h, allow_reference_prices: true}
budgets:
  - {name: nlp, amount: $3000, period: month, scope: {team: nlp}}
guardrails:
  - {name: nlp-price, max_price_per_gpu_hour: $3, scope: {team: nlp}}
  - {name: nlp-places, allowed_locations: {providers: [gcp, azure]}, scope: {team: nlp}}
"""
REFERENCE = Path(__file__).parents[2] / "docs/policy-rules.md"


@pytest.fixture(params=[("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")], ids=["finance first", "team first"])
def both(request: pytest.FixtureRequest) -> ActivePolicies:
    """The two files; in which order they are read makes no difference."""
    finance, team = request.param
    return load({finance: FINANCE, team: TEAM})


def objections(policies: ActivePolicies, asked: Action, spent: str = "0") -> dict[str, str]:
    """Which rules object, and their sentences with the place."""
    uses = {
        spec.id: tuple(
            BudgetUse(*period, Money.usd(spent), Money.ZERO)
            for period in periods_touching(spec.period, spec.timezone, asked.window or (NOW, NOW))
        )
        for spec in policies.budgets(asked.job, asked.user)
    }
    verdicts = policies.judge(asked, Facts(NOW, budgets=uses))
    return {v.name: f"{v.message} ({v.source})" for v in verdicts if v.answer is not Answer.ALLOW}


def asks(dollars: int = 10, price: str = "24", provider: str = "gcp", user: str = "ann") -> Action:
    return action(user=user, placement=placement(price, provider=provider), hold={MoneyKind.CASH: Money.usd(dollars)})


def test_the_smaller_limit_decides_and_says_whose_it_is(both: ActivePolicies) -> None:
    dear = objections(both, asks(price="32"))
    dearer = objections(both, asks(price="48"))

    assert set(dear) == {"nlp-price"}
    assert dear["nlp-price"].endswith(".yaml:8)")
    assert set(dearer) == {"nlp-price", "finance-price"}, "everybody who objects is heard"
    # What the team may not be stricter about for others: they have finance's limit alone.
    others = replace(asks(price="32", provider="aws"), job=job(team=None))
    assert objections(both, others) == {}


def test_of_two_lists_what_is_in_both_is_left(both: ActivePolicies) -> None:
    left = [name for name in ("aws", "gcp", "azure") if not objections(both, asks(provider=name))]

    assert left == ["gcp"]


def test_money_must_fit_into_every_budget(both: ActivePolicies) -> None:
    assert set(objections(both, asks(1001))) == {"company"}
    assert set(objections(both, asks(3001))) == {"company", "nlp"}
    assert objections(both, asks(1001))["company"].startswith(
        "budget company of $1,000.00 for November 2026: $1,001.00 requested; $1,000.00 is left ($0.00 spent, "
        "$0.00 held)"
    )


def test_who_is_listed_by_one_owner_alone_is_no_member(both: ActivePolicies) -> None:
    assert objections(both, asks(user="ann")) == {}
    for stranger, file in (("bob", "team"), ("carol", "finance")):
        said = objections(both, asks(user=stranger))
        assert set(said) == {"membership"}, file


def test_the_shorter_default_and_the_switch_that_somebody_says_no_to(both: ActivePolicies) -> None:
    assert both.defaults.max_duration == timedelta(hours=24)
    assert not both.defaults.allow_reference_prices


def test_each_owner_who_asks_is_asked_and_a_denial_is_a_denial() -> None:
    people = "version: 1\npolicy: {0}\nteams: {{nlp: {{members: [ann, bob, carol]}}}}\nguardrails:\n"
    ask = "  - {{name: {0}-asks, max_job_cost: {1}, action: ask, approvers: [{2}]}}\n"
    finance = people.format("finance") + ask.format("finance", "$100", "bob")
    finance += "  - {name: never, max_job_cost: $200}\n"
    policies = load({"finance.yaml": finance, "nlp.yaml": people.format("nlp") + ask.format("nlp", "$50", "carol")})

    def answers(dollars: int) -> dict[str, tuple[str, tuple[str, ...]]]:
        asked = action(placement=placement(money=MoneyKind.AMORTISED), hold={MoneyKind.SANDBOX: Money.usd(dollars)})
        verdicts = policies.judge(asked, Facts(NOW))
        return {v.name: (v.answer.value, v.approvers) for v in verdicts if v.answer is not Answer.ALLOW}

    assert answers(50) == {}
    assert answers(60) == {"nlp-asks": ("ask", ("carol",))}
    assert answers(150) == {"nlp-asks": ("ask", ("carol",)), "finance-asks": ("ask", ("bob",))}
    assert answers(250) == {
        "nlp-asks": ("ask", ("carol",)), "finance-asks": ("ask", ("bob",)), "never": ("deny", ()),
    }  # fmt: skip


def test_what_cannot_both_hold_is_refused_with_both_places() -> None:
    with pytest.raises(InvalidInput) as caught:
        load(
            {
                "a.yaml": FINANCE + "capacity: {order: [owned, spot]}\n",
                "b.yaml": TEAM + "capacity: {order: [spot, owned]}\n",
            }
        )

    assert caught.value.where == "b.yaml"
    (problem,) = caught.value.problems
    assert str(problem) == "line 10: capacity.order: contradicts the order in a.yaml:10; only one is possible"
    assert load({"a.yaml": FINANCE + "capacity: {order: [owned, spot]}\n", "b.yaml": TEAM}).defaults.capacity_order == (
        CapacityType.OWNED, CapacityType.SPOT,
    )  # fmt: skip


def test_an_order_for_the_same_jobs_is_one_too() -> None:
    text = "version: 1\npolicy: %s\ncapacity: {exceptions: [{scope: {team: %s}, order: [%s]}]}\n"
    with pytest.raises(InvalidInput) as caught:
        load({"a.yaml": text % ("a", "nlp", "spot"), "b.yaml": text % ("b", "[nlp]", "owned")})

    assert [f"{p.line}:{p.column} {p.key}: {p.message}" for p in caught.value.problems] == [
        "3:55 capacity.exceptions[0].order: contradicts the order for the same jobs in a.yaml:3; only one is possible"
    ]
    assert caught.value.where == "b.yaml"
    for other in (("b", "[nlp]", "spot"), ("b", "vision", "owned")):
        assert load({"a.yaml": text % ("a", "nlp", "spot"), "b.yaml": text % other})


def test_the_reference_says_so() -> None:
    text = " ".join(REFERENCE.read_text("utf-8").split())

    for sentence in (
        "**All files apply at once**; the strictest answer decides.",
        "The shortest `max_duration` applies",
        "a switch is on if a file sets `true` and none sets `false`",
        "Two capacity orders for the same jobs are an error",
        "every file that lists the team must list the user",
        "money must fit into every budget",
        "Each rule that asks needs its own approval.",
        "requires an approval where the guardrail would deny",
    ):
        assert sentence in text, sentence
