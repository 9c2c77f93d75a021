"""The current state of a job, folded from its event stream. Pure and deterministic.

::

    job       queued ─▶ awaiting_approval? ─▶ launching ─▶ running ⇄ interrupted ─▶ succeeded | failed | cancelled
                                                  ▲            └─▶ paused_budget ─┐
                                                  └───────────────────────────────┘               | stopped
    attempt   requested ─▶ launched ─▶ starting ─▶ running ─▶ stopping ─▶ succeeded | failed | interrupted
                                                                          | cancelled | lost

One attempt carries the job (`JobView.latest`); at most one stands by beside it until it is handed the job. `advance`
applies one event; `fold` applies all. An impossible sequence raises `ImpossibleSequence`, because it could
make the bill wrong.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from broker.core.events import events as ev
from broker.core.events.agent_events import FROM_AGENT
from broker.core.events.attempts import ImpossibleSequence, advance_attempt
from broker.core.events.events import Event
from broker.core.events.outcomes import AttemptState, Cause, JobState, Next
from broker.core.events.views import AttemptView, JobView, PoolRest
from broker.core.events.wait_reasons import ApprovalEnded, AwaitsApproval
from broker.core.policy.approvals import Question, RequestedApproval
from broker.core.policy.policy import Grant

# Attempts without a machine kept in full.
MAX_EMPTY_ATTEMPTS = 8

# Rest of a pool after a failed launch: ten minutes, doubled each time, at most an hour.
_FIRST_REST, _LONGEST_REST = timedelta(minutes=10), timedelta(hours=1)
# Rest of a pool in whose queue the job waited as long as its deadline allowed.
_QUEUE_TOO_LONG = timedelta(hours=1)
# After this time without a failure the next one counts as the first. Failures before the last start are forgotten.
_FAILURE_MEMORY = 2 * _LONGEST_REST
_EVIDENCE_LENGTH = 160  # characters of the evidence that is kept for a pool

_PLACED_AGAIN = (Next.OTHER_OFFER, Next.RE_PLACE)
_FAILED_LAUNCHES = (Cause.LAUNCH_FAILED, Cause.MACHINE_LOST, Cause.AGENT_DIED, Cause.FENCED)
POOL_AVOIDED_AFTER = (Cause.NO_CAPACITY, Cause.LAUNCH_FAILED, Cause.LAUNCH_REFUSED)
"""If no agent reported, after these causes the job avoids the attempt's pool for a time, or permanently after a
refusal. It may be launched in another pool at once."""


def apply_attempt_end(view: JobView, attempt: AttemptView) -> JobView:
    """The view after the end of one of its attempts: updates the rest of its pool and the count of failed launches."""
    if attempt.claimed_at is not None or attempt.ended_at is None:
        return view
    if (
        attempt.standby_until is None
        and attempt.cause in _FAILED_LAUNCHES
        and not _is_first_without_machine(view, attempt)
    ):
        view = replace(view, failed_launches=view.failed_launches + 1)
    left_a_queue = attempt.cause is Cause.MOVED and attempt.queued_at is not None and attempt.up_since is None
    if not left_a_queue and attempt.cause not in POOL_AVOIDED_AFTER:
        return view
    pool, at = attempt.placement.offer.pool, attempt.ended_at
    recent_rests = rests_since_start(view)
    rests = {
        rest.pool: rest
        for rest in view.rests
        if rest.banned or rest in recent_rests or at - rest.since < _FAILURE_MEMORY
    }
    previous = rests.pop(pool, None)
    times = previous.times + 1 if previous is not None and at - previous.since < _FAILURE_MEMORY else 1
    length = _QUEUE_TOO_LONG if left_a_queue else min(_FIRST_REST * 2 ** min(times - 1, 16), _LONGEST_REST)
    banned = attempt.cause is Cause.LAUNCH_REFUSED
    rest = PoolRest(pool, times, at, at + length, attempt.number, attempt.evidence[:_EVIDENCE_LENGTH], banned)
    return replace(view, rests=(*rests.values(), rest))


def _is_first_without_machine(view: JobView, attempt: AttemptView) -> bool:
    """Whether it had no machine, in a pool where no launch of the job failed before. Such a failure is not counted,
    because the next pool may work."""
    failed_pools = {rest.pool for rest in view.rests}
    return attempt.handle is None and attempt.up_since is None and attempt.placement.offer.pool not in failed_pools


def rests_since_start(view: JobView) -> Sequence[PoolRest]:
    """The pools where a launch failed since an agent of the job last reported."""
    started = max((attempt.number for attempt in view.attempts if attempt.claimed_at is not None), default=0)
    return [rest for rest in view.rests if rest.attempt > started]


def apply_extension(view: JobView) -> JobView:
    """The view after a person granted more money or time: earlier failures no longer count."""
    return replace(view, failed_launches=0, rests=tuple(rest for rest in view.rests if not rest.banned))


def apply_claim(view: JobView, attempt: AttemptView) -> JobView:
    """The view after an agent reported: resets the count of failed launches and the rest of that pool."""
    rests = tuple(rest for rest in view.rests if rest.pool != attempt.placement.offer.pool)
    return replace(view, failed_launches=0, rests=rests)


def fold_empty_attempts(view: JobView) -> JobView:
    """The view with at most `MAX_EMPTY_ATTEMPTS` attempts that never had a machine. The latest attempt always stays."""
    empty_numbers = [attempt.number for attempt in view.attempts[:-1] if _is_without_effect(attempt)]
    if len(empty_numbers) <= MAX_EMPTY_ATTEMPTS:
        return view
    dropped = frozenset(empty_numbers[:-MAX_EMPTY_ATTEMPTS])
    attempts = tuple(attempt for attempt in view.attempts if attempt.number not in dropped)
    return replace(view, attempts=attempts, folded=view.folded + len(dropped))


def _is_without_effect(attempt: AttemptView) -> bool:
    """Whether it ended without a billed machine, and its only effect was another attempt."""
    if not attempt.over or attempt.claimed_at is not None or attempt.checkpoints:
        return False
    no_machine = attempt.up_since is None or attempt.refused
    return no_machine and attempt.state is not AttemptState.LOST and attempt.next in _PLACED_AGAIN


def fold(events: Iterable[Event]) -> JobView:
    """The view after all of ``events`` (one job's, in order, from the first). Raises `ImpossibleSequence`."""
    view: JobView | None = None
    for event in events:
        view = advance(view, event)
    if view is None:
        raise ValueError("no events, no job")
    return view


def every_attempt(events: Iterable[Event]) -> list[AttemptView]:
    """All attempts in these events (one job's, in order, from the first), including those a view only counts. Raises
    `ImpossibleSequence`.
    """
    view: JobView | None = None
    attempts: dict[int, AttemptView] = {}
    for event in events:
        view = advance(view, event)
        if event.attempt is not None and (attempt := view.attempt(event.attempt)) is not None:
            attempts[event.attempt] = attempt
    return list(attempts.values())


def request_after(current: RequestedApproval | None, event: Event) -> RequestedApproval | None:
    """The approval request that is open after one more event of its job. ``current``: the one that was open before."""
    match event.body:
        case ev.ApprovalAsked() as body:
            return _request(current, event, body)
        case ev.ApprovalGiven() as body if body.standing is None and current is not None:
            answered = _answer(current, body)
            return answered if answered.open else None
        case ev.ApprovalRefused() | ev.JobEnded():
            return None
    return current


def advance(view: JobView | None, event: Event) -> JobView:
    """The view after one more event. Raises `ImpossibleSequence` when it cannot follow."""
    body = event.body
    if view is None:
        if not isinstance(body, ev.Submitted) or event.seq != 1 or event.attempt is not None:
            raise ImpossibleSequence(event, "a job begins with its submission, as event 1")
        return JobView(
            id=event.job_id,
            job=body.job,
            user=body.user,
            # An array counts as running from the start, as long as it has tasks.
            state=JobState.RUNNING if body.job.array and not body.job.after else JobState.QUEUED,
            seq=1,
            submitted_at=event.at,
            deadline=body.deadline,
            max_duration=timedelta(seconds=body.max_duration_seconds),
            max_cost=body.job.max_cost,
            work=None if body.work_seconds is None else timedelta(seconds=body.work_seconds),
            on_demand=body.on_demand,
        )
    if event.job_id != view.id:
        raise ImpossibleSequence(event, f"belongs to another job than {view.id}")
    if event.seq != view.seq + 1:
        raise ImpossibleSequence(event, f"expected event {view.seq + 1}")
    if view.closed:
        raise ImpossibleSequence(event, "the job is closed")
    after = _job_event(view, event) if event.attempt is None else _attempt_event(view, event)
    return replace(after, seq=event.seq)


def _require(event: Event, condition: bool, reason: str) -> None:
    if not condition:
        raise ImpossibleSequence(event, reason)


def _job_event(view: JobView, event: Event) -> JobView:
    body, require = event.body, partial(_require, event)
    require(not view.state.final or isinstance(body, ev.JobClosed), f"the job already {view.state.value}")
    idle = view.latest is None or view.latest.state.final
    match body:
        case ev.ApprovalAsked() | ev.ApprovalGiven() | ev.ApprovalRefused():
            return _approval_event(view, event, body, require, idle=idle)
        case ev.JobEnded() | ev.JobClosed():
            return _end_event(view, event, body, require, idle=idle)
        case ev.TasksStarted():
            require(view.job.array is not None, "it is not an array")
            return replace(view, waiting=None)
        case ev.PredecessorsEnded():
            require(view.awaits_predecessors, "it waits for no job")
            state = JobState.RUNNING if view.job.array else view.state
            return replace(view, may_begin=True, state=state, waiting=None)
        case ev.CancelRequested():
            return replace(view, cancel_requested=True)
        case ev.Extended():
            return _extend(view, body)
        case ev.NothingFeasible():
            require(idle, "an attempt is under way")
            return replace(view, waiting=body.reason)
        case ev.DeadlineMissed():
            require(not view.deadline_missed, "already known")
            return replace(view, deadline_missed=True)
        case ev.DeadlineAtRisk():
            return replace(view, deadline_at_risk=True)
        case ev.Paused():
            require(idle, "an attempt is under way")
            state = JobState.AWAITING_APPROVAL if view.asked else JobState.PAUSED_BUDGET
            return replace(view, state=state, waiting=body.reason)
        case _:
            raise ImpossibleSequence(event, "concerns an attempt but names none")


def _approval_event(
    view: JobView,
    event: Event,
    body: ev.ApprovalAsked | ev.ApprovalGiven | ev.ApprovalRefused,
    require: Callable[[bool, str], None],
    *,
    idle: bool,
) -> JobView:
    match body:
        case ev.ApprovalAsked():
            require(idle or body.extension, "an attempt is under way")
            require((view.asked is not None) == body.again, "a request is already open, or there is none to replace")
            return _ask_approval(view, event, body, idle=idle)
        case ev.ApprovalGiven():
            require(view.asked is not None or body.standing is not None, "no request is open")
            return _approve(view, body)
        case ev.ApprovalRefused():
            require(view.asked is not None, "no request is open")
            if view.state is not JobState.AWAITING_APPROVAL:
                return replace(view, asked=None)  # a running job continues with its previous limits
            return replace(
                view, asked=None, state=JobState.PAUSED_BUDGET, waiting=ApprovalEnded(by=body.by, note=body.note)
            )


def _end_event(
    view: JobView, event: Event, body: ev.JobEnded | ev.JobClosed, require: Callable[[bool, str], None], *, idle: bool
) -> JobView:
    match body:
        case ev.JobEnded():
            require(body.state.final, f"{body.state.value} is not an end")
            require(idle, "an attempt is under way")
            ended = replace(view, asked=None, waiting=None)
            return replace(ended, state=body.state, ended_at=event.at, ending=body.reason)
        case ev.JobClosed():
            require(view.state.final, "the job has not ended")
            require(all(a.over for a in view.attempts), "a machine is not known to be gone")
            return replace(view, closed=True)


def _extend(view: JobView, body: ev.Extended) -> JobView:
    """The job with its new limits; a job that was paused for lack of money or time continues."""
    seconds = body.max_duration_seconds
    limit = view.max_duration if seconds is None else timedelta(seconds=seconds)
    state = view.state
    if state is JobState.PAUSED_BUDGET:
        state = JobState.INTERRUPTED if view.attempts else JobState.QUEUED
    return replace(
        apply_extension(view),
        state=state,
        max_cost=view.max_cost if body.max_cost is None else body.max_cost,
        max_duration=limit,
        extended_after=view.latest.number if view.latest is not None else 0,
        waiting=None,
    )


def _request(current: RequestedApproval | None, event: Event, body: ev.ApprovalAsked) -> RequestedApproval:
    limit_seconds, run_seconds = body.max_duration_seconds, body.lasts_seconds
    request = RequestedApproval(
        at=event.at,
        questions=body.questions or (Question(rule="", approvers=body.approvers, because=body.because),),
        expires_at=body.expires_at,
        total=body.total,
        held=body.held,
        gpus=body.gpus,
        lasts=None if run_seconds is None else timedelta(seconds=run_seconds),
        extension=body.extension,
        max_cost=body.max_cost,
        max_duration=None if limit_seconds is None else timedelta(seconds=limit_seconds),
        by=body.by,
    )
    return current.replace_questions(request) if current is not None and body.again else request


def _answer(request: RequestedApproval, body: ev.ApprovalGiven) -> RequestedApproval:
    return request.answered(body.by, body.rules or [question.rule for question in request.open])


def _ask_approval(view: JobView, event: Event, body: ev.ApprovalAsked, *, idle: bool) -> JobView:
    request = _request(view.asked, event, body)
    if not idle:
        return replace(view, asked=request)
    waiting = AwaitsApproval(rules=tuple(question.rule for question in body.questions), because=body.because)
    return replace(view, asked=request, state=JobState.AWAITING_APPROVAL, waiting=waiting)


def _approve(view: JobView, body: ev.ApprovalGiven) -> JobView:
    """After all approvals the job may continue, and the approval is kept with its limits."""
    if body.standing is not None:
        lasts = None if body.lasts_seconds is None else timedelta(seconds=body.lasts_seconds)
        grant = Grant(body.by, body.rules, body.total, lasts, body.gpus or None, facts=body.facts)
        return replace(view, grants=(*view.grants, grant))
    request = _answer(view.asked or RequestedApproval(view.submitted_at, ()), body)
    if request.open:
        return replace(view, asked=request)
    after = replace(view, asked=None, grants=(*view.grants, *request.grants()))
    if view.state is not JobState.AWAITING_APPROVAL:
        return after
    return replace(after, state=JobState.PLANNED, waiting=None)


def _attempt_event(view: JobView, event: Event) -> JobView:
    number, body = event.attempt, event.body
    if isinstance(body, ev.LaunchRequested):
        return _request_launch(view, event, body)
    before = view.attempt(number) if number is not None else None
    if before is None:
        raise ImpossibleSequence(
            event, "no such attempt was requested, or it had no machine and is no longer kept in full"
        )
    if isinstance(body, ev.HandedOver):
        return _hand_over(view, before, event)
    after = advance_attempt(before, event)
    if isinstance(body, FROM_AGENT):
        after = replace(after, agent_events=after.agent_events + 1)
    changed = replace(view, attempts=tuple(after if attempt is before else attempt for attempt in view.attempts))
    if isinstance(body, ev.LaunchDelayed):
        return replace(changed, waiting=body.reason)
    if isinstance(body, ev.Launched):
        changed = replace(changed, waiting=None)
    if after.claimed_at is not None and before.claimed_at is None:
        changed = apply_claim(changed, after)
    if after.state.final and not before.state.final:
        changed = apply_attempt_end(changed, after)
    changed = fold_empty_attempts(changed)
    if number == view.extended_after and _is_first_stop(before, body):
        changed = replace(changed, extended_after=None)  # a grant does not cancel a later stop
    if after.standby_until is not None and after.state.final and not view.state.final:
        return replace(changed, waiting=None)  # the reason that its launch left
    if after is not changed.latest or view.state.final or after.state is before.state:
        return changed  # of another attempt than the one that carries the job, or without effect on the job's state
    return replace(changed, state=_job_state(view.state, after))


def _is_first_stop(attempt: AttemptView, body: ev.EventBody) -> bool:
    """Whether this is the first event of a stop: by the broker, or by a policy that the node enforced."""
    stopped_by_node = isinstance(body, ev.AttemptEnded) and body.cause is Cause.STOPPED_BY_POLICY
    return isinstance(body, ev.StopRequested) or (stopped_by_node and attempt.stop_requested is None)


def _request_launch(view: JobView, event: Event, body: ev.LaunchRequested) -> JobView:
    if event.attempt != view.attempt_count + 1:
        raise ImpossibleSequence(event, f"expected attempt {view.attempt_count + 1}")
    if view.state.final:
        raise ImpossibleSequence(event, f"the job already {view.state.value}")
    latest = view.latest
    if view.standby is not None:
        raise ImpossibleSequence(event, f"attempt {view.standby.number} stands by")
    if body.standby_until is not None and (latest is None or latest.state is not AttemptState.RUNNING):
        raise ImpossibleSequence(event, "nothing runs beside which it could stand by")
    if body.standby_until is None and latest is not None and not latest.state.final:
        raise ImpossibleSequence(event, f"attempt {latest.number} is still {latest.state.value}")
    attempt = AttemptView(
        number=event.attempt,
        key=body.key,
        engine=body.engine,
        placement=body.placement,
        state=AttemptState.REQUESTED,
        requested_at=event.at,
        standby_until=body.standby_until,
    )
    state = JobState.LAUNCHING if body.standby_until is None else view.state
    return fold_empty_attempts(replace(view, attempts=(*view.attempts, attempt), state=state, waiting=None))


def _hand_over(view: JobView, standby: AttemptView, event: Event) -> JobView:
    """The job with its standby as the attempt that carries it."""
    _require(event, standby is view.standby, "it does not stand by")
    _require(event, view.latest is None or view.latest.state.final, "the attempt before it has not ended")
    _require(event, not view.state.final, f"the job already {view.state.value}")
    after = replace(standby, standby_until=None, handed_at=event.at)
    attempts = tuple(after if attempt is standby else attempt for attempt in view.attempts)
    return replace(view, attempts=attempts, state=JobState.LAUNCHING, waiting=None)


def _job_state(before: JobState, attempt: AttemptView) -> JobState:
    """The job's state as its latest attempt determines it; after a success, until its machines are gone."""
    if attempt.state in (AttemptState.RUNNING, AttemptState.SUCCEEDED):
        return JobState.RUNNING
    if attempt.state.final:
        return JobState.INTERRUPTED
    return before
