from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.job.jobs import CheckpointPlan, Workload
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import ActionKind, Answer, Facts, Source, SpotShare
from policies.rules.spot import Spot
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, placement

SPOT = placement(capacity_type=CapacityType.SPOT)
SAVING = job(checkpoint=CheckpointPlan(every=timedelta(minutes=10)))


def rule(config: Any, **scope: tuple[str, ...]) -> Spot:
    made: Any = Spot.Config.model_validate(config)
    return Spot("spot", made, Scope(**scope), Source("team.yaml", 3))


class TestSpot(RuleContract):
    plugin = "spot"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"use": "with_checkpoints"}, team=(TEAM,)),
            stopped=(action(placement=SPOT), Facts(NOW)),
            passed=(action(placement=SPOT, job=SAVING), Facts(NOW)),
        )


def test_spot_may_be_forbidden_for_certain_work() -> None:
    inference = action(placement=SPOT, job=job(workload=Workload.INFERENCE))
    forbidden = rule({"use": "forbidden"}, workload=("inference",))

    assert forbidden.judge(inference, Facts(NOW)).message == "spot is forbidden for inference jobs in this scope"
    assert forbidden.judge(action(placement=SPOT), Facts(NOW)).answer is Answer.ALLOW
    on_demand = action(job=job(workload=Workload.INFERENCE))
    assert forbidden.judge(on_demand, Facts(NOW)).answer is Answer.ALLOW


def share(spot: float, on_demand: float) -> Facts:
    return Facts(NOW, spot_shares={"spot": SpotShare(spot, spot + on_demand)})


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (share(0, 0), "too_few_hours"),  # the first of a fleet
        (share(0, 119), "too_few_hours"),
        (share(0, 120), "too_little_spot"),
        (share(99, 20), "too_few_hours"),
        (share(100, 20), "share_kept"),
        (share(180, 101), "too_little_spot"),
        (Facts(NOW), "no_share"),  # of a job that could not run on spot
    ],
)
def test_from_a_minimum_on_a_share_of_the_hours_must_be_spot(facts: Facts, code: str) -> None:
    """Eighty more GPU-hours on demand are asked for: eight GPUs, ten hours."""
    assert rule({"min_share": "50%"}).judge(action(), facts).code == code


def test_a_refusal_tells_the_window_and_what_would_pass() -> None:
    half = rule({"min_share": "50%", "timezone": "Asia/Tokyo", "window": "week"})
    assert half.since(NOW).isoformat() == "2026-11-15T15:00:00+00:00"
    assert half.judge(action(), share(100, 40)).message == (
        "100 of 220 GPU-hours of jobs that could run on spot in the week from 2026-11-16, including this request, "
        "would be on spot (45%); the minimum is 50%; allowed on spot, or on demand once 20 more are on spot"
    )


@pytest.mark.parametrize(
    "start",
    [
        {"placement": SPOT},
        {"placement": placement(capacity_type=CapacityType.OWNED)},
        {"placement": placement(accelerator=None, count=0)},
        {"in_place": True},
        {"kind": ActionKind.CONTINUE},
    ],
)
def test_what_starts_no_gpu_on_demand_is_within_the_share(start: dict[str, Any]) -> None:
    assert rule({"min_share": "50%"}).judge(action(**start), share(0, 500)).answer is Answer.ALLOW


def test_what_runs_on_spot_may_not_go_on_where_it_is_forbidden_and_its_near_twin_may() -> None:
    forbidden = rule({"use": "forbidden"})

    assert forbidden.judge(action(ActionKind.CONTINUE, placement=SPOT), Facts(NOW)).answer is Answer.DENY
    assert forbidden.judge(action(ActionKind.CONTINUE), Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use": "never"},
        {"use": "forbidden", "min_share": "5%"},
        {"min_share": 5},
        {"use": "forbidden", "window": "day"},
    ],
)
def test_it_must_make_sense(config: object) -> None:
    with pytest.raises(ValidationError):
        rule(config)
