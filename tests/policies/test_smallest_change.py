"""A refusal says what would pass, for every rule: the named change passes, and a step less does not.

Figures are drawn; each case makes the denied request, reads the verdict's figures, and makes the request and facts with
that change, and with a step less.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from broker.core.market.offers import CapacityType
from broker.core.policy.policy import (
    ActionKind,
    Answer,
    CapacityInHand,
    Facts,
    Source,
    SpotShare,
)
from broker.core.values.money import Money
from broker.core.values.units import parse_duration
from policies.rules import RULES
from policies.rules.always import Membership, Roster
from tests.contracts.rule_contract import action, job, live, placement
from tests.policies.refusals import (
    MICRO,
    MINUTE,
    Asked,
    Refusal,
    asking,
    asking_for,
    everything_else,
    facts,
    money,
    spent,
    with_offer,
)


@given(limit=st.integers(1, 64), running=st.integers(0, 64), nodes=st.integers(1, 9))
def test_gpus_at_once(limit: int, running: int, nodes: int) -> None:
    gpus = 8 * nodes
    assume(running + gpus > limit)
    assume(running <= limit)
    beside = facts(live=(live(running),) if running else ())

    def asked(count: int) -> Asked:
        return action(placement=placement(count=count)), beside

    def fewer(figures: dict[str, str], words: str) -> Asked:
        free = int(figures["free"])
        if free:
            assert f"{free} allowed now" in words
            return asked(free)
        left = running - gpus if gpus <= limit else 0
        return action(placement=placement(count=min(gpus, limit))), facts(live=(live(left),) if left > 0 else ())

    Refusal(
        "max_concurrent_gpus", limit, asked(gpus), fewer,
        lambda figures, _: asked(int(figures["free"]) + 1),
    ).check()  # fmt: skip
    Refusal(
        "reserved_quota", {"gpus": {"nlp": limit}},
        (action(placement=placement(count=gpus, capacity_type=CapacityType.RESERVED)),
         facts(live=(live(running, capacity_type=CapacityType.RESERVED),) if running else ())),
        lambda figures, _: (
            action(placement=placement(count=max(limit - running, 0) or min(gpus, limit),
                                       capacity_type=CapacityType.RESERVED)),
            facts(live=(live(running, capacity_type=CapacityType.RESERVED),) if limit > running > 0 else ()),
        ),
    ).check()  # fmt: skip


@given(limit=st.integers(1, 20), more=st.integers(0, 20))
def test_jobs_at_once(limit: int, more: int) -> None:
    running = limit + more

    def beside(count: int) -> Asked:
        return action(), facts(live=tuple(live(1, job_id=f"j-{number}") for number in range(count)))

    def ended(figures: dict[str, str], _: str) -> Asked:
        return beside(running - int(figures["must_end"]))

    def one_less(figures: dict[str, str], _: str) -> Asked:
        return beside(running - int(figures["must_end"]) + 1)

    Refusal("max_concurrent_jobs", limit, beside(running), ended, one_less).check()


@example(spot=0, other=248, least=99.9)  # 327,672 hours of spot, exactly the minimum, whatever floats make of it
@given(spot=st.integers(0, 400), other=st.integers(0, 400), least=st.sampled_from([1, 12.5, 33.3, 50, 66, 90, 99.9]))
def test_share_of_spot(spot: int, other: int, least: float) -> None:
    def beside(more: float) -> Asked:
        return action(), facts(spot_shares={"rule": SpotShare(spot + more, spot + more + other)})

    assume(100 * spot < least * (spot + other + 80))  # 8 GPUs for 10 hours
    config = {"min_share": f"{least:g}%", "min_gpu_hours": 0}
    Refusal(
        "spot", config, beside(0),
        lambda figures, words: beside(float(figures["more_spot_gpu_hours"])),
        lambda figures, _: beside(float(figures["more_spot_gpu_hours"]) - 0.2),
    ).check()  # fmt: skip
    on_spot = action(placement=placement(capacity_type=CapacityType.SPOT))
    Refusal("spot", config, beside(0), lambda *_: (on_spot, facts())).check()


@given(limit=st.floats(0.01, 1e6), rate=st.floats(1e-3, 1e3), minutes=st.integers(1, 10**6), gone=st.integers(0, 600))
@example(limit=1.96, rate=9.8, minutes=13, gone=0)  # 12 minutes emit the limit and the last digit of a float
def test_emissions(limit: float, rate: float, minutes: int, gone: int) -> None:
    limit = float(f"{limit:.6g}")

    def emitting(time: timedelta, kg: float) -> Asked:
        placed = replace(placement(), kg_co2e_per_hour=kg, duration=time)
        return action(placement=placed, elapsed=gone * MINUTE), facts()

    assume(rate * (minutes + gone) / 60 > limit)
    denied = emitting(minutes * MINUTE, rate)
    config = f"{limit:.9f}".rstrip("0").rstrip(".") + "kg"
    Refusal(
        "max_kg_co2e", config, denied, lambda figures, _: emitting(minutes * MINUTE, float(figures["kg_per_hour"])),
        lambda figures, _: emitting(minutes * MINUTE, float(figures["kg_per_hour"]) * 1.002),
    ).check()  # fmt: skip
    if timedelta(hours=limit / rate) - gone * MINUTE >= 2 * MINUTE:
        Refusal(
            "max_kg_co2e", config, denied, lambda figures, _: emitting(parse_duration(figures["longest"]), rate),
            lambda figures, _: emitting(parse_duration(figures["longest"]) + MINUTE + timedelta(seconds=1), rate),
        ).check()  # fmt: skip


@given(st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 20)), st.integers(0, 23), st.integers(1, 23))
def test_hours_of_the_day(at: datetime, begins: int, length: int) -> None:
    now = at.replace(tzinfo=UTC)
    config = {"from": f"{begins:02d}:00", "to": f"{(begins + length) % 24:02d}:00", "timezone": "Asia/Tokyo"}
    kind = RULES["working_hours"].Config.model_validate(config)
    assume(not kind.contain(now))

    def then(figures: dict[str, str], early: timedelta = timedelta(0)) -> Asked:
        return action(), Facts(datetime.fromisoformat(figures["opens"]) - early)

    Refusal(
        "working_hours", config, (action(), Facts(now)), lambda figures, _: then(figures),
        lambda figures, _: then(figures, timedelta(microseconds=1)),
    ).check()  # fmt: skip


@given(amount=st.integers(1, 10**9), used=st.integers(0, 10**9), held=st.integers(0, 10**8), over=st.integers(1, 10**9))
def test_budgets(amount: int, used: int, held: int, over: int) -> None:
    limit, state = Money(amount * 10_000), spent(Money(used * 10_000), Money(held))
    room = limit - Money(used * 10_000) - Money(held)
    assume(room > Money.ZERO)
    Refusal(
        "budget", {"amount": f"${limit.dollars}", "period": "month"}, (asking(room + Money(over)), state),
        lambda figures, words: (asking(money(figures["left"])), state),
        lambda figures, words: (asking(money(figures["left"]) + MICRO), state),
    ).check()  # fmt: skip


LIMITS: dict[str, tuple[str, ActionKind, Callable[[str], Any]]] = {
    "max_job_cost": ("limit", ActionKind.LAUNCH, lambda amount: amount),
    "approve_above": (
        "threshold", ActionKind.LAUNCH, lambda amount: {"cost": amount, "approvers": ["bob"], "expires": "1h"},
    ),
    "purchases": (
        "limit", ActionKind.RESERVE, lambda amount: {"max_commitment": amount, "approvers": ["bob"], "expires": "1h"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", LIMITS)
@given(limit=st.integers(1, 10**7), over=st.integers(1, 10**9))
def test_money_of_a_job(rule: str, limit: int, over: int) -> None:
    cents, (figure, kind, config) = Money(limit * 10_000), LIMITS[rule]
    Refusal(
        rule, config(f"${cents.dollars}"), (asking(cents + Money(over), kind=kind), facts()),
        lambda figures, _: (asking(money(figures[figure]), kind=kind), facts()),
        None if rule == "purchases" else lambda figures, _: (asking(money(figures[figure]) + MICRO), facts()),
    ).check()  # fmt: skip


@given(minutes=st.integers(1, 10**6), over=st.integers(1, 10**6))
def test_time_of_a_job(minutes: int, over: int) -> None:
    denied = asking_for(minutes * MINUTE + timedelta(seconds=over)), facts()
    asks = {"duration": f"{minutes}m", "approvers": ["bob"], "expires": "1h"}
    for rule, config, figure in (("max_job_duration", f"{minutes}m", "limit"), ("approve_above", asks, "threshold")):

        def passes(figures: dict[str, str], _: str, figure: str = figure) -> Asked:
            return asking_for(parse_duration(figures[figure])), facts()

        def less(figures: dict[str, str], _: str, figure: str = figure) -> Asked:
            return asking_for(parse_duration(figures[figure]) + timedelta(seconds=1)), facts()

        Refusal(rule, config, denied, passes, less).check()


@given(price=st.integers(1, 10**9), most=st.integers(1, 99))
def test_prices_of_renting_and_of_gpu_hours(price: int, most: int) -> None:
    limit = Money(price * 10_000)
    Refusal(
        "max_price_per_gpu_hour", {"H100": f"${limit.dollars}"},
        (with_offer(price=str((limit * 8 + MICRO).dollars)), facts()),
        lambda figures, _: (with_offer(price=str((money(figures["limit"]) * 8).dollars)), facts()),
        lambda figures, _: (with_offer(price=str((money(figures["limit"]) * 8 + MICRO).dollars)), facts()),
    ).check()  # fmt: skip
    held = facts(in_hand={"H100": CapacityInHand(8, 1.0, Money(price * 1_000))})
    config = {"break_even": f"{most}%"}

    def renting(each: Money) -> Asked:
        return with_offer(price=str((each * 8).dollars)), held

    dear = Money(price * 1_000 * 100 // most + 10)
    Refusal(
        "renting", config, renting(dear), lambda figures, _: renting(money(figures["below"]) - MICRO),
        lambda figures, _: renting(money(figures["below"]) + MICRO),
    ).check()  # fmt: skip


@pytest.mark.parametrize("refusal", list(everything_else()), ids=lambda one: one.rule)
def test_names_times_and_words(refusal: Refusal) -> None:
    refusal.check()


def test_a_team_that_one_is_in_passes() -> None:
    rosters = (Roster("nlp", ("bob",), Source("a.yaml", 1)), Roster("web", ("ann",), Source("a.yaml", 2)))
    said = Membership(rosters).judge(action(), facts())
    assert said.answer is Answer.DENY
    assert "but of web: name that" in said.message
    assert Membership(rosters).judge(action(job=job(team="web")), facts()).answer is Answer.ALLOW


def test_every_rule_is_here() -> None:
    drawn = {
        "budget", "max_concurrent_gpus", "max_concurrent_jobs", "reserved_quota", "max_kg_co2e", "working_hours",
        "max_job_cost", "max_job_duration", "max_price_per_gpu_hour",
    }  # fmt: skip
    assert drawn | {one.rule for one in everything_else()} == set(RULES)
