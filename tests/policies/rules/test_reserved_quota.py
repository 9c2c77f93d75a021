from typing import Any

import pytest

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, LiveAttempt, Source
from policies.rules.reserved_quota import ReservedQuota
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, live, placement

RESERVED = placement(capacity_type=CapacityType.RESERVED, money=MoneyKind.AMORTISED)


def rule(scope: tuple[str, ...] = (), **config: Any) -> ReservedQuota:
    made: Any = ReservedQuota.Config.model_validate({"gpus": {TEAM: 16}} | config)
    return ReservedQuota("shares", made, Scope.model_construct(team=scope), Source("team.yaml", 3))


def used(gpus: int, **changes: Any) -> LiveAttempt:
    return live(gpus, **{"capacity_type": CapacityType.RESERVED, "money": MoneyKind.AMORTISED} | changes)


class TestReservedQuota(RuleContract):
    plugin = "reserved_quota"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule((TEAM,)),
            stopped=(action(placement=RESERVED), Facts(NOW, (used(9),))),
            passed=(action(placement=RESERVED), Facts(NOW, (used(8),))),
        )


def answer(made: ReservedQuota, *running: LiveAttempt, **asked: Any) -> Answer:
    return made.judge(action(**{"placement": RESERVED} | asked), Facts(NOW, running)).answer


def test_each_team_has_its_own_share() -> None:
    made = rule(gpus={TEAM: 8, "vision": 16})
    assert answer(made, used(16, team="vision")) is Answer.ALLOW
    assert answer(made, used(9, team="vision"), job=job(team="vision")) is Answer.DENY


def test_who_has_no_share_gets_what_others_get() -> None:
    other = job(team="search")
    assert answer(rule(), job=other) is Answer.DENY
    assert answer(rule(others=8), job=other) is Answer.ALLOW
    assert answer(rule(others=8), used(1, team=None), job=job(team=None)) is Answer.DENY


def test_what_is_rented_is_not_shared_out() -> None:
    assert answer(rule(gpus={TEAM: 1}), placement=placement()) is Answer.ALLOW
    assert answer(rule(gpus={TEAM: 8}), used(8, capacity_type=CapacityType.ON_DEMAND)) is Answer.ALLOW


def test_of_which_accelerators() -> None:
    assert answer(rule(gpus={TEAM: 1}, accelerators=["A100*"])) is Answer.ALLOW
    assert answer(rule(gpus={TEAM: 1}, accelerators=["H*"])) is Answer.DENY


def test_owned_machines_may_be_shared_out_too() -> None:
    owned = placement(capacity_type=CapacityType.OWNED, money=MoneyKind.AMORTISED)
    assert answer(rule(gpus={TEAM: 1}), placement=owned) is Answer.ALLOW
    assert answer(rule(gpus={TEAM: 1}, capacity_types=["owned"]), placement=owned) is Answer.DENY


def test_a_job_that_moves_counts_once_and_what_runs_goes_on() -> None:
    made = rule(gpus={TEAM: 8})
    assert answer(made, used(8), kind=ActionKind.RE_PLACE, job_id="j-1") is Answer.ALLOW
    assert answer(made, used(80), kind=ActionKind.CONTINUE) is Answer.ALLOW


@pytest.mark.parametrize("wrong", [{"gpus": {}}, {"gpus": {TEAM: 0}}, {"capacity_types": ["spot"]}])
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|must"):
        rule(**wrong)
