from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.facts import Aspect, covers
from broker.core.policy.policy import ActionKind, Answer, CapacityInHand, Facts, Source
from broker.core.values.money import Money
from policies.rules.renting import Renting
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, placement


def rule(config: Any, **scope: tuple[str, ...]) -> Renting:
    made: Any = Renting.Config.model_validate(config)
    return Renting("own-first", made, Scope(**scope), Source("team.yaml", 3))


def held(used: float, price: str = "1.60") -> Facts:
    """Sixteen H100, of the last 7 days at work for that share. The placement rents H100 at $4 each."""
    return Facts(NOW, in_hand={"H100": CapacityInHand(16, used, Money.usd(price))})


class TestRenting(RuleContract):
    plugin = "renting"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"utilisation": "70%"}, team=(TEAM,)), stopped=(action(), held(0.699)), passed=(action(), held(0.7))
        )


@pytest.mark.parametrize(
    ("config", "facts", "code"),
    [
        ({"utilisation": "70%"}, held(0.69), "held_capacity_unused"),
        ({"utilisation": "70%"}, Facts(NOW), "may_rent"),  # nothing is held
        ({"break_even": "40%"}, held(1.0), "holding_pays"),  # 1.60 / 4.00
        ({"break_even": "39.9%"}, held(1.0), "may_rent"),
        ({"break_even": "40%"}, held(1.0, "0"), "may_rent"),  # what it costs is not on record
        ({"horizon": "10h"}, Facts(NOW), "may_rent"),
        ({"horizon": "9h59m"}, Facts(NOW), "beyond_horizon"),
        ({"utilisation": "70%", "horizon": "1h"}, held(0.2), "held_capacity_unused"),
    ],
)
def test_each_threshold_stops_by_itself(config: Any, facts: Facts, code: str) -> None:
    assert rule(config).judge(action(), facts).code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": placement(capacity_type=CapacityType.OWNED)},
        {"placement": placement(capacity_type=CapacityType.RESERVED)},
        {"placement": placement(money=MoneyKind.SANDBOX)},
        {"placement": placement(accelerator=None, count=0)},
        {"placement": None},
        {"in_place": True},
    ],
)
def test_what_rents_no_gpu_is_left_alone(changes: dict[str, Any]) -> None:
    assert rule({"utilisation": "70%"}).judge(action(**changes), held(0.1)).answer is Answer.ALLOW


def test_a_running_job_stays_and_a_move_is_a_start() -> None:
    strict = rule({"utilisation": "70%"})
    assert strict.judge(action(ActionKind.CONTINUE), held(0.1)).answer is Answer.ALLOW
    assert strict.judge(action(ActionKind.RE_PLACE), held(0.1)).answer is Answer.DENY


def test_a_single_placement_is_judged_by_the_jobs_own_limit() -> None:
    """So a plan prefers capacity that is held, before any money is asked for."""
    judged = rule({"horizon": "1h"}).judge(action(window=None, job=job(max_duration=timedelta(hours=2))), Facts(NOW))
    assert judged.code == "beyond_horizon"
    assert rule({"horizon": "1h"}).judge(action(window=None), Facts(NOW)).code == "may_rent"


def test_the_messages_have_the_arithmetic_and_what_would_pass() -> None:
    assert rule({"utilisation": "70%"}).judge(action(), held(0.412)).message == (
        "the 16 held H100 were used 41.2% of the last 7 days; renting starts at 70%; use those:"
        " `constraints: {capacity_types: [owned, reserved]}`"
    )
    assert rule({"break_even": "50%"}).judge(action(), held(1.0)).message == (
        "at $4.00 per GPU-hour, holding H100 at $1.60 pays from 40.0% of the hours on; renting is denied where that is"
        " 50% or less: the price must be below $3.20"
    )
    cheaper = action(placement=placement("25.59"))
    assert rule({"break_even": "50%"}).judge(cheaper, held(1.0)).answer is Answer.ALLOW
    assert rule({"horizon": "8h"}).judge(action(), Facts(NOW)).message == (
        "the job may run for 10h, and GPUs are rented for at most 8h; set a lower max_duration in the job file, or hold"
        " capacity: `gpubroker capacity plan`"
    )


def test_an_approval_covers_what_was_seen_and_nothing_worse() -> None:
    strict = rule({"utilisation": "70%", "break_even": "40%"})
    seen = strict.looks_at(action(), held(0.4))
    assert {fact.aspect for fact in seen} == {
        Aspect.CAPACITY_TYPE, Aspect.ACCELERATOR, Aspect.HELD_USE, Aspect.PRICE_PER_GPU
    }  # fmt: skip
    assert covers(seen, strict.looks_at(action(), held(0.5)))
    assert not covers(seen, strict.looks_at(action(), held(0.3)))


def test_a_rule_without_thresholds_is_refused() -> None:
    with pytest.raises(ValidationError, match="is empty; expected `utilisation`"):
        rule({})


def test_only_what_it_needs_is_read() -> None:
    assert rule({"break_even": "40%"}).needs_holdings
    assert not rule({"horizon": "9h"}).needs_holdings
