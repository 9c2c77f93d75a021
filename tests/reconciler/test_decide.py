"""What to do next with a job, for every situation it can be in."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted
from broker.core.events.events import EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    MaxDurationUsed,
    MoneyEnded,
    RulesDeny,
    StoppedByPolicy,
)
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job, Retry
from broker.core.job.placements import Placement
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


def test_a_running_attempt_is_watched() -> None:
    view = life(*UP)
    assert only(view) == decide.Observe(view.attempts[0], remove=False)


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
    refused = (*UP, ev.StopRequested(cause=Cause.MONEY_REFUSED, reason=RulesDeny(objections=())))
    over = (*refused, ended(Cause.MONEY_REFUSED), GONE)
    no_more = decide.Pause(MoneyEnded(stop=RulesDeny(objections=())))
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
    stopped = ev.StopRequested(cause=Cause.PAID_UNTIL, reason=RulesDeny(objections=()))
    for told in ((), (stopped,)):
        assert isinstance(only(life(*UP, *told, ended(Cause.PAID_UNTIL), GONE)), decide.Place)


def test_what_was_granted_while_it_ran_does_not_undo_a_later_stop() -> None:
    more = ev.Extended(by="ann", max_cost=Money.usd("9"))
    stop = (1, ev.StopRequested(cause=Cause.STOPPED_BY_POLICY, reason=RulesDeny(objections=())))
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
