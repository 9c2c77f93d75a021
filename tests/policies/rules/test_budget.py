from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import covers
from broker.core.policy.policy import Action, ActionKind, Answer, BudgetUse, Facts, Source, Verdict
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from policies.rules.budget import Budget, BudgetTerms
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action

EVERYBODY = Scope()
CASH = MoneyKind.CASH


def budget(scope: Scope = EVERYBODY, /, **terms: Any) -> Budget:
    said = {"amount": "$500", "period": "month", "timezone": "Europe/Berlin"} | terms
    return Budget("nlp-monthly", BudgetTerms.model_validate(said), scope, Source("team.yaml", 4))


def use(spent: str = "0", held: str = "0", *, year: int = 2026, month: int = 11) -> BudgetUse:
    """The state of a month in Berlin."""
    (period,) = periods_touching("month", "Europe/Berlin", (datetime(year, month, 15, tzinfo=UTC),) * 2)
    return BudgetUse(*period, Money.usd(spent), Money.usd(held))


def asking(amount: str, kind: MoneyKind = CASH, **more: Any) -> Action:
    return action(hold={kind: Money.usd(amount)}, **more)


def judge(rule: Budget, act: Action, *uses: BudgetUse) -> Verdict:
    return rule.judge(act, Facts(NOW, budgets={rule.name: uses}))


class TestBudget(RuleContract):
    plugin = "budget"

    @pytest.fixture
    def case(self) -> Case:
        facts = Facts(NOW, budgets={"nlp-monthly": (use("300", "100"),)})
        return Case(
            budget(Scope(team=(TEAM,))),
            stopped=(asking("100.000001"), facts),
            passed=(asking("100"), facts),
        )


def test_the_message_has_budget_asked_left_limit_and_period() -> None:
    verdict = judge(budget(), asking("610.50"), use("300", "188"))

    assert verdict.message == (
        "budget nlp-monthly of $500.00 for November 2026: $610.50 requested; $12.00 is left ($300.00 spent, "
        "$188.00 held)"
    )
    assert verdict.figures == {
        "budget": "nlp-monthly",
        "asked": "610.50",
        "share": "610.50",
        "left": "12.00",
        "limit": "500.00",
        "spent": "300.00",
        "held": "188.00",
        "period": "November 2026",
        "period_start": "2026-10-31T23:00:00+00:00",
        "period_end": "2026-11-30T23:00:00+00:00",
    }


def test_an_overdrawn_budget_admits_nothing() -> None:
    verdict = judge(budget(), asking("0.000001"), use("503"))

    assert verdict.answer is Answer.DENY
    assert "the budget is overdrawn by $3.00" in verdict.message


def test_each_period_needs_the_room() -> None:
    midnight = datetime(2026, 11, 30, 23, tzinfo=UTC)
    window = (midnight - timedelta(hours=6), midnight + timedelta(hours=18))
    act = asking("400", window=window)  # $100 in November, $300 in December

    assert judge(budget(), act, use("400"), use("200", month=12)).answer is Answer.ALLOW
    november = judge(budget(), act, use("400.01"), use("200", month=12))
    december = judge(budget(), act, use("400"), use("200.01", month=12))

    assert (november.answer, november.figures["period"]) == (Answer.DENY, "November 2026")
    assert (december.answer, december.figures["period"]) == (Answer.DENY, "December 2026")
    assert "$400.00 requested, $300.00 of it in December 2026; $299.99 is left" in december.message


@given(
    st.integers(min_value=1, max_value=10**9).map(Money),
    st.timedeltas(timedelta(0), timedelta(days=70)),
    st.lists(st.tuples(*[st.integers(min_value=0, max_value=10**9).map(Money)] * 2), min_size=4, max_size=4),
)
def test_what_is_admitted_never_takes_a_period_over_the_limit(
    asked: Money, length: timedelta, state: list[tuple[Money, Money]]
) -> None:
    window = (NOW, NOW + length)
    periods = periods_touching("month", "Europe/Berlin", window)
    uses = [BudgetUse(*period, *money) for period, money in zip(periods, state, strict=False)]

    verdict = judge(budget(), action(hold={CASH: asked}, window=window), *uses)

    shares = [Burn.evenly(asked, window).share(period) for period in periods]
    totals = [u.spent + u.held + share for u, share in zip(uses, shares, strict=True)]
    assert (verdict.answer is Answer.ALLOW) == all(total <= Money.usd(500) for total in totals)


@pytest.mark.parametrize(
    ("counts", "kind", "answer"),
    [
        (["cash"], MoneyKind.CASH, Answer.DENY),
        (["cash"], MoneyKind.AMORTISED, Answer.ALLOW),
        (["cash"], MoneyKind.SANDBOX, Answer.ALLOW),
        (["cash", "amortised"], MoneyKind.AMORTISED, Answer.DENY),
        (["cash", "amortised"], MoneyKind.SANDBOX, Answer.ALLOW),
        (["sandbox"], MoneyKind.SANDBOX, Answer.DENY),
        (["sandbox"], MoneyKind.CASH, Answer.ALLOW),
        ("sandbox", MoneyKind.SANDBOX, Answer.DENY),
    ],
)
def test_only_money_that_counts_is_counted(counts: object, kind: MoneyKind, answer: Answer) -> None:
    assert judge(budget(counts=counts), asking("501", kind), use()).answer is answer


def test_kinds_that_count_are_added_up() -> None:
    both = action(hold={CASH: Money.usd(300), MoneyKind.AMORTISED: Money.usd(300)})

    assert judge(budget(), both, use()).answer is Answer.ALLOW
    assert judge(budget(counts=["cash", "amortised"]), both, use()).answer is Answer.DENY


@pytest.mark.parametrize("uses", [(), (use(month=10),), (use(month=12),)])
def test_without_the_ledgers_figures_it_denies(uses: tuple[BudgetUse, ...]) -> None:
    verdict = judge(budget(), asking("1"), *uses)

    assert (verdict.answer, verdict.code) == (Answer.DENY, "budget_state_unknown")


def test_single_placements_wait_for_the_whole_submission() -> None:
    assert judge(budget(), action(hold=None)).code == "no_amount_yet"


def test_the_ledger_is_told_what_to_add_up() -> None:
    spec = budget(Scope(team=("nlp",), user=("a*",)), counts=["cash", "amortised"]).spec

    assert (spec.id, spec.period, spec.timezone) == ("nlp-monthly", "month", "Europe/Berlin")
    assert spec.counts == {"cash", "amortised"}
    assert (spec.teams, spec.users, spec.projects) == (("nlp",), ("a*",), ())


# --- fixed days -----------------------------------------------------------------------------------------------------

DAYS = {"period": "fixed", "from": "2026-11-01", "to": "2026-11-30"}


def fixed_use(spent: str = "0") -> BudgetUse:
    (period,) = periods_touching("2026-11-01/2026-12-01", "Europe/Berlin", (NOW, NOW))
    return BudgetUse(*period, Money.usd(spent), Money.ZERO)


def test_what_lies_within_the_days_is_paid_from_them() -> None:
    grant = budget(**DAYS)

    assert grant.spec.period == "2026-11-01/2026-12-01"
    assert judge(grant, asking("200"), fixed_use("300")).answer is Answer.ALLOW
    denied = judge(grant, asking("200.01"), fixed_use("300"))
    assert denied.message == (
        "budget nlp-monthly of $500.00 for 2026-11-01 to 2026-11-30: $200.01 requested; $200.00 is left"
        " ($300.00 spent, $0.00 held)"
    )


@pytest.mark.parametrize("start", [datetime(2026, 11, 30, 20, tzinfo=UTC), datetime(2027, 5, 1, tzinfo=UTC)])
def test_what_goes_beyond_the_days_is_refused(start: datetime) -> None:
    verdict = judge(budget(**DAYS), asking("5", window=(start, start + timedelta(hours=10))), fixed_use())

    assert (verdict.answer, verdict.code) == (Answer.DENY, "outside_of_period")
    assert verdict.message.startswith("budget nlp-monthly covers 2026-11-01 to 2026-11-30 only; $5.00 is requested")


# --- what happens to what does not fit ------------------------------------------------------------------------------


def test_a_budget_that_alerts_lets_it_pass_and_says_so() -> None:
    verdict = judge(budget(action="alert"), asking("610.50"), use("300", "188"))

    assert (verdict.answer, verdict.code) == (Answer.ALLOW, "over_budget_alert")
    assert verdict.message.endswith("($300.00 spent, $188.00 held); the request is allowed and an alert is sent")
    assert verdict.figures["left"] == "12.00"


def test_a_budget_that_asks_names_whom() -> None:
    rule = budget(action="ask", approvers=["cfo", "lead-*"], expires="2h")
    verdict = judge(rule, asking("610.50"), use("300", "188"))

    assert (verdict.answer, verdict.code) == (Answer.ASK, "over_budget")
    assert (verdict.approvers, verdict.expires, verdict.own_requests) == (("cfo", "lead-*"), timedelta(hours=2), False)
    assert judge(rule, asking("12"), use("300", "188")).answer is Answer.ALLOW


def test_an_approved_overdraft_covers_no_larger_one() -> None:
    rule = budget(action="ask", approvers=["cfo"], expires="2h")
    approved, less, spent, held = (
        rule.looks_at(asking("100"), Facts(NOW, budgets={rule.name: (use(*one),)}))
        for one in (("450", "50"), ("449", "50"), ("450.01", "50"), ("450", "50.01"))
    )
    assert [covers(approved, seen) for seen in (approved, less, spent, held)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"action": "ask"}, "needs `approvers`"),
        ({"approvers": "cfo"}, "is for `action: ask` only; the action here is deny"),
        ({"action": "ask", "approvers": "cfo", "grace": "5m"}, "is for `action: stop` only"),
        ({"alerts": ["80%", "80 %"]}, "names one threshold twice"),
        ({"alerts": ["80"]}, "expected a percentage such as 5% or 50%, or `forecast`, or `forecast 80%`; got '80'"),
        ({"alerts": ["forecast eighty"]}, "expected a percentage such as 5% or 50%"),
        ({"alerts": ["0%"]}, "must be more than 0%"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        budget(**terms)


def test_alerts_are_percentages_and_the_forecast() -> None:
    assert budget().config.alerts == ("50%", "80%", "100%", "forecast")
    assert budget(alerts=["12.5 %", "forecast"]).config.alerts == ("12.5%", "forecast")
    assert budget(alerts=["forecast  80 %", "80%"]).config.alerts == ("forecast 80%", "80%")
    assert budget(alerts=[]).config.alerts == ()


def test_a_budget_may_refuse_top_ups() -> None:
    extension = asking("5", kind=CASH)
    more = Action(ActionKind.EXTEND, extension.job, extension.user, hold=extension.hold, window=extension.window)

    assert judge(budget(), more, use()).answer is Answer.ALLOW
    assert judge(budget(top_up=False), more, use()).code == "no_top_up"
    assert judge(budget(top_up=False), extension, use()).answer is Answer.ALLOW


# --- what runs ------------------------------------------------------------------------------------------------------


def running(rule: Budget, spent: str, over_since: datetime | None, now: datetime = NOW) -> Verdict:
    before = action(kind=ActionKind.CONTINUE)
    state = replace(use(spent), over_since=over_since)
    return rule.judge(before, Facts(now, budgets={rule.name: (state,)}))


def test_what_runs_is_stopped_a_grace_after_more_was_spent_than_there_was() -> None:
    rule = budget(action="stop", grace="10m")
    since = NOW - timedelta(minutes=10)

    stopped = running(rule, "500.000001", since)
    assert (stopped.answer, stopped.code) == (Answer.DENY, "exceeded")
    assert stopped.message == (
        "budget nlp-monthly of $500.000000 for November 2026 is exceeded: $500.000001 spent; running jobs "
        "stop after a grace period of 10m"
    )
    assert running(rule, "500.000001", since + timedelta(microseconds=1)).code == "in_grace"
    assert running(rule, "500.000001", None).answer is Answer.ALLOW, "nobody has seen it yet"
    assert running(rule, "500", since).answer is Answer.ALLOW, "all of it is not too much"
    assert running(budget(), "501", since).answer is Answer.ALLOW, "this one stops nothing"
    assert running(rule, "501", since, NOW + timedelta(days=40)).answer is Answer.ALLOW, "another month"


def test_a_budget_stops_what_costs_its_kind_of_money() -> None:
    rule = budget(action="stop", counts=["sandbox"])
    assert running(rule, "501", NOW - timedelta(days=1)).answer is Answer.ALLOW
