"""`when:`: checked when the file is loaded, with the place of what is wrong; evaluated with every request."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, ActionKind, Answer, BudgetUse, Facts, Verdict
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from policies.loader import load
from policies.policyset import ActivePolicies
from tests.contracts.rule_contract import NOW, action, job, placement

GUARDRAIL = "version: 1\nguardrails:\n  - name: g\n    max_concurrent_gpus: 1\n    when: {when}\n"


def conditional(when: str) -> ActivePolicies:
    return load({"p.yaml": GUARDRAIL.format(when=f"'{when}'")})


def verdict(when: str, asked: Action | None = None, facts: Facts | None = None) -> Verdict:
    found = conditional(when).judge(asked or action(), facts or Facts(NOW))
    return next(one for one in found if one.name == "g")


def finding(when: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        load({"p.yaml": GUARDRAIL.format(when=when)})
    (problem,) = caught.value.problems
    assert problem.key == "guardrails[0].when"
    return f"{problem.line}:{problem.column}: {problem.message}"


@pytest.mark.parametrize(
    ("when", "met"),
    [
        ('job.team == "nlp"', True),
        ('job.team == "vision"', False),
        ('user in ["ann", "bob"]', True),
        ("offer.price > 31.0 && offer.price_per_gpu <= 4.0", True),
        ('offer.provider == "aws" && offer.region.startsWith("us-")', True),
        ("placement.gpus == 8 && placement.rate < 33.0", True),
        ('has(job.max_cost) ? job.max_cost > 5.0 : job.priority == "normal"', True),
        ("has(job.max_cost)", False),
        ('action == "launch" && !job.sensitive', True),
        ('time.weekday == "sat" && time.hour == 12', True),
        ('hour_in("Asia/Tokyo") == 21 && weekday_in("Pacific/Auckland") == "sun"', True),
        ('time.now < timestamp("2026-11-22T00:00:00Z")', True),
        ('time.now - timestamp("2026-11-21T00:00:00Z") > duration("12h1m")', False),
        ("offer.age_hours < 0.5", True),
        ("spend.hours + 1.0 > 0.5", True),
    ],
)
def test_a_rule_applies_where_its_condition_is_met(when: str, met: bool) -> None:
    found = verdict(when)

    assert (found.answer, found.code) == (
        (Answer.DENY, "too_many_gpus") if met else (Answer.ALLOW, "condition_not_met")
    )


@pytest.mark.parametrize(
    ("when", "said"),
    [
        # Line 5 begins with `    when: `, so the text begins at column 11, and after a quote at 12.
        ("job.taem == 'a'", "5:15: job has no field 'taem'; did you mean 'team'?"),
        ("usr == 'a'", "5:11: unknown variable 'usr'; did you mean 'user'?"),
        ("'job.nodes == \"a\"'", "5:22: a whole number never equals a text"),
        ('duration("1h") + timestamp("2027-01-01T00:00:00Z") > time.now', "5:26: + does not work with a duration and a"
         " time; write a time + a duration"),
        ("offer.price + 1 > 2.0", "5:23: + does not work with a number and a whole number; write whole amounts with a"
         " decimal point, such as 2.0"),
        ("job.team", "5:11: expected a condition that is true or false, such as spend.asked > 100.0; this is a text"),
        ("job", "5:11: job is a group: expected one of its fields, such as job.name"),
        ("user.startWith('a')", "5:16: a text has no 'startWith'; did you mean 'startsWith'?"),
        ("siz(user) > 1", "5:11: unknown function 'siz'; did you mean 'size'?"),
        ("user == 'a' &&", "5:25: expected a value, got the end"),
        ("(user == 'a'", "5:23: expected ')', got the end"),
        ("user == 'a' b", "5:23: expected an operator such as && or ==, or the end; got 'b'"),
        ("user == 'a' && job.nodes", "5:23: && joins conditions; one side is a whole number"),
        ("job.nodes in ['a']", "5:21: expected a whole number in a list of the same type; got a whole"
         " number in a list of texts"),
        ("user.matches('[')", "5:24: expected a regular expression; got '['"),
        ("time.now > timestamp('2026')", "5:32: expected a time such as 2026-12-01T08:00:00Z; got '2026'"),
        ("hour_in('Europe/Berln') > 3", "5:19: expected a time zone such as Europe/Berlin; got 'Europe/Berln'; did you"
         " mean 'Europe/Berlin'?"),
        ("hour_in(user) > 3", "5:19: hour_in() takes the name of a time zone in quotes"),
        ("time.hour > 'a'", "5:21: a whole number cannot be compared with a text; write numbers without quotes"),
        ("'user == $x'", "5:20: expected a value or an operator; got '$'"),
        ("5", "5:11: expected a condition in CEL, such as 'spend.asked > 100.0'; got '5'"),
        ("[]", "5:11: expected a condition in CEL, such as 'spend.asked > 100.0'; got a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_where_it_is(when: str, said: str) -> None:
    assert finding(when) == said


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("job.max_cost > 5.0", "max_cost is absent (check has() first)"),
        ("placement.hours > 5.0", "hours is absent (check has() first)"),
        ("8 / (job.nodes - 1) > 1", "it divides by zero"),
        ("spend.spent / spend.hours > 1.0", "it divides by zero"),
    ],
)
def test_what_cannot_be_evaluated_counts_as_met_and_the_reason_is_said(when: str, reason: str) -> None:
    found = verdict(when)

    assert (found.answer, found.code) == (Answer.DENY, "too_many_gpus")
    assert f"its condition cannot be evaluated, so it counts as met: {reason}" in found.message
    assert found.figures["when"] == when
    small = verdict(when, action(placement=placement(count=1)))
    assert (small.answer, small.code) == (Answer.ALLOW, "within_limit"), "what the rule lets through anyway"


def test_a_condition_about_the_amount_waits_until_it_is_known() -> None:
    when = "spend.asked > 100.0"

    assert verdict(when).code == "no_amount_yet"
    for dollars, code in ((100, "condition_not_met"), (101, "too_many_gpus")):
        assert verdict(when, action(hold={MoneyKind.CASH: Money.usd(dollars)})).code == code


def test_the_amount_asked_for_is_the_job_s_total() -> None:
    """A session that asks for $5 each hour asks for $150 in the end."""
    renewal = action(ActionKind.EXTEND, hold={MoneyKind.CASH: Money.usd(5)}, held=Money.usd(1), spent=Money.usd(4))

    assert verdict("spend.asked <= 12.0", renewal).code == "too_many_gpus"
    assert verdict("spend.asked <= 12.0", replace(renewal, spent=Money.usd(7))).code == "condition_not_met"


def test_whom_the_rule_is_not_about_is_not_asked() -> None:
    policies = load({"p.yaml": GUARDRAIL.format(when="job.max_cost > 5.0") + "    scope: {team: vision}\n"})

    assert {one.code for one in policies.judge(action(), Facts(NOW)) if one.name == "g"} == {"out_of_scope"}


def test_a_running_job_can_be_meant() -> None:
    running = action(ActionKind.CONTINUE, spent=Money.usd(12), elapsed=timedelta(hours=3), attempts=2)
    policies = load({"p.yaml": "version: 1\nguardrails:\n- {name: g, capacity_types: owned, when: 'spend.spent > 10.0"
                     " && spend.hours > 2.0 && spend.attempts == 2'}"})  # fmt: skip

    def code(asked: Action) -> str:
        return next(one.code for one in policies.judge(asked, Facts(NOW)) if one.name == "g")

    assert code(running) == "capacity_type_not_allowed"
    assert code(replace(running, spent=Money.usd(9))) == "condition_not_met"


# --- budgets with a condition ---------------------------------------------------------------------------------------

LARGE = "version: 1\nbudgets:\n- {name: large, amount: $100, period: month, when: 'job.nodes > 1'}\n"


@pytest.mark.parametrize(
    ("when", "named"),
    [
        ("time.hour >= 20", "time.hour"),
        ('job.nodes > 1 && weekday_in("Europe/Berlin") in ["sat", "sun"]', "weekday_in"),
        ("spend.asked < 20.0", "spend.asked"),
        ('offer.capacity_type == "spot"', "offer.capacity_type"),
    ],
)
def test_a_budget_has_no_condition_on_what_changes_during_a_job(when: str, named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"p.yaml": LARGE.replace("job.nodes > 1", when)})
    (problem,) = caught.value.problems
    assert problem.key == "budgets[0].when"
    assert f"{named} may change while a job runs" in problem.message
    assert load({"p.yaml": LARGE.replace("job.nodes > 1", 'user == "ann" && job.sensitive')}).rules


def codes(policies: ActivePolicies, now: datetime, **asked: Any) -> set[str]:
    act = action(hold={MoneyKind.CASH: Money.usd(10)}, window=(now, now + timedelta(hours=1)), **asked)
    uses = {
        spec.id: tuple(
            BudgetUse(*period, Money.ZERO, Money.ZERO)
            for period in periods_touching(spec.period, spec.timezone, (now, now + timedelta(hours=1)))
        )
        for spec in policies.budgets(act.job, act.user)
    }
    return {one.code for one in policies.judge(act, Facts(now, budgets=uses)) if one.answer is not Answer.ALLOW}


def test_a_budget_grants_only_what_meets_its_condition() -> None:
    assert codes(load({"p.yaml": LARGE}), NOW, job=job(num_nodes=2)) == set()
    assert codes(load({"p.yaml": LARGE}), NOW) == {"no_budget"}


def test_a_budget_whose_condition_cannot_be_evaluated_grants_nothing() -> None:
    unknown = load({"p.yaml": LARGE.replace("job.nodes > 1", "job.max_cost > 5.0")})

    assert codes(unknown, NOW) == {"no_budget"}
    known = job(max_cost=Money.usd(10))
    assert codes(unknown, NOW, job=known) == set()
