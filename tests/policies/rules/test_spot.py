from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.job.jobs import CheckpointPlan, Workload
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.spot import Spot
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, live, placement

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


@pytest.mark.parametrize(
    ("spot", "on_demand", "code"),
    # Eight more on demand: 8 of 16 are spot, 7 of 15 are not half.
    [(8, 0, "share_kept"), (7, 0, "too_little_spot"), (16, 8, "share_kept"), (15, 8, "too_little_spot")],
)
def test_a_share_of_what_is_rented_must_be_spot(spot: int, on_demand: int, code: str) -> None:
    running = (
        live(spot, capacity_type=CapacityType.SPOT),
        *[live(on_demand, job_id="j-2", capacity_type=CapacityType.ON_DEMAND)] * (on_demand > 0),
        live(64, job_id="j-3", capacity_type=CapacityType.OWNED),
    )

    assert rule({"min_share": "50%"}).judge(action(), Facts(NOW, running)).code == code


def test_spot_itself_and_owned_machines_are_always_within_the_share() -> None:
    half = rule({"min_share": "50%"})

    assert half.judge(action(placement=SPOT), Facts(NOW)).answer is Answer.ALLOW
    owned = action(placement=placement(capacity_type=CapacityType.OWNED))
    assert half.judge(owned, Facts(NOW)).answer is Answer.ALLOW
    assert half.judge(action(), Facts(NOW)).message == (
        "0 of 8 rented GPUs would be spot (0%); the minimum is 50%; spot would pass, or this once 8 more are spot"
    )


def test_what_runs_on_spot_may_not_go_on_where_it_is_forbidden_and_its_near_twin_may() -> None:
    forbidden = rule({"use": "forbidden"})

    assert forbidden.judge(action(ActionKind.CONTINUE, placement=SPOT), Facts(NOW)).answer is Answer.DENY
    assert forbidden.judge(action(ActionKind.CONTINUE), Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize("config", [{}, {"use": "never"}, {"use": "forbidden", "min_share": "5%"}, {"min_share": 5}])
def test_it_must_make_sense(config: object) -> None:
    with pytest.raises(ValidationError):
        rule(config)
