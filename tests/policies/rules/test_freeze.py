from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.times import Freeze
from policies.scope import Scope
from tests.contracts.rule_contract import TEAM, Case, RuleContract, action


def rule(config: Any, **scope: tuple[str, ...]) -> Freeze:
    made: Any = Freeze.Config.model_validate(config)
    return Freeze("new-year", made, Scope(**scope), Source("team.yaml", 3))


class TestFreeze(RuleContract):
    plugin = "freeze"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"from": "2026-12-24", "to": "2027-01-02T06:00", "timezone": "Europe/Berlin"}, team=(TEAM,)),
            stopped=(action(), Facts(datetime(2026, 12, 23, 23, 0, tzinfo=UTC))),
            passed=(action(), Facts(datetime(2026, 12, 23, 22, 59, tzinfo=UTC))),
        )


HOLIDAYS = {"from": "2026-12-24", "to": "2027-01-02T06:00", "timezone": "Europe/Berlin"}
WITHIN = Facts(datetime(2026, 12, 31, tzinfo=UTC))


def test_it_ends_on_the_minute() -> None:
    for minute, answer in ((59, Answer.DENY), (60, Answer.ALLOW)):
        now = datetime(2027, 1, 2, 4, 0, tzinfo=UTC) + timedelta(minutes=minute)
        assert rule(HOLIDAYS).judge(action(), Facts(now)).answer is answer


@pytest.mark.parametrize("first", ["2026-12-24", "2027-01-02"])
def test_a_day_that_it_lasts_to_is_included(first: str) -> None:
    frozen = rule({"from": first, "to": "2027-01-02", "timezone": "Europe/Berlin"})
    for second, answer in ((-1, Answer.DENY), (0, Answer.ALLOW)):
        now = datetime(2027, 1, 2, 23, tzinfo=UTC) + timedelta(seconds=second)
        assert frozen.judge(action(), Facts(now)).answer is answer


def test_what_runs_goes_on_unless_it_is_to_stop() -> None:
    running = action(ActionKind.CONTINUE)

    assert rule(HOLIDAYS).judge(running, WITHIN).answer is Answer.ALLOW
    assert rule(HOLIDAYS | {"running": "stop"}).judge(running, WITHIN).answer is Answer.DENY
    for kind in (ActionKind.RE_PLACE, ActionKind.EXTEND):
        assert rule(HOLIDAYS).judge(action(kind), WITHIN).answer is Answer.DENY


def test_what_may_go_on_gets_the_money_for_it_and_higher_limits_wait() -> None:
    topped_up = action(ActionKind.EXTEND, in_place=True)

    assert rule(HOLIDAYS).judge(topped_up, WITHIN).answer is Answer.ALLOW
    assert rule(HOLIDAYS | {"running": "stop"}).judge(topped_up, WITHIN).answer is Answer.DENY
    assert rule(HOLIDAYS).judge(action(ActionKind.EXTEND), WITHIN).answer is Answer.DENY


@pytest.mark.parametrize(
    "wrong", [{"to": "2026-12-23"}, {"to": "2026-12-24T00:00"}, {"from": "24.12."}, {"running": "maybe"}]
)
def test_it_must_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        rule(HOLIDAYS | wrong)
