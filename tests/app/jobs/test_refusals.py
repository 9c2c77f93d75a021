"""What the policies refuse is on record with all that they saw, also where they left no placement to judge."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.jobs.preview import preview
from broker.app.jobs.submit import record_refusal, submit
from broker.app.market.market import market_for
from broker.app.policy.policies import load_policy
from broker.app.policy.replay import PolicyReplay, replay, replay_decisions
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer
from broker.core.values.money import Money
from broker.placement.planner import PlanInputs
from policies.loader import load
from tests.actors import ANN

PRETEND = "version: 1\npolicy: test\nbudgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]\n"
ONLY_OWNED = PRETEND + "guardrails: [{name: ours, capacity_types: [owned]}]\n"


def job(broker: Broker) -> Job:
    text = "name: big\nrun: 'true'\nresources: {accelerators: 'L4:1'}\nmax_duration: 2h\n"
    return parse_job(f"{text}constraints: {{providers: [sandbox]}}\n", file="job.yaml", now=broker.clock.now())


def govern(broker: Broker, text: str) -> None:
    broker.store.activate_policy({"test.yaml": text}, by="test")


def on_record(broker: Broker) -> list[Decision]:
    with broker.store.reading() as look:
        return list(look.decisions())


def replayed(broker: Broker, text: str) -> PolicyReplay:
    now = broker.clock.now()
    return replay_decisions(
        broker, load_policy(broker, {"test.yaml": text}), now - timedelta(hours=1), now + timedelta(hours=1)
    )


def test_a_job_that_policy_leaves_no_placement_is_on_record_and_can_be_judged_again(broker: Broker) -> None:
    govern(broker, ONLY_OWNED)
    with pytest.raises(NotAllowed, match=r"test\.yaml:4"):
        submit(broker, job(broker), by=ANN)

    (decision,) = on_record(broker)
    assert (decision.answer, decision.job_id) == (Answer.DENY, None)
    assert [one.name for one in decision.verdicts if one.answer is Answer.DENY] == ["ours"]
    rejected = decision.seen["rejections"]
    assert isinstance(rejected, dict)
    assert rejected["denied_by_policy"] > 1, "every placement that was turned down is counted"
    with broker.store.reading() as look:
        assert (look.jobs(), look.entries()) == ([], [])

    govern(broker, PRETEND)
    (loosened,) = replayed(broker, PRETEND).outcomes
    assert loosened.answer is Answer.ALLOW
    assert loosened.money is MoneyKind.SANDBOX
    assert loosened.cost_after > Money.ZERO
    assert replayed(broker, PRETEND + "guardrails: [{name: ours, capacity_types: [reserved]}]\n").after.denied


def test_under_the_policy_that_refused_it_exactly_the_same_is_said(broker: Broker) -> None:
    govern(broker, ONLY_OWNED)
    with pytest.raises(NotAllowed):
        submit(broker, job(broker), by=ANN)
    found = replay(on_record(broker), [], broker.policy())
    assert [one.verdicts for one in found.outcomes] == [one.verdicts for one in on_record(broker)]
    assert found.differences == ()


def test_a_look_at_a_plan_leaves_no_record_and_a_refusal_at_the_terminal_does(broker: Broker) -> None:
    govern(broker, ONLY_OWNED)
    seen = preview(broker, job(broker), by=ANN)
    assert (seen.exit_code, seen.plan.placements, on_record(broker)) == (3, (), [])
    record_refusal(broker, seen)
    assert [one.answer for one in on_record(broker)] == [Answer.DENY]


def test_what_would_be_allowed_by_now_is_no_refusal(broker: Broker) -> None:
    govern(broker, ONLY_OWNED)
    seen = preview(broker, job(broker), by=ANN)
    govern(broker, PRETEND)
    record_refusal(broker, seen)
    assert on_record(broker) == []


def test_of_all_places_that_are_too_dear_the_cheapest_is_named_and_passes_at_its_price(broker: Broker) -> None:
    govern(broker, f"{PRETEND}guardrails: [{{name: fair, max_price_per_gpu_hour: $0.10}}]\n")
    with pytest.raises(NotAllowed) as refused:
        submit(broker, job(broker), by=ANN)
    (price,) = re.findall(r"costs \$([0-9.]+) per GPU-hour; the limit is", str(refused.value))
    just_below = Money.usd(price) - Money.usd("0.001")
    govern(broker, f"{PRETEND}guardrails: [{{name: fair, max_price_per_gpu_hour: ${just_below.dollars}}}]\n")
    with pytest.raises(NotAllowed):
        submit(broker, job(broker), by=ANN)
    govern(broker, f"{PRETEND}guardrails: [{{name: fair, max_price_per_gpu_hour: ${price}}}]\n")
    submit(broker, job(broker), by=ANN)


LIVE_ONLY = "version: 1\npolicy: test\nbudgets: [{name: real, amount: $1000, period: month}]\n"


@pytest.fixture
def only_list_prices(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The market has list prices and nothing else, as before the first login."""

    def market(broker: Broker, job: Job, policy: object = None, **_: Any) -> PlanInputs:
        found = market_for(broker, job, **_)
        offers = [replace(one, reference=True, money=MoneyKind.CASH, source="pricebook") for one in found.offers]
        allowed = broker.policy().defaults.allow_reference_prices
        return replace(found, offers=offers, conditions=replace(found.conditions, allow_reference_prices=allowed))

    monkeypatch.setattr("broker.app.jobs.preview.market_for", market)


@pytest.mark.usefixtures("only_list_prices")
def test_what_only_the_switch_for_live_prices_refuses_is_on_record_and_said_again(broker: Broker) -> None:
    govern(broker, LIVE_ONLY)
    with pytest.raises(NotAllowed, match="reference"):
        submit(broker, job(broker), by=ANN)

    (decision,) = on_record(broker)
    said = [(one.name, one.code) for one in decision.verdicts if one.answer is Answer.DENY]
    assert (decision.answer, said) == (Answer.DENY, [("allow_reference_prices", "reference_price")])
    same = replay([decision], [], broker.policy())
    assert (same.differences, [one.verdicts for one in same.outcomes]) == ((), [decision.verdicts])

    allowed = LIVE_ONLY + "defaults: {allow_reference_prices: true}\n"
    (loosened,) = replayed(broker, allowed).outcomes
    assert (loosened.answer, loosened.cost_after > Money.ZERO) == (Answer.ALLOW, True)
    govern(broker, allowed)
    submit(broker, job(broker), by=ANN)
    assert [one.answer for one in replay(on_record(broker)[:1], [], load({"t.yaml": LIVE_ONLY})).outcomes] == [
        Answer.DENY
    ], "and the other way round"


def test_with_no_policy_at_all_the_refusal_is_on_record(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def market(broker: Broker, job: Job, policy: object = None, **_: Any) -> PlanInputs:
        found = market_for(broker, job, **_)
        return replace(found, offers=[replace(one, money=MoneyKind.CASH) for one in found.offers])

    monkeypatch.setattr("broker.app.jobs.preview.market_for", market)
    with pytest.raises(NotAllowed, match="no policy grants"):
        submit(broker, job(broker), by=ANN)
    (decision,) = on_record(broker)
    assert [one.code for one in decision.verdicts if one.answer is Answer.DENY] == ["no_budget"]


def test_a_freeze_alone_is_on_record(broker: Broker) -> None:
    govern(broker, PRETEND + "guardrails: [{name: holidays, freeze: {from: '2000-01-01', to: '9000-01-01'}}]\n")
    with pytest.raises(NotAllowed, match="nothing starts until 9000"):
        submit(broker, job(broker), by=ANN)
    (decision,) = on_record(broker)
    assert [one.name for one in decision.verdicts if one.answer is Answer.DENY] == ["holidays"]
