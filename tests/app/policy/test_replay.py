"""Recorded decisions, judged again: exactly the same under the same policy, and by hand under another."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.app.policy.replay import replay
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import dump_inputs, inputs_hash, inputs_of
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money
from policies.loader import load
from tests.app.policy.recorded_month import RULES, START, TEAMS, Month, a_month, answers, budget, placement


@pytest.fixture(scope="module")
def month() -> Month:
    return a_month()


def test_the_same_policy_says_exactly_the_same_of_a_month_of_500_decisions(month: Month) -> None:
    found = month.again()

    assert len(found.outcomes) >= 500
    assert {one.decision.answer for one in found.outcomes} == set(Answer), "there is something to see"
    approved = {v.name for one in month.decisions for v in one.verdicts if v.code == "approved"}
    assert approved == {"dear", "long"}
    denied_by = {v.name for one in month.decisions for v in one.verdicts if v.answer is Answer.DENY}
    assert denied_by == {"monthly", "nlp-weekly", "few", "nlp-few", "prices", "big", "nights"}
    assert [one.verdicts for one in found.outcomes] == [one.verdicts for one in month.decisions]
    assert found.differences == ()
    assert found.before == found.after


def test_added_up_anew_from_the_ledger_the_budgets_come_to_what_was_recorded(month: Month) -> None:
    # Another version, but the same rules: nothing is taken from the record but the questions.
    text = "# said otherwise\nversion: 1\npolicy: other\nbudgets:\n"
    text += '  - {name: monthly, amount: "$1,500", period: month}' + TEAMS + RULES
    found = replay(month.decisions, month.entries, load({"p.yaml": text}))

    assert found.differences == ()
    assert [[v.figures for v in one.verdicts] for one in found.outcomes] == [
        [v.figures for v in one.verdicts] for one in month.decisions
    ]


def test_an_altered_record_is_found(month: Month) -> None:
    first, *rest = month.decisions
    inputs = first.seen["inputs"]
    assert isinstance(inputs, dict)
    forged = {**dict(first.seen), "inputs": {**inputs, "others": [1]}}

    with pytest.raises(ValueError, match="was altered"):
        replay([replace(first, seen=forged), *rest], month.entries, month.policy)
    assert inputs_of(first) is not None
    assert inputs_of(replace(first, seen={})) is None
    assert replay([replace(first, seen={})], month.entries, month.policy).unknown == 1


# --- another policy, by hand ----------------------------------------------------------------------------------------


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def test_a_smaller_budget_refuses_one_and_so_has_room_for_the_next() -> None:
    month = Month(load({"p.yaml": budget("$200")}))
    for n, hold in enumerate(("60", "50", "40")):
        assert month.submit(at(2 * n), hold) is Answer.ALLOW

    found = month.again(budget("$100"))

    # 60 fit; 60 + 50 do not; as nothing was spent on those, 60 + 40 do.
    assert answers(found) == ["allow", "deny", "allow"]
    assert found.before.cost == {MoneyKind.CASH: Money.usd(150)}
    assert found.after.cost == {MoneyKind.CASH: Money.usd(100)}
    (difference,) = found.differences
    assert (difference.cost_before, difference.cost_after) == (Money.usd(50), Money.ZERO)
    assert difference.verdicts[-1].code == "over_budget"


def test_what_was_spent_counts_not_what_was_held_once_it_is_over() -> None:
    month = Month(load({"p.yaml": budget("$200")}))
    month.submit(at(0), "90", cost="10", hours=1)
    month.submit(at(0.5), "20", hours=1)
    month.submit(at(2), "20", hours=1)

    # 90 are held when the second one asks; when the third one asks, 10 were spent and nothing else.
    assert answers(month.again(budget("$100"))) == ["allow", "deny", "allow"]


def test_a_larger_budget_lets_through_what_was_refused_and_counts_its_plan() -> None:
    month = Month(load({"p.yaml": budget("$100")}))
    for n, hold in enumerate(("60", "50", "40")):
        month.submit(at(2 * n), hold, placements=[placement(at(2 * n), "30")])
    assert [one.answer.value for one in month.decisions] == ["allow", "deny", "allow"]

    found = month.again(budget("$130"))

    # 60 were spent; 60 + 50 fit, and the plan expects 30 of those 50: 60 + 30 + 40.
    assert answers(found) == ["allow", "allow", "allow"]
    assert found.after.cost == {MoneyKind.CASH: Money.usd(130)}
    assert answers(month.again(budget("$109"))) == ["allow", "deny", "allow"]


def test_jobs_that_are_refused_occupy_nothing() -> None:
    month = Month(load({"p.yaml": budget("$900")}))
    for n in range(4):
        month.submit(at(n / 10), "50" if n != 1 else "95", hours=2)

    found = month.again(
        budget("$900", "guardrails:\n- {name: big, max_job_cost: $90}\n- {name: two, max_concurrent_jobs: 2}\n")
    )

    # The second one is too dear, so the third one is the second that runs, and the fourth one too many.
    assert answers(found) == ["allow", "deny", "allow", "deny"]


def test_a_new_rule_that_counts_sees_those_that_hold_money() -> None:
    month = Month(load({"p.yaml": budget("$900")}))
    for n in range(3):
        month.submit(at(n), "50", hours=2.5)
    assert all(not inputs.live_kept for one in month.decisions if (inputs := inputs_of(one)))

    found = month.again(budget("$900", "guardrails: [{name: two, max_concurrent_gpus: 2}]"))
    assert answers(found) == ["allow", "allow", "deny"]
    assert found.outcomes[-1].verdicts[-1].figures["running"] == "2"
    # With room for one, the second one is refused, and so there is room for the third one at its time.
    assert answers(month.again(budget("$900", "guardrails: [{name: one, max_concurrent_jobs: 1}]"))) == [
        "allow", "deny", "deny",
    ]  # fmt: skip


def test_a_provider_that_is_forbidden_is_left_for_the_next_best_with_its_price() -> None:
    month = Month(load({"p.yaml": budget("$900")}))
    elsewhere = placement(at(0), "70", hours=5, provider="gcp", price="11")
    month.submit(at(0), "100", cost="40", hours=6, placements=[placement(at(0), "40", 3), elsewhere])

    found = month.again(budget("$900", "guardrails: [{name: not-aws, allowed_locations: {providers: {deny: aws}}}]"))

    (one,) = found.outcomes
    assert one.answer is Answer.ALLOW
    assert one.pool is not None
    assert one.pool.startswith("gcp/")
    assert (one.cost_before, one.cost_after) == (Money.usd(40), Money.usd(70)), "what the plan expected there"


def test_what_comes_after_a_refusal_was_never_asked() -> None:
    month = Month(load({"p.yaml": budget("$900")}))
    month.submit(at(0), "80", cost="60", hours=4)
    (launch,) = month.decisions
    inputs = inputs_of(launch)
    assert inputs is not None
    moved = replace(inputs.action, kind=ActionKind.RE_PLACE, hold={}, job_id=launch.job_id, submitted_at=at(0))
    facts = replace(inputs.facts, now=at(1))
    kept = dump_inputs(moved, facts)
    version = month.policy.version
    month.decisions.append(
        replace(
            launch, at=at(1), action=ActionKind.RE_PLACE, seen={"inputs": kept}, facts_hash=inputs_hash(kept, version),
            verdicts=tuple(month.policy.judge(moved, facts)),
        )
    )  # fmt: skip

    assert month.again().differences == ()
    found = month.again(budget("$50"))
    assert answers(found) == ["deny", None]
    assert found.after.cost == {}
    freeze = 'guardrails: [{name: f, freeze: {from: "2026-11-01T01:00", to: "2026-11-02"}}]'
    found = month.again(budget("$900", freeze))
    assert answers(found) == ["allow", "deny"]


def test_what_is_asked_instead_of_denied_counts_as_granted() -> None:
    month = Month(load({"p.yaml": budget("$900", "guardrails: [{name: big, max_job_cost: $50}]")}))
    for n, hold in enumerate(("60", "50", "70")):
        month.submit(at(2 * n), hold, placements=[placement(at(2 * n), "30")])
    assert [one.answer.value for one in month.decisions] == ["deny", "allow", "deny"]

    asks = (
        "guardrails: [{name: big, max_job_cost: $50, action: ask, approvers: [olga]}, {name: most, max_job_cost: $65}]"
    )
    found = month.again(budget("$900", asks))

    # 60 is asked about and its plan expects 30; 50 was spent; 70 is above what anybody may approve.
    assert answers(found) == ["ask", "allow", "deny"]
    assert (found.after.asked, found.after.denied) == (1, 1)
    assert found.after.cost == {MoneyKind.CASH: Money.usd(80)}


def test_what_nobody_need_be_asked_about_is_taken_first() -> None:
    month = Month(load({"p.yaml": budget("$900")}))
    elsewhere = placement(at(0), "70", hours=5, provider="gcp", price="11")
    month.submit(at(0), "100", cost="40", hours=6, placements=[placement(at(0), "40", 3), elsewhere])

    asks = "guardrails: [{name: g, allowed_locations: {providers: {deny: PLACE}}, action: ask, approvers: [olga]}]"
    (one,) = month.again(budget("$900", asks.replace("PLACE", "aws"))).outcomes
    assert (one.answer, (one.pool or "").partition("/")[0], one.cost_after) == (Answer.ALLOW, "gcp", Money.usd(70))
    (one,) = month.again(budget("$900", asks.replace("PLACE", "[aws, gcp]"))).outcomes
    assert (one.answer, (one.pool or "").partition("/")[0]) == (Answer.ASK, "aws")
