"""Policies that change between the judgement and its record: what was judged by the old ones is judged anew."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from broker.core.events.outcomes import JobState
from broker.reconciler.controllers.top_up import TopUp
from tests.controllers import Asking
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, running

HOUR = timedelta(hours=1)


def changing(stage: Stage, before: OpenPolicy, after: OpenPolicy, times: int = 1) -> Callable[[], OpenPolicy]:
    """The policy in force: ``before`` so many times that it is asked for, and from then on ``after``."""
    asked: list[None] = []

    def policy() -> OpenPolicy:
        asked.append(None)
        stage.policy = before if len(asked) <= times else after
        return stage.policy

    return policy


OLD, NEW = OpenPolicy(version="old"), OpenPolicy(version="new")


def test_a_place_that_only_the_old_policy_allowed_is_not_taken(stage: Stage) -> None:
    key = running(stage)
    stage.engine.take_back(key)
    stage.place.policy = changing(stage, OLD, replace(NEW, denied=frozenset({"re_place", "extend", "launch"})))
    stage.pass_time(MINUTE, times=3)
    assert stage.engine.submitted == [key]
    assert {decision.policy_version for decision in stage.decided()} <= {"new"}


def test_what_only_the_old_policy_denied_runs_on(stage: Stage) -> None:
    running(stage)
    stage.enforce._policy = changing(stage, replace(OLD, denied=frozenset({"continue"})), NEW)
    stage.pass_time(MINUTE, times=3)
    assert stage.view.attempts[0].stop_requested is None
    assert stage.view.state is JobState.RUNNING
    assert stage.decided() == []


def test_more_money_is_held_by_the_policy_in_force_then(stage: Stage) -> None:
    stage.submit(hold="5", hours=24)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(5 * MINUTE, times=58)  # at $1 an hour
    held = stage.money()[0]
    new = replace(NEW, denied=frozenset({"extend"}))
    view, now = stage.view, stage.clock.now
    for calls in (2, 1, 0):  # it changes after the judgement and before the record, or before both
        Asking(TopUp(stage.store, changing(stage, OLD, new, calls)), now)(view)
    assert stage.money()[0] == held, "only the old policy would have let it"
    assert {decision.policy_version for decision in stage.decided()} == {"new"}
