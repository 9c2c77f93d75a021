"""`policy explain` says what a plan of the same job says: it judges the placement that the plan takes."""

import pytest

from broker.app.jobs.preview import preview
from broker.app.policy.policies import explain
from broker.app.wiring import Broker
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer
from broker.core.values.clock import ManualClock
from policies.loader import load
from tests.actors import ANN, with_clock

PRETEND = "version: 1\nbudgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]\n"


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Simulated prices move with the time, which stands still here."""
    return with_clock(broker, ManualClock(broker.clock.now()))


def job(broker: Broker) -> Job:
    text = "name: trial\nrun: 'true'\nresources: {accelerators: 'L4:1'}\nmax_duration: 6h\n"
    return parse_job(f"{text}constraints: {{providers: [sandbox]}}\n", file="job.yaml", now=broker.clock.now())


def guarded(rule: str) -> str:
    return f"{PRETEND}guardrails: [{{name: r, {rule}}}]\n"


def test_what_the_plan_takes_is_judged_and_not_what_rules_keep_it_from(broker: Broker) -> None:
    best = preview(broker, job(broker), load({"p.yaml": PRETEND}), by=ANN).plan.placements[0]
    elsewhere = f"allowed_locations: {{regions: {{deny: [{best.offer.region}]}}}}"
    no_dearer = f"max_price_per_gpu_hour: {{L4: {best.rate.up_to_cents()}}}"
    for rule in (elsewhere, no_dearer):
        policy = load({"p.yaml": guarded(rule)})
        seen, said = preview(broker, job(broker), policy, by=ANN), explain(broker, job(broker), policy, by=ANN)

        assert said is not None
        assert (said.planned, said.answer, seen.exit_code) == (True, Answer.ALLOW, 0)
        assert said.admission == seen.admission, "the same placement, hold and verdicts"
        assert (said.admission.placement.offer.id == best.offer.id) == (rule == no_dearer)


def test_a_budget_that_is_too_small_for_what_the_plan_takes_denies_it(broker: Broker) -> None:
    policy = load({"p.yaml": PRETEND.replace("$100", "$0.01")})
    said, seen = explain(broker, job(broker), policy, by=ANN), preview(broker, job(broker), policy, by=ANN)

    assert said is not None
    assert (said.planned, said.answer, seen.exit_code) == (True, Answer.DENY, 3)
    assert said.admission == seen.admission
    assert said.facts.budgets["pretend"], "what the rule saw is there, too"


def test_where_rules_leave_the_plan_none_the_best_that_they_turn_down_is_judged(broker: Broker) -> None:
    policy = load({"p.yaml": guarded("capacity_types: [owned]")})
    said, seen = explain(broker, job(broker), policy, by=ANN), preview(broker, job(broker), policy, by=ANN)

    assert said is not None
    assert (said.planned, said.answer, seen.exit_code) == (False, Answer.DENY, 3)
    assert [verdict.name for verdict in said.admission.objections] == ["r"]
