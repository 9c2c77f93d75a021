from datetime import timedelta
from typing import Any

import pytest

from broker.core.policy.policy import ActionKind, Answer, Facts, IdleLimit, Source, Usage
from broker.core.ports import LimitsIdleness
from policies.rules.running import IdleShutdown
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action

IDLE = ((31, 0.0), (10, 3.0), (1, 0.0))


def seen(*looks: tuple[float, float]) -> tuple[Usage, ...]:
    """Looks so many minutes ago, and how busy the accelerators were, in percent."""
    return tuple(Usage(NOW - timedelta(minutes=minutes), percent) for minutes, percent in looks)


def rule(config: Any, **scope: tuple[str, ...]) -> IdleShutdown:
    made: Any = IdleShutdown.Config.model_validate(config)
    return IdleShutdown("idle", made, Scope(**scope), Source("team.yaml", 3))


class TestIdleShutdown(RuleContract):
    plugin = "idle_shutdown"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"below": "5%", "for": "30m"}, team=(TEAM,)),
            stopped=(action(ActionKind.CONTINUE, usage=seen(*IDLE)), Facts(NOW)),
            passed=(action(ActionKind.CONTINUE, usage=seen(*IDLE[:-1], (1, 5.0))), Facts(NOW)),
        )


def test_a_launch_is_not_idle() -> None:
    assert rule({"below": "5%", "for": "30m"}).judge(action(usage=seen(*IDLE)), Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize(
    ("looks", "code"),
    [
        ((), "not_long_enough"),  # nobody looked
        (((29, 0.0), (1, 0.0)), "not_long_enough"),  # not for that long
        (((60, 0.0),), "not_long_enough"),  # not lately
        (((31, 90.0), (1, 0.0)), "busy"),  # it was busy when the half hour began
        (((50, 90.0), (31, 0.0), (15, 0.0), (1, 4.9)), "idle"),
    ],
)
def test_it_must_have_been_seen_idle_all_the_time(looks: tuple[tuple[float, float], ...], code: str) -> None:
    running = action(ActionKind.CONTINUE, usage=seen(*looks))

    assert rule({"below": "5%", "for": "30m"}).judge(running, Facts(NOW)).code == code


def test_what_a_node_needs_to_hold_the_rule_itself_is_told_in_the_words_of_the_rule() -> None:
    half_an_hour = rule({"below": "5%", "for": "30m"}, team=(TEAM,))
    assert isinstance(half_an_hour, LimitsIdleness)
    running = action(ActionKind.CONTINUE, usage=seen(*IDLE))
    limit = half_an_hour.idle_limit(running)
    assert limit == IdleLimit(5.0, timedelta(minutes=30), "for 30m; the limit is 5% (team.yaml:3)")
    assert half_an_hour.judge(running, Facts(NOW)).message == (
        "accelerator utilization was at most 3% for 30m; the limit is 5%"
    )
    assert rule({"below": "5%", "for": "30m"}, team=("others",)).idle_limit(running) is None
