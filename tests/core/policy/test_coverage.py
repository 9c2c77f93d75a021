"""What a rule saw of an action, as facts with their values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.policy.coverage import known_of, seen
from broker.core.policy.facts import Aspect, Value
from broker.core.policy.policy import Action, ActionKind
from broker.core.values.money import Money
from tests.reconciler.settlement.test_charges import life, placement

JOB = life().job


def value(action: Action, aspect: Aspect) -> Value:
    (fact,) = seen(action, aspect)
    assert (fact.aspect, fact.of) == (aspect, "")
    return fact.value


def test_a_job_and_its_placement_tell_what_they_are() -> None:
    """One machine with 8 GPUs at $5 an hour."""
    facts = {fact.aspect: fact.value for fact in known_of(JOB, placement())}
    assert (facts[Aspect.PROVIDER], facts[Aspect.REGION], facts[Aspect.NODES]) == ("aws", "east", 1)
    assert (facts[Aspect.GPUS_PER_MACHINE], facts[Aspect.GPUS], facts[Aspect.PRICE]) == (8, 8, 5_000_000)
    assert (facts[Aspect.PRICE_PER_GPU], facts[Aspect.RATE]) == (625_000, 5_000_000)
    assert (facts[Aspect.DATA_LOCATION], facts[Aspect.SENSITIVE_DATA]) == (JOB.data.location, JOB.data.sensitive)
    assert Aspect.ATTEMPTS not in facts
    assert facts[Aspect.EXPECTED_HOURS] is None
    long = replace(placement(), duration=timedelta(minutes=90))
    assert {one.aspect: one.value for one in known_of(JOB, long)}[Aspect.EXPECTED_HOURS] == 1.5


@pytest.mark.parametrize(("price", "count"), [(None, 8), (Money.usd(5), 0), (None, 0)])
def test_without_a_price_or_a_gpu_there_is_no_price_per_gpu(price: Money | None, count: int) -> None:
    there = placement()
    action = Action(
        ActionKind.LAUNCH, JOB, "ann", placement=replace(there, offer=replace(there.offer, price=price, count=count))
    )
    assert value(action, Aspect.PRICE_PER_GPU) is None


def test_without_a_placement_its_facts_are_not_known() -> None:
    action = Action(ActionKind.LAUNCH, JOB, "ann")
    assert value(action, Aspect.PROVIDER) is None
    assert value(action, Aspect.RATE) is None
    assert value(action, Aspect.SENSITIVE_DATA) is JOB.data.sensitive


@pytest.mark.parametrize(("kind", "expected"), [(ActionKind.LAUNCH, 3), (ActionKind.CONTINUE, 2)])
def test_a_start_counts_itself_and_what_runs_does_not(kind: ActionKind, expected: int) -> None:
    assert value(Action(kind, JOB, "ann", attempts=2, placement=placement()), Aspect.ATTEMPTS) == expected


def test_more_money_for_what_runs_is_no_start() -> None:
    action = Action(ActionKind.EXTEND, JOB, "ann", attempts=2, placement=placement())
    assert value(action, Aspect.ATTEMPTS) == 3
    assert value(replace(action, in_place=True), Aspect.ATTEMPTS) == 2


def test_a_price_that_nobody_knows_is_no_fact() -> None:
    there = placement()
    nowhere = replace(there, offer=replace(there.offer, price=None))
    assert value(Action(ActionKind.LAUNCH, JOB, "ann", placement=nowhere), Aspect.PRICE) is None
