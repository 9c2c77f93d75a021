"""Which facts an approval of others covers."""

import pytest

from broker.core.policy.facts import Aspect, Fact, Value, covers

HIGHER_IS_WORSE = {
    Aspect.GPUS_PER_MACHINE, Aspect.NODES, Aspect.GPUS, Aspect.PRICE, Aspect.PRICE_PER_GPU, Aspect.RATE,
    Aspect.EXPECTED_COST, Aspect.EXPECTED_HOURS, Aspect.INTERRUPTIONS, Aspect.ATTEMPTS, Aspect.EMISSIONS,
    Aspect.GPUS_AT_ONCE, Aspect.JOBS_AT_ONCE, Aspect.BUDGET, Aspect.ENDS_BY,
}  # fmt: skip
LOWER_IS_WORSE = {Aspect.PRICE_DATE, Aspect.SPOT_SHARE, Aspect.HELD_USE}


def fact(aspect: Aspect, value: Value, of: str = "") -> Fact:
    return Fact(aspect=aspect, value=value, of=of)


@pytest.mark.parametrize("aspect", Aspect)
def test_figures_may_get_better_and_everything_else_must_stay(aspect: Aspect) -> None:
    less, more = (covers([fact(aspect, 5)], [fact(aspect, value)]) for value in (4, 6))
    assert covers([fact(aspect, 5)], [fact(aspect, 5)])
    assert less is (aspect in HIGHER_IS_WORSE)
    assert more is (aspect in LOWER_IS_WORSE)


@pytest.mark.parametrize(
    ("approved", "now", "covered"),
    [(None, 5, False), (5, None, False), (None, None, True), ("a", "b", False), ("a", "a", True), (2.5, 2, True)],
)
def test_what_is_not_known_is_not_covered_by_what_is(approved: Value, now: Value, covered: bool) -> None:
    assert covers([fact(Aspect.PRICE, approved)], [fact(Aspect.PRICE, now)]) is covered


def test_each_fact_must_have_been_approved() -> None:
    price, place = fact(Aspect.PRICE, 5), fact(Aspect.REGION, "east")
    assert covers([price, place], [price, place])
    assert covers([price, place], [place])
    assert covers([], [])
    assert not covers([price], [price, place])
    assert not covers([price, place], [price, fact(Aspect.REGION, "west")])


def test_facts_of_one_aspect_are_told_apart() -> None:
    december = fact(Aspect.BUDGET, 100, "2026-12")
    assert covers([fact(Aspect.BUDGET, 50, "2026-11"), december], [fact(Aspect.BUDGET, 90, "2026-12")])
    assert not covers([december], [fact(Aspect.BUDGET, 90, "2026-11")])
    assert fact(Aspect.PRICE, 1).of == ""


def test_stores_go_on_to_hold_the_same_words() -> None:
    assert {aspect.name.lower() for aspect in Aspect} == {aspect.value for aspect in Aspect}


def test_a_fact_that_is_stored_without_saying_which_is_the_only_one_of_its_aspect() -> None:
    assert Fact.model_validate({"aspect": "price", "value": 5}) == Fact(aspect=Aspect.PRICE, value=5, of="")
