"""What follows attempts that came to nothing: waits that double, other pools, and pauses with what is known."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause
from broker.core.events.wait_reasons import (
    LaunchesFailed,
    MaxDurationUsed,
    MoneyEnded,
    RulesDeny,
)
from broker.core.job.jobs import Job, Retry
from broker.reconciler import decide
from tests.reconciler.test_decide import GONE, NOW, OFFER, PLACEMENT, UP, ended, life, only, request


@pytest.mark.parametrize(("failed", "seconds"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 300), (30, 300), (5000, 300)])
def test_waits_double_up_to_five_minutes(failed: int, seconds: int) -> None:
    view = life(request(), ended(Cause.REQUEST_EXPIRED))
    (one,) = view.attempts
    many = tuple(replace(one, number=number) for number in range(1, failed + 1))
    step = only(replace(view, attempts=many), after=timedelta(minutes=2))
    assert isinstance(step, decide.Wait)
    assert step.until == NOW + timedelta(minutes=2, seconds=seconds)


@pytest.mark.parametrize("cause", [Cause.AGENT_DIED, Cause.MACHINE_LOST, Cause.FENCED])
def test_a_dead_attempt_is_retried_after_a_wait_unless_it_saved_a_checkpoint(cause: Cause) -> None:
    gone = ev.MachineGone(gone_at=NOW + timedelta(minutes=6))
    view = life(*UP, ended(cause), gone)
    assert isinstance(only(view, after=timedelta(minutes=6)), decide.Wait)
    saved = CheckpointSaved(checkpoint="c-1", step=10)
    assert isinstance(only(life(*UP, saved, ended(cause), gone), after=timedelta(minutes=7)), decide.Place)


def test_an_attempt_preempted_after_it_ran_is_retried_at_once_without_a_checkpoint() -> None:
    """The provider took it; its program is not to blame."""
    assert isinstance(only(life(*UP, ended(Cause.PREEMPTED), GONE), after=timedelta(minutes=6)), decide.Place)


def test_an_attempt_preempted_before_its_machine_was_up_is_retried_after_a_wait() -> None:
    view = life(request(), ev.Launched(handle="h"), ended(Cause.PREEMPTED), ev.MachineGone(gone_at=NOW))
    assert isinstance(only(view, after=timedelta(minutes=3)), decide.Wait)


def test_an_attempt_preempted_after_seconds_of_work_is_retried_at_once() -> None:
    up = ev.MachineUp(since=NOW + timedelta(minutes=5, seconds=30))
    gone = ev.MachineGone(gone_at=NOW + timedelta(minutes=6))
    view = life(request(), ev.Launched(handle="h"), up, Claimed(), CommandStarted(), ended(Cause.PREEMPTED), gone)
    assert isinstance(only(view, after=timedelta(minutes=7)), decide.Place)


def test_a_launch_that_failed_is_not_excused_by_the_time_its_machine_lasted() -> None:
    up = ev.MachineUp(since=NOW)
    view = life(request(), ev.Launched(handle="h"), up, ended(Cause.AGENT_DIED), ev.MachineGone(gone_at=NOW))
    assert isinstance(only(view, after=timedelta(minutes=4)), decide.Wait)


def elsewhere(number: int) -> ev.LaunchRequested:
    """On another pool."""
    offer = replace(OFFER, zone=f"east-{number}")
    return ev.LaunchRequested(key=f"j-1-{number}", engine="sandbox", placement=replace(PLACEMENT, offer=offer))


def failed(cause: Cause, evidence: str = "") -> tuple[EventBody, ...]:
    """A machine of the latest attempt was there, and no agent spoke before the attempt ended with that cause."""
    return (
        ev.Launched(handle="h"), ev.MachineUp(since=NOW), ev.AttemptEnded(cause=cause, evidence=evidence), GONE,
    )  # fmt: skip


def test_launches_that_fail_pause_the_job_with_what_is_known_of_them() -> None:
    job = Job(name="j", run="x", retry=Retry(launches=2))
    once = (request(), *failed(Cause.LAUNCH_FAILED, "no driver"))
    assert isinstance(only(life(*once, job=job)), decide.Place), "one more may fail"
    full = (elsewhere(2), ev.Launched(handle="h"), ended(Cause.NO_CAPACITY), GONE)
    twice = life(*once, *full, elsewhere(3), *failed(Cause.AGENT_DIED, "no agent"), job=job)
    assert only(twice) == decide.Pause(
        LaunchesFailed(
            count=2,
            pools={request().placement.offer.pool: 1, elsewhere(3).placement.offer.pool: 1},
            attempt=3,
            cause=Cause.AGENT_DIED,
            evidence="no agent",
        )
    ), "what had no capacity is no failed launch"


def test_a_job_that_has_had_its_time_is_paused_with_its_limit() -> None:
    view = life(*UP, ended(Cause.PREEMPTED), GONE, max_hours=1.5)
    assert only(view, billed=timedelta(hours=1.5)) == decide.Pause(MaxDurationUsed(limit_seconds=5400))


def test_a_machine_taken_back_after_more_money_was_refused_is_no_reason_to_pause() -> None:
    stop = ev.StopRequested(cause=Cause.MONEY_REFUSED, reason=RulesDeny(objections=()))
    assert isinstance(only(life(*UP, stop, ended(Cause.PREEMPTED), GONE)), decide.Place)
    assert only(life(*UP, stop, ended(Cause.PAID_UNTIL), GONE)) == decide.Pause(
        MoneyEnded(stop=RulesDeny(objections=()))
    )


def test_after_a_launch_that_failed_although_its_agent_spoke_the_failures_before_it_count() -> None:
    """Its pool does not rest: it worked. So the attempt before, which came to nothing, makes the next one wait 2 s."""
    died = (request(), ev.Launched(handle="h"), ev.MachineUp(since=NOW), ended(Cause.AGENT_DIED), GONE)
    spoke = (elsewhere(2), ev.Launched(handle="h"), ev.MachineUp(since=NOW), Claimed(), ended(Cause.LAUNCH_FAILED))
    view = life(*died, *spoke, GONE)
    last = view.attempts[1].ended_at
    assert last is not None
    waits = only(view, after=last - NOW)
    assert isinstance(waits, decide.Wait)
    assert waits.until == last + timedelta(seconds=2)
    silent = life(*died, *(body for body in spoke if not isinstance(body, Claimed)), GONE)
    assert isinstance(only(silent, after=last - NOW), decide.Place), "another pool may work at once"


def test_attempts_of_which_only_the_number_is_kept_count_where_all_came_to_nothing() -> None:
    """Three are kept, three are not: 2**6 seconds."""
    body = (ev.Launched(handle="h"), ev.MachineUp(since=NOW), ended(Cause.AGENT_DIED), GONE)
    view = life(request(), *body, request(2), *body, request(3), *body)
    last = view.attempts[2].ended_at
    assert last is not None
    for known, seconds in ((view, 8), (replace(view, folded=3), 64)):
        waits = only(known, after=last - NOW)
        assert isinstance(waits, decide.Wait)
        assert waits.until == last + timedelta(seconds=seconds)
