from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from broker.core.policy.policy import ActionKind, Facts, Source
from policies.rules.running import RunawayLimit
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action


def rule(config: Any, **scope: tuple[str, ...]) -> RunawayLimit:
    made: Any = RunawayLimit.Config.model_validate(config)
    return RunawayLimit("experiments", made, Scope(**scope), Source("team.yaml", 3))


class TestRunawayLimit(RuleContract):
    plugin = "runaway"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"max_age": "48h"}, team=(TEAM,)),
            stopped=(action(window=(NOW, NOW + timedelta(hours=48, seconds=1))), Facts(NOW)),
            passed=(action(window=(NOW, NOW + timedelta(hours=48))), Facts(NOW)),
        )


def test_waiting_and_interruptions_are_part_of_the_age() -> None:
    def code(kind: ActionKind, hours: float) -> str:
        old = action(kind, submitted_at=NOW - timedelta(hours=hours), elapsed=timedelta(hours=1))
        return rule({"max_age": "48h"}).judge(old, Facts(NOW)).code

    for kind in (ActionKind.RE_PLACE, ActionKind.CONTINUE, ActionKind.EXTEND):
        assert (code(kind, 47.9), code(kind, 48)) == ("within_limit", "runs_away")


def test_so_many_attempts_and_no_more() -> None:
    def code(attempts: int, kind: ActionKind = ActionKind.RE_PLACE) -> str:
        return rule({"max_attempts": 3}).judge(action(kind, attempts=attempts, submitted_at=NOW), Facts(NOW)).code

    assert (code(2), code(3), code(3, ActionKind.CONTINUE)) == ("within_limit", "too_many_attempts", "within_limit")


def test_it_must_say_something() -> None:
    with pytest.raises(ValidationError, match="is empty"):
        rule({})


def test_more_for_what_runs_starts_nothing_and_a_start_that_needs_more_money_is_a_start() -> None:
    def code(**how: bool) -> str:
        third = action(ActionKind.EXTEND, attempts=3, submitted_at=NOW, **how)
        return rule({"max_attempts": 3}).judge(third, Facts(NOW)).code

    assert code(by_owner=True) == "within_limit", "`jobs extend`"
    assert code(in_place=True) == "within_limit", "its money is topped up"
    assert code() == "too_many_attempts", "a next attempt, dearer than what is held"
