"""What to do next with a job, for every situation it can be in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.events import EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    BehindOthers,
    Cancelled,
    Completed,
    EarlierWords,
    HoldEnded,
    MaxDurationUsed,
    MoneyEnded,
    StoppedByPolicy,
)
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job, Retry
from broker.core.job.placements import Placement
from broker.core.job.stop_when import MetricGoal
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.reconciler import decide
from broker.reconciler.decide import next_steps

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
OFFER = Offer(
    "sandbox", "east", "east-a", "box", None, 0, CapacityType.SPOT, Money.usd("1"), NOW, "sandbox",
    engine="sandbox", money=MoneyKind.SANDBOX,
)  # fmt: skip
PLACEMENT = Placement(OFFER, 1, Money.usd("1"), Money.usd("2"), (), timedelta(hours=2), None, 0.9, 1.0, 0.1)


def life(*bodies: EventBody | tuple[int, EventBody], job: Job | None = None, max_hours: float = 24) -> JobView:
    """The view after a submission and these bodies, a minute apart; attempt bodies concern the latest attempt."""
    from broker.core.events.events import Event

    submitted = ev.Submitted(job=job or Job(name="j", run="x"), user="ann", max_duration_seconds=max_hours * 3600)
    view = advance(None, Event("j-1", 1, NOW, None, submitted))
    for index, item in enumerate(bodies, 1):
        at = NOW + timedelta(minutes=index)
        number: int | None
        if isinstance(item, tuple):
            number, body = item
        else:
            body = item
            of_job = type(body).__name__ in JOB_BODIES
            number = None if of_job else len(view.attempts) + isinstance(body, ev.LaunchRequested)
        view = advance(view, Event("j-1", view.seq + 1, at, number, body))
    return view


JOB_BODIES = {
    "ApprovalAsked", "ApprovalGiven", "ApprovalRefused", "CancelRequested", "Extended", "NothingFeasible",
    "DeadlineMissed", "DeadlineAtRisk", "Paused", "JobEnded", "JobClosed",
}  # fmt: skip


def request(number: int = 1) -> ev.LaunchRequested:
    return ev.LaunchRequested(key=f"j-1-{number}", engine="sandbox", placement=PLACEMENT)


UP = (request(), ev.Launched(handle="h"), ev.MachineUp(since=NOW), Claimed(), CommandStarted())
GONE = ev.MachineGone(gone_at=NOW + timedelta(hours=1))


def ended(cause: Cause) -> ev.AttemptEnded:
    return ev.AttemptEnded(cause=cause)


def steps(view: JobView, after: timedelta = timedelta(hours=1), billed: timedelta = timedelta(0)) -> list[decide.Step]:
    return next_steps(view, NOW + after, billed=billed)


def only(view: JobView, **when: timedelta) -> decide.Step:
    (step,) = steps(view, **when)
    return step


def test_a_queued_job_is_placed() -> None:
    assert isinstance(only(life()), decide.Place)


def test_an_array_runs_its_tasks() -> None:
    assert only(life(job=Job(name="j", run="x", array=JobArray(range=2)))) == decide.RunTasks()


def test_a_requested_attempt_is_submitted() -> None:
    view = life(request())
    assert only(view) == decide.Submit(view.attempts[0])


def test_a_requested_attempt_of_a_cancelled_job_is_abandoned() -> None:
    assert isinstance(only(life(request(), ev.CancelRequested(by="ann"))), decide.Abandon)


def test_a_running_attempt_is_watched() -> None:
    view = life(*UP)
    assert only(view) == decide.Observe(view.attempts[0], remove=False)


def test_a_cancelled_running_job_is_stopped_checkpoint_first_and_only_once() -> None:
    view = life(*UP, ev.CancelRequested(by="ann"))
    step = only(view)
    assert isinstance(step, decide.Stop)
    assert step.cause is Cause.CANCELLED_BY_USER
    told = life(*UP, ev.CancelRequested(by="ann"), ev.StopRequested(cause=Cause.CANCELLED_BY_USER))
    assert isinstance(only(told), decide.Observe)


def test_machine_time_beyond_max_duration_stops_the_attempt() -> None:
    step = only(life(*UP, max_hours=1), billed=timedelta(hours=1))
    assert isinstance(step, decide.Stop)
    assert (step.attempt.number, step.cause) == (1, Cause.MAX_DURATION)
    assert step.reason == MaxDurationUsed(limit_seconds=3600)


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (Cause.COMPLETED, JobState.SUCCEEDED),
        (Cause.CANNOT_START, JobState.FAILED),
        (Cause.EXIT_STATUS, JobState.FAILED),
        (Cause.CANCELLED_BY_USER, JobState.CANCELLED),
        (Cause.STOPPED_EARLY, JobState.STOPPED),
    ],
)
def test_ends_of_attempts_that_end_the_job(cause: Cause, state: JobState) -> None:
    step = only(life(*UP, ended(cause), GONE))
    assert isinstance(step, decide.End)
    assert step.state is state


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.MACHINE_LOST, Cause.AGENT_DIED, Cause.MOVED])
def test_an_interruption_is_placed_anew_without_counting_as_a_failure(cause: Cause) -> None:
    view = life(*UP, ended(cause), GONE)
    assert view.failures == 0
    assert isinstance(only(view), decide.Place)


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.MACHINE_LOST, Cause.AGENT_DIED])
def test_a_machine_that_its_provider_did_not_take_is_a_failure_of_the_job(cause: Cause) -> None:
    by_itself = ev.MachineGone(gone_at=NOW + timedelta(minutes=7), own_end=True)
    step = only(life(*UP, ended(cause), by_itself))
    assert isinstance(step, decide.End)
    assert step.state is JobState.FAILED
    assert isinstance(step.reason, AttemptStopped)
    assert step.reason.cause is not Cause.PREEMPTED, "nobody took it"
    again = life(*UP, ended(cause), by_itself, job=Job(name="j", run="x", retry=Retry(failures=1)))
    assert (again.failures, again.interruptions) == (1, 0)
    assert isinstance(only(again, after=timedelta(hours=1)), decide.Place)


def test_what_a_person_stopped_is_no_failure_whatever_its_provider_says() -> None:
    by_itself = ev.MachineGone(gone_at=NOW + timedelta(minutes=7), own_end=True)
    assert life(*UP, ended(Cause.MOVED), by_itself).failures == 0


def test_a_failure_is_retried_as_often_as_the_job_says_and_not_before_its_backoff() -> None:
    job = Job(name="j", run="x", retry=Retry(failures=1, backoff=timedelta(minutes=30)))
    once = life(*UP, ended(Cause.EXIT_STATUS), GONE, job=job)
    wait = only(once, after=timedelta(minutes=10))
    assert isinstance(wait, decide.Wait)
    assert wait.until == NOW + timedelta(minutes=6 + 30)
    assert isinstance(only(once, after=timedelta(minutes=36)), decide.Place)
    twice = life(*UP, ended(Cause.EXIT_STATUS), GONE, request(2), ended(Cause.EXIT_STATUS), job=job)
    step = only(twice)
    assert isinstance(step, decide.End)
    assert step.state is JobState.FAILED


def test_a_clock_that_was_set_back_makes_nobody_wait_for_what_it_showed() -> None:
    job = Job(name="j", run="x", retry=Retry(failures=1, backoff=timedelta(minutes=30)))
    for cause in (Cause.EXIT_STATUS, Cause.LAUNCH_FAILED, Cause.PREEMPTED):
        assert isinstance(only(life(*UP, ended(cause), GONE, job=job), after=timedelta(minutes=-5)), decide.Place)


def test_no_new_attempt_before_the_old_machine_is_known_to_be_gone() -> None:
    view = life(*UP, ended(Cause.PREEMPTED))
    (step,) = steps(view)
    assert isinstance(step, decide.Observe)
    assert step.remove


def test_a_lost_machine_holds_its_job_up_only_for_a_while_and_is_watched_on() -> None:
    view = life(*UP, ended(Cause.MACHINE_LOST))
    assert [type(s) for s in steps(view, after=timedelta(minutes=6, seconds=30))] == [decide.Observe]
    assert [type(s) for s in steps(view, after=timedelta(minutes=8))] == [decide.Observe, decide.Place]


def test_money_used_up_pauses_and_an_extension_goes_on() -> None:
    refused = (*UP, ev.StopRequested(cause=Cause.MONEY_REFUSED, reason=EarlierWords(text="no more")))
    over = (*refused, ended(Cause.MONEY_REFUSED), GONE)
    no_more = decide.Pause(MoneyEnded(stop=EarlierWords(text="no more")))
    assert only(life(*over)) == no_more
    assert only(life(*refused, ended(Cause.PAID_UNTIL), GONE)) == no_more, "its node was faster"
    paused = (*over, ev.Paused(reason=MoneyEnded(evidence="max_cost")))
    assert isinstance(only(life(*paused)), decide.Wait)
    extended = (*paused, ev.Extended(by="ann", max_cost=Money.usd("9")))
    assert only(life(*extended)) == decide.Place("extended")
    again = (*extended, request(2), ended(Cause.MONEY_REFUSED))
    assert isinstance(only(life(*again)), decide.Pause)


def test_money_that_ended_unjudged_goes_to_the_gate() -> None:
    """A node stops at the end of what was judged, say of a month, when no broker looks; the next month has room."""
    stopped = ev.StopRequested(cause=Cause.PAID_UNTIL, reason=EarlierWords(text="the money held for it ended"))
    for told in ((), (stopped,)):
        assert isinstance(only(life(*UP, *told, ended(Cause.PAID_UNTIL), GONE)), decide.Place)


def test_what_was_granted_while_it_ran_does_not_undo_a_later_stop() -> None:
    more = ev.Extended(by="ann", max_cost=Money.usd("9"))
    stop = (1, ev.StopRequested(cause=Cause.STOPPED_BY_POLICY, reason=EarlierWords(text="idle")))
    assert isinstance(only(life(*UP, more, stop, ended(Cause.STOPPED_BY_POLICY), GONE)), decide.Pause)
    assert isinstance(only(life(*UP, stop, more, ended(Cause.STOPPED_BY_POLICY), GONE)), decide.Place)
    # The node may have stopped by itself just before it heard of the money.
    assert isinstance(only(life(*UP, more, ended(Cause.PAID_UNTIL), GONE)), decide.Place)


def test_what_its_own_node_stopped_by_a_policy_is_paused_with_the_words_of_the_node() -> None:
    more = ev.Extended(by="ann", max_cost=Money.usd("9"))
    idle = (1, ev.AttemptEnded(cause=Cause.STOPPED_BY_POLICY, evidence="at most 3% busy"))
    assert only(life(*UP, idle, GONE)) == decide.Pause(StoppedByPolicy(evidence="at most 3% busy"))
    # What was granted while it ran does not undo that, and what is granted then does.
    assert isinstance(only(life(*UP, more, idle, GONE)), decide.Pause)
    assert isinstance(
        only(life(*UP, idle, GONE, ev.Paused(reason=StoppedByPolicy(evidence="idle")), more)), decide.Place
    )


@pytest.mark.parametrize("cause", [Cause.NO_CAPACITY, Cause.LAUNCH_FAILED, Cause.LAUNCH_REFUSED])
def test_a_job_whose_pool_rests_looks_for_another_pool_at_once(cause: Cause) -> None:
    view = life(request(), ended(Cause.REQUEST_EXPIRED), request(2), ended(cause))
    assert isinstance(only(view, after=timedelta(minutes=4)), decide.Place)
    after = life(request(), ended(cause), request(2), ended(Cause.REQUEST_EXPIRED))
    wait = only(after, after=timedelta(minutes=4))
    assert isinstance(wait, decide.Wait)
    assert wait.until == NOW + timedelta(minutes=4, seconds=2), "only the second attempt delays the job"


def test_launches_that_never_ran_are_repeated_ever_more_slowly() -> None:
    view = life(request(), ended(Cause.REQUEST_EXPIRED), request(2), ended(Cause.REQUEST_EXPIRED))
    wait = only(view, after=timedelta(minutes=4))
    assert isinstance(wait, decide.Wait)
    assert wait.until == NOW + timedelta(minutes=4, seconds=4)


@pytest.mark.parametrize(("seconds", "step"), [(0, decide.Wait), (61, decide.Place)])
@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.MOVED])
def test_what_was_taken_while_it_started_is_placed_at_once_unless_that_went_fast(
    cause: Cause, seconds: int, step: type[decide.Step]
) -> None:
    """A deadline may leave no time to wait; whom every machine is taken from at once must not hammer the provider."""
    up = ev.MachineUp(since=NOW + timedelta(minutes=4) - timedelta(seconds=seconds))
    view = life(
        request(), ev.Launched(handle="h"), up, ended(cause), ev.MachineGone(gone_at=NOW + timedelta(minutes=4))
    )
    assert isinstance(only(view, after=timedelta(minutes=4)), step)


def test_an_ended_job_is_closed_once_every_machine_is_gone() -> None:
    done = (*UP, ended(Cause.COMPLETED), GONE, ev.JobEnded(state=JobState.SUCCEEDED))
    assert isinstance(only(life(*done)), decide.Close)


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


@pytest.mark.parametrize(
    "cause", [Cause.STOPPED_EARLY, Cause.MACHINE_LOST, Cause.PREEMPTED, Cause.EXIT_STATUS, Cause.PAID_UNTIL]
)
def test_a_task_that_is_to_be_stopped_early_is_however_its_attempt_ends(cause: Cause) -> None:
    behind = BehindOthers(metric="loss", goal=MetricGoal.MINIMIZE, step=9, best=2.0, median=1.0, tasks=5)
    stop = ev.StopRequested(cause=Cause.STOPPED_EARLY, reason=behind)
    assert only(life(*UP, stop, ended(cause), GONE)) == decide.End(JobState.STOPPED, behind)
    assert only(life(*UP, stop, ended(Cause.COMPLETED), GONE)) == decide.End(JobState.SUCCEEDED, Completed())
    cancelled = ev.CancelRequested(by="ann")
    assert only(life(*UP, stop, cancelled, ended(cause), GONE)) == decide.End(JobState.CANCELLED, Cancelled())


def test_a_pause_repeats_what_the_attempt_was_told() -> None:
    def paused(cause: Cause, told: str, evidence: str) -> decide.Step:
        stop = ev.StopRequested(cause=cause, reason=EarlierWords(text=told) if told else None)
        return only(life(*UP, stop, ev.AttemptEnded(cause=cause, evidence=evidence), GONE))

    refused = MoneyEnded(stop=EarlierWords(text="more was refused"))
    assert paused(Cause.MONEY_REFUSED, "more was refused", "stopped") == decide.Pause(refused)
    assert paused(Cause.MONEY_REFUSED, "", "stopped") == decide.Pause(MoneyEnded(evidence="stopped"))
    used_up = AttemptStopped(cause=Cause.MAX_DURATION, evidence="stopped")
    assert paused(Cause.MAX_DURATION, "it is used up", "stopped") == decide.Pause(used_up)
    assert paused(Cause.STOPPED_BY_POLICY, "frozen", "stopped") == decide.Pause(
        StoppedByPolicy(stop=EarlierWords(text="frozen"))
    )


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
