"""What a rule saw of an action, as facts with their values."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Value
from broker.core.policy.policy import Action, ActionKind
from broker.core.values.money import Money
from tests.reconciler.settlement.test_charges import life, placement

JOB = life().job


def value(action: Action, aspect: Aspect) -> Value:
    (fact,) = read_facts(action, aspect)
    assert (fact.aspect, fact.of) == (aspect, "")
    return fact.value


def test_a_job_and_its_placement_tell_what_they_are() -> None:
    """One machine with 8 GPUs at $5 an hour."""
    action = Action(ActionKind.LAUNCH, JOB, "ann", placement=placement())
    expected = {
        Aspect.PROVIDER: "aws", Aspect.REGION: "east", Aspect.NODES: 1, Aspect.GPUS_PER_MACHINE: 8, Aspect.GPUS: 8,
        Aspect.PRICE: 5_000_000, Aspect.PRICE_PER_GPU: 625_000, Aspect.RATE: 5_000_000, Aspect.EXPECTED_HOURS: None,
        Aspect.DATA_LOCATION: JOB.data.location, Aspect.SENSITIVE_DATA: JOB.data.sensitive,
    }  # fmt: skip
    assert {aspect: value(action, aspect) for aspect in expected} == expected
    long = replace(action, placement=replace(placement(), duration=timedelta(minutes=90)))
    assert value(long, Aspect.EXPECTED_HOURS) == 1.5


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
