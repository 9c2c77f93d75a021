from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from broker.core.values.units import zone
from policies.rules.times import WorkingHours
from policies.scope import Scope
from tests.contracts.rule_contract import TEAM, Case, RuleContract, action


def at(moment: str, timezone: str = "Europe/Berlin") -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=zone(timezone))


def rule(config: Any, **scope: tuple[str, ...]) -> WorkingHours:
    made: Any = WorkingHours.Config.model_validate(config)
    return WorkingHours("office", made, Scope(**scope), Source("team.yaml", 3))


class TestWorkingHours(RuleContract):
    plugin = "working_hours"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"from": "08:00", "to": "20:00", "timezone": "Europe/Berlin"}, team=(TEAM,)),
            stopped=(action(), Facts(at("2026-11-20 20:00"))),
            passed=(action(), Facts(at("2026-11-20 19:59"))),
        )


@pytest.mark.parametrize(
    ("config", "moment", "answer"),
    [
        ({}, "2026-11-20 08:00", Answer.ALLOW),
        ({"days": "mon-fri"}, "2026-11-18 12:00", Answer.ALLOW),
        ({"days": ["fri", "mon"]}, "2026-11-18 12:00", Answer.DENY),  # a Wednesday
        ({"days": ["sat-mon", "thu"]}, "2026-11-22 12:00", Answer.ALLOW),
        ({"days": ["sat-mon", "thu"]}, "2026-11-20 12:00", Answer.DENY),
        ({}, "2026-11-20 07:59", Answer.DENY),
        ({}, "2026-11-21 12:00", Answer.DENY),  # a Saturday
        ({"days": ["sat"]}, "2026-11-21 12:00", Answer.ALLOW),
        # Over midnight: the night of Friday ends on Saturday morning.
        ({"from": "20:00", "to": "06:00"}, "2026-11-20 23:00", Answer.ALLOW),
        ({"from": "20:00", "to": "06:00"}, "2026-11-21 05:59", Answer.ALLOW),
        ({"from": "20:00", "to": "06:00"}, "2026-11-21 23:00", Answer.DENY),
        ({"from": "20:00", "to": "06:00"}, "2026-11-23 05:59", Answer.DENY),  # the night of Sunday
        ({"from": "00:00", "to": "24:00", "days": ["sat"]}, "2026-11-21 23:59", Answer.ALLOW),
    ],
)
def test_which_hours_of_which_days(config: dict[str, Any], moment: str, answer: Answer) -> None:
    hours = rule({"from": "08:00", "to": "20:00", "timezone": "Europe/Berlin"} | config)

    for kind in (ActionKind.LAUNCH, ActionKind.CONTINUE):
        assert hours.judge(action(kind), Facts(at(moment))).answer is answer


def test_the_clock_on_the_wall_decides_also_when_it_is_changed() -> None:
    hours = rule({"from": "08:00", "to": "20:00", "timezone": "Europe/Berlin"})
    summer, winter = (datetime(2026, 10, day, 6, 30, tzinfo=UTC) for day in (23, 26))

    assert hours.judge(action(), Facts(summer)).answer is Answer.ALLOW  # half past eight
    assert hours.judge(action(), Facts(winter)).answer is Answer.DENY  # half past seven


@pytest.mark.parametrize("wrong", [{"from": "8:00"}, {"to": "25:00"}, {"timezone": "Berlin"}, {"days": []},
                                   {"days": ["monday"]}, {"to": "08:00"}])  # fmt: skip
def test_it_must_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        rule({"from": "08:00", "to": "20:00"} | wrong)
