from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.job.placements import Placement
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.max_kg_co2e import Emissions, MaxKgCo2e
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement

FACTS = Facts(NOW)


def rule(limit: object, **scope: tuple[str, ...]) -> MaxKgCo2e:
    return MaxKgCo2e("green", Emissions.model_validate(limit), Scope(**scope), Source("team.yaml", 4))


def emitting(kg_per_hour: float | None, hours: float | None = 10, **changes: Any) -> Placement:
    lasts = None if hours is None else timedelta(hours=hours)
    return replace(placement(**changes), kg_co2e_per_hour=kg_per_hour, duration=lasts)


class TestMaxKgCo2e(RuleContract):
    plugin = "max_kg_co2e"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("20kg", team=(TEAM,)),
            stopped=(action(placement=emitting(2.01)), FACTS),
            passed=(action(placement=emitting(2)), FACTS),
        )


@pytest.mark.parametrize(("limit", "kg"), [(50, 50), (0.5, 0.5), ("50kg", 50), ("50 kg", 50), ("1.2t", 1200)])
def test_limits_in_kilograms_and_tonnes(limit: object, kg: float) -> None:
    assert Emissions.model_validate(limit).root == kg


@pytest.mark.parametrize("limit", [0, -1, "0kg", "50", "50g", "much", True, None, float("nan"), float("inf"), 1e12])
def test_what_is_no_limit_is_refused(limit: object) -> None:
    with pytest.raises(ValidationError, match="expected kilograms"):
        Emissions.model_validate(limit)


def test_where_the_work_is_not_known_all_the_time_that_is_paid_for_counts() -> None:
    unknown = emitting(2, hours=None)  # the action's window is ten hours

    assert rule(20).judge(action(placement=unknown), FACTS).answer is Answer.ALLOW
    assert rule(19).judge(action(placement=unknown), FACTS).answer is Answer.DENY


def test_what_has_run_already_counts() -> None:
    moved = action(ActionKind.RE_PLACE, placement=emitting(2), elapsed=timedelta(hours=3))

    assert rule(26).judge(moved, FACTS).answer is Answer.ALLOW
    assert rule(25).judge(moved, FACTS).code == "emits_too_much"


def test_a_running_job_is_stopped_at_the_limit_and_not_before() -> None:
    def running(hours: float) -> Any:
        return action(ActionKind.CONTINUE, placement=emitting(2), elapsed=timedelta(hours=hours))

    assert rule(20).judge(running(10), FACTS).answer is Answer.ALLOW
    assert rule(20).judge(running(10.1), FACTS).answer is Answer.DENY


def test_what_is_not_known_is_not_little() -> None:
    assert rule(20).judge(action(placement=emitting(None)), FACTS).code == "emissions_unknown"
    assert rule(20).judge(action(ActionKind.CONTINUE, placement=emitting(None)), FACTS).code == "not_known"


def test_machines_that_draw_no_power_pass() -> None:
    for free in (emitting(None, accelerator=None, count=0), emitting(99, money=MoneyKind.SANDBOX)):
        assert rule(1).judge(action(placement=free), FACTS).code == "no_gpus"
