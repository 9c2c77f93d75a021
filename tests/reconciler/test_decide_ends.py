"""What follows the end of an attempt and of a job: retries, closing, approvals that expire."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    Cancelled,
    Completed,
    HoldEnded,
    MoneyEnded,
    StoppedByPolicy,
)
from broker.reconciler import decide
from broker.reconciler.decide import next_steps
from tests.reconciler.test_decide import GONE, NOW, UP, ended, life, only, request, steps


def test_a_passed_deadline_is_said_once_and_the_job_runs_on() -> None:
    view = replace(life(*UP), deadline=NOW + timedelta(minutes=30))
    assert isinstance(only(view), decide.MissDeadline)
    assert isinstance(only(replace(view, deadline_missed=True)), decide.Observe)


def test_a_deadline_is_missed_after_its_moment_and_by_no_job_that_is_over() -> None:
    view = replace(life(*UP), deadline=NOW + timedelta(hours=1))
    assert isinstance(only(view, after=timedelta(hours=1)), decide.Observe)
    assert isinstance(only(view, after=timedelta(hours=1, microseconds=1)), decide.MissDeadline)
    done = life(*UP, ended(Cause.COMPLETED), GONE, ev.JobEnded(state=JobState.SUCCEEDED))
    assert isinstance(only(replace(done, deadline=NOW)), decide.Close)


def test_a_success_is_no_interruption_while_its_machine_ends() -> None:
    assert life(*UP, ended(Cause.COMPLETED)).state is JobState.RUNNING
    assert life(*UP, ended(Cause.PREEMPTED)).state is JobState.INTERRUPTED


def test_a_question_expires_when_its_time_is_over_and_not_before() -> None:
    question = ev.ApprovalAsked(approvers=("bob",), expires_at=NOW + timedelta(hours=2))
    waits = life(question)
    assert only(waits, after=timedelta(hours=2)) == decide.Expire()
    early = only(waits, after=timedelta(hours=1))
    assert isinstance(early, decide.Wait)
    assert early.until is None, "until somebody answers"
    forever = life(ev.ApprovalAsked(approvers=("bob",)))
    assert isinstance(only(forever, after=timedelta(days=900)), decide.Wait)
    cancelled = replace(waits, state=JobState.CANCELLED)
    assert isinstance(only(cancelled, after=timedelta(hours=2)), decide.Close), "nothing is asked of who is done"


def test_who_runs_goes_on_until_a_question_about_more_expires() -> None:
    more = ev.ApprovalAsked(approvers=("bob",), expires_at=NOW + timedelta(hours=2), extension=True)
    assert isinstance(only(life(*UP, more), after=timedelta(hours=1)), decide.Observe)
    assert only(life(*UP, more), after=timedelta(hours=2)) == decide.Expire()


def test_a_lost_machine_is_removed_beside_whatever_the_next_attempt_needs() -> None:
    lost = (*UP, ended(Cause.MACHINE_LOST))
    second = (request(2), ev.Launched(handle="h2"), (2, ev.MachineUp(since=NOW)))
    view = life(*lost, *second)
    first, latest = view.attempts
    assert steps(view) == [decide.Observe(first, remove=True), decide.Observe(latest)]
    told, watched = next_steps(view, NOW + timedelta(hours=1), paid_until=NOW + timedelta(hours=1))
    assert told == decide.Observe(first, remove=True)
    assert isinstance(watched, decide.Stop)
    gone = life(*lost, (1, GONE), *second)
    assert steps(gone) == [decide.Observe(gone.attempts[1])], "what is gone is not looked at again"


def test_a_lost_machine_holds_its_job_up_for_a_minute() -> None:
    view = life(*UP, ended(Cause.MACHINE_LOST))  # lost six minutes after the submission
    assert len(steps(view, after=timedelta(minutes=6, seconds=59))) == 1
    assert len(steps(view, after=timedelta(minutes=7))) == 2
    undated = replace(view, attempts=(replace(view.attempts[0], ended_at=None),))
    assert len(steps(undated)) == 1, "nobody knows since when: it holds the job up"


def test_who_cancelled_a_job_does_not_wait_for_a_machine_that_its_engine_fails_to_end() -> None:
    running = (*UP, ended(Cause.PREEMPTED))
    delayed, cancel = ev.RemovalDelayed(because="503"), ev.CancelRequested(by="ann")

    def after(*bodies: EventBody) -> list[type[decide.Step]]:
        return [type(step) for step in steps(life(*running, *bodies), after=timedelta(minutes=9))]

    assert after(cancel) == [decide.Observe], "it may be gone any moment"
    assert after(delayed) == [decide.Observe], "a second machine would run beside it"
    assert after(delayed, cancel) == [decide.Observe, decide.End]
    lost = (
        *UP,
        ended(Cause.MACHINE_LOST),
        (1, delayed),
        request(2),
        ev.Launched(handle="h2"),
        ended(Cause.PREEMPTED),
        cancel,
    )
    two = [type(step) for step in steps(life(*lost), after=timedelta(minutes=6))]
    assert two == [decide.Observe, decide.Observe], "one of two machines may be gone any moment"
    over = ev.JobEnded(state=JobState.CANCELLED)
    assert after(delayed, cancel, over) == [decide.Observe], "it is not closed before the machine is gone"


def test_a_job_that_is_over_waits_for_its_lost_machine_and_rests_once_it_is_closed() -> None:
    done = (*UP, ended(Cause.MACHINE_LOST), ev.CancelRequested(by="ann"), ev.JobEnded(state=JobState.CANCELLED))
    watch, wait = steps(life(*done))
    assert watch == decide.Observe(life(*done).attempts[0], remove=True)
    assert isinstance(wait, decide.Wait)
    assert wait.until is None
    assert isinstance(only(life(*done, (1, GONE))), decide.Close)
    closed = only(life(*done, (1, GONE), ev.JobClosed()))
    assert isinstance(closed, decide.Wait)
    assert closed.until is None
    assert closed.why != wait.why


def test_a_cancelled_job_ends_once_nothing_runs() -> None:
    cancel = ev.CancelRequested(by="ann")
    assert only(life(cancel)) == decide.End(JobState.CANCELLED, Cancelled())
    assert only(life(*UP, ended(Cause.PREEMPTED), GONE, cancel)) == decide.End(JobState.CANCELLED, Cancelled())
    completed = life(*UP, cancel, ended(Cause.COMPLETED), GONE)
    assert only(completed) == decide.End(JobState.SUCCEEDED, Completed()), "it had finished before it heard of it"


def test_a_paused_job_gives_back_what_it_holds_once_every_machine_is_gone() -> None:
    def idle(view: JobView, *, holds: bool) -> list[decide.Step]:
        return next_steps(view, NOW + timedelta(hours=1), holds=holds)

    paused = life(*UP, ended(Cause.PAID_UNTIL), GONE, ev.Paused(reason=MoneyEnded(evidence="max_cost")))
    assert idle(paused, holds=True) == [decide.Release()]
    assert idle(paused, holds=False) == [decide.Wait(None, "paused")]
    lost = life(*UP, ended(Cause.MACHINE_LOST), ev.Paused(reason=MoneyEnded(evidence="max_cost")))
    watch, wait = idle(lost, holds=True)
    assert isinstance(watch, decide.Observe)
    assert isinstance(wait, decide.Wait), "its machine may still be billed"


def test_machine_time_that_is_used_up_pauses_what_would_be_placed_and_nothing_else() -> None:
    interrupted = (*UP, ended(Cause.PREEMPTED), GONE)
    assert isinstance(only(life(*interrupted, max_hours=1), billed=timedelta(hours=1)), decide.Pause)
    assert isinstance(only(life(*interrupted, max_hours=1), billed=timedelta(minutes=59)), decide.Place)
    assert isinstance(
        only(life(*UP, ended(Cause.CANNOT_START), GONE, max_hours=1), billed=timedelta(hours=1)), decide.End
    )
    waits = life(request(), ended(Cause.REQUEST_EXPIRED), max_hours=1)
    assert isinstance(only(waits, after=timedelta(minutes=2), billed=timedelta(hours=1)), decide.Wait)


def test_a_request_that_is_let_go_says_which_and_why() -> None:
    view = life(request(), ev.CancelRequested(by="ann"))
    assert only(view) == decide.Abandon(view.attempts[0], Cause.CANCELLED_BY_USER)


def test_a_cancelled_attempt_is_told_why() -> None:
    view = life(*UP, ev.CancelRequested(by="ann"))
    assert only(view) == decide.Stop(view.attempts[0], Cause.CANCELLED_BY_USER, Cancelled())


def test_the_money_of_a_running_attempt_ends_at_its_moment() -> None:
    def at(until: datetime | None) -> decide.Step:
        (step,) = next_steps(life(*UP), NOW + timedelta(hours=1), paid_until=until)
        return step

    step = at(NOW + timedelta(hours=1))
    assert isinstance(step, decide.Stop)
    assert (step.attempt.number, step.cause) == (1, Cause.PAID_UNTIL)
    assert step.reason == HoldEnded(at=NOW + timedelta(hours=1))
    assert isinstance(at(NOW + timedelta(hours=1, microseconds=1)), decide.Observe)
    assert isinstance(at(None), decide.Observe)


def test_what_follows_an_attempt_carries_its_evidence() -> None:
    def after(cause: Cause, evidence: str, *more: EventBody, **when: timedelta) -> decide.Step:
        return only(life(*UP, ev.AttemptEnded(cause=cause, evidence=evidence), GONE, *more), **when)

    def stopped(cause: Cause, evidence: str) -> AttemptStopped:
        return AttemptStopped(cause=cause, evidence=evidence)

    failed, cancelled = JobState.FAILED, JobState.CANCELLED
    for cause, evidence, state in (
        (Cause.EXIT_STATUS, "status 7", failed),
        (Cause.EXIT_STATUS, "", failed),
        (Cause.CANNOT_START, "no such file", failed),
        (Cause.CANCELLED_BY_USER, "by ann", cancelled),
    ):
        assert after(cause, evidence) == decide.End(state, stopped(cause, evidence))
    assert after(Cause.PREEMPTED, "notice") == decide.Place("preempted: notice")
    assert after(Cause.PREEMPTED, "notice", after=timedelta(0)) == decide.Place("preempted: notice")
    assert after(Cause.MAX_DURATION, "24 h") == decide.Pause(stopped(Cause.MAX_DURATION, "24 h"))
    lost = life(request(), ev.AttemptEnded(cause=Cause.REQUEST_EXPIRED, evidence="dear"))
    assert only(lost, after=timedelta(minutes=2)) == decide.Wait(
        NOW + timedelta(minutes=2, seconds=2), "request_expired: dear"
    )
    assert only(lost, after=timedelta(minutes=3)) == decide.Place("request_expired: dear")


def test_a_pause_repeats_what_the_attempt_was_told() -> None:
    def paused(cause: Cause, told: str, evidence: str) -> decide.Step:
        stop = ev.StopRequested(cause=cause, reason=HoldEnded(at=NOW) if told else None)
        return only(life(*UP, stop, ev.AttemptEnded(cause=cause, evidence=evidence), GONE))

    refused = MoneyEnded(stop=HoldEnded(at=NOW))
    assert paused(Cause.MONEY_REFUSED, "more was refused", "stopped") == decide.Pause(refused)
    assert paused(Cause.MONEY_REFUSED, "", "stopped") == decide.Pause(MoneyEnded(evidence="stopped"))
    used_up = AttemptStopped(cause=Cause.MAX_DURATION, evidence="stopped")
    assert paused(Cause.MAX_DURATION, "it is used up", "stopped") == decide.Pause(used_up)
    assert paused(Cause.STOPPED_BY_POLICY, "frozen", "stopped") == decide.Pause(StoppedByPolicy(stop=HoldEnded(at=NOW)))


def test_an_attempt_without_a_time_of_its_end_is_followed_as_if_it_ended_now() -> None:
    view = life(request(), ended(Cause.REQUEST_EXPIRED))
    undated = replace(view, attempts=(replace(view.attempts[0], ended_at=None),))
    step = only(undated, after=timedelta(hours=1))
    assert isinstance(step, decide.Wait)
    assert step.until == NOW + timedelta(hours=1, seconds=2)
    taken = life(*UP, ended(Cause.PREEMPTED), GONE)
    undated = replace(taken, attempts=(replace(taken.attempts[0], ended_at=None),))
    assert isinstance(only(undated, after=timedelta(hours=1)), decide.Place)


def test_what_cannot_have_happened_is_refused() -> None:
    with pytest.raises(ImpossibleSequence, match="still running"):
        life(*UP, request(2))
    with pytest.raises(ImpossibleSequence, match="already succeeded"):
        life(*UP, ended(Cause.COMPLETED), ended(Cause.EXIT_STATUS))
    with pytest.raises(ImpossibleSequence, match="not known to be gone"):
        life(*UP, ended(Cause.COMPLETED), ev.JobEnded(state=JobState.SUCCEEDED), ev.JobClosed())
