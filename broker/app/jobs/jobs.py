"""Jobs after submission: find, show, cancel and extend them, and read their logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.jobs.nearest import JobLimits as JobLimits  # the limits that `extend` takes
from broker.app.jobs.nearest import alternatives, as_text, once, smaller, starts_later
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Alternative, BrokerError, InvalidInput, NotAllowed, UnknownName, UnreadableJob
from broker.core.events import events as ev
from broker.core.events import lifecycle
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer
from broker.core.values.money import Money, alike
from broker.core.values.units import print_duration
from broker.ledger.entries import Balance, Movement
from broker.ledger.journal import Reading, Writing
from broker.reconciler.admission.admission import Admission, facts_of, re_place
from broker.reconciler.admission.approvals import ask, of_ask, through_standing
from broker.reconciler.controllers.arrays import committed
from broker.reconciler.controllers.placement import decision_of, held_of, hold_entries, movements_of
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.settlement import tags_of

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreReading
    from broker.store.jobs.pages import FoundPage, JobPlace, WantedJobs

_TOO_MUCH = "too_much_is_asked"  # a budget's code: the owner's open requests already hold all that they may


def find(broker: Broker, reference: str) -> JobView:
    """The job with that id, the newest job of that name, or the job whose id begins so, if only one does; an array
    and its tasks, whose ids begin with its own, count as one. Raises `UnknownName`, and `UnreadableJob` for a job that
    this version cannot read."""
    with broker.store.reading() as look:
        exact = look.job(reference)
        if exact is not None:
            return exact
        named = look.jobs(name=reference, limit=1)
        if named:
            return named[0]
        task = look.jobs(name=reference, limit=1, with_tasks=True)
        if task:
            return task[0]
        begun = look.jobs_begun(reference, limit=2) if reference else []
        if not begun and reference and not look.unreadable:
            begun = _tasks_begun(look, reference)
        if len(begun) == 1 and not look.unreadable:
            return begun[0]
        if not begun and look.unreadable:
            raise look.unreadable[0]
        known = [view.id for view in look.jobs(limit=50)]
    raise UnknownName("job", reference, known)


def find_single(broker: Broker, reference: str) -> JobView:
    """As `find`, for what an array has none of: attempts, output, results. Raises also `InvalidInput` for an array."""
    view = find(broker, reference)
    if view.job.array is not None:
        raise InvalidInput(
            f"{view.id} is an array: each of its tasks has attempts, output and results of its own",
            hint=f"name a task, such as {view.id}-0; `gpubroker jobs list --array {view.id}` lists them",
        )
    return view


def find_array(broker: Broker, reference: str) -> JobView:
    """As `find`; raises also `InvalidInput` for a job that is no array."""
    view = find(broker, reference)
    if view.job.array is None:
        raise InvalidInput(f"{view.id} is no array", hint=f"`gpubroker jobs show {view.id}` shows the job")
    return view


def _tasks_begun(look: StoreReading, reference: str) -> Sequence[JobView]:
    """The task whose id begins so; where several do, their arrays."""
    tasks = look.jobs_begun(reference, limit=2, with_tasks=True)
    if len(tasks) < 2:
        return tasks
    return look.views(sorted({task.job.task.array for task in tasks if task.job.task}))


def cancel(broker: Broker, view: JobView, *, by: Actor) -> JobView:
    """Request that the job, or all tasks of an array, be stopped after a last checkpoint. Idempotent; a job that has
    ended stays as it is. Raises `NotAllowed` for another person's job."""
    _check_owner(view, by)
    with broker.store.writing() as tx:
        current = tx.job(view.id) or view
        if current.cancel_requested or current.state.final:
            return current
        asked, now = ev.CancelRequested(by=by.identity), broker.clock.now()
        for task in tx.open_tasks(view.id) if view.job.array else ():
            if not task.cancel_requested and not task.state.final:
                tx.append(task.id, [(None, asked)], now)
        return tx.append(view.id, [(None, asked)], now)


_FAILED_SHOWN = 20


def extend(broker: Broker, view: JobView, more: JobLimits, *, by: Actor) -> JobView:
    """Raise a job's limits; a paused job goes on. A job that a policy paused may go on without new limits.

    The policies judge a running job here, and the money is held in the same transaction. A paused job is judged when it
    is placed again, unless its owner's open requests leave no room. If a rule asks for approval, the money is held and
    a request is made (`JobView.asked`); a running job keeps its present limits until then.

    Raises `InvalidInput` if a limit is not higher, or less than the job has spent and holds, or if the job has ended;
    `NotAllowed` for another person's job, for a job with an open request, and when a policy refuses: nothing changes
    then, but the refusal is recorded.
    """
    _check_owner(view, by)
    if more.max_cost is None and more.max_duration is None and not _may_go_on_as_it_is(view):
        raise InvalidInput("nothing to extend", hint="say --max-cost or --max-duration")
    with broker.store.writing() as tx:
        done = _extended(broker, tx, view, more, by, broker.clock.now())
    if isinstance(done, JobView):
        return done
    passing = _what_would_pass(broker, view, more, by, done)
    raise NotAllowed(
        "; ".join(f"{v.message} ({v.source})" for v in done.objections),
        hint=as_text(passing, done),
        alternatives=passing,
    )


def _what_would_pass(
    broker: Broker, view: JobView, more: JobLimits, by: Actor, refused: Admission
) -> list[Alternative]:
    """Extensions similar to the refused one that the gate would allow now."""
    now = broker.clock.now()
    with broker.store.reading() as real:
        look = once(real)
        current = look.job(view.id) or view
        if current.latest is None:
            return []
        placement, balance = current.latest.placement, look.balance(view.id)

        def judge(limits: JobLimits) -> Admission:
            _, after = _with_limits(current, limits, by, now)
            return _judged(broker, look, after, placement, now)[0]

        beyond = Money.ZERO if current.max_cost is None else current.max_cost + Money(1)
        least = JobLimits(
            max(beyond, sum(_used(balance), Money.ZERO)), current.max_duration + timedelta(microseconds=1)
        )
        later = starts_later(refused, broker.policy(), facts_of(look, broker.policy(), now))
        return alternatives(more, smaller(more, least, judge), later, lambda limits: _command(view, limits))


def _command(view: JobView, limits: JobLimits) -> str:
    cost = "" if limits.max_cost is None else f" --max-cost '{limits.max_cost}'"
    time = "" if limits.max_duration is None else f" --max-duration {print_duration(limits.max_duration)}"
    return f"gpubroker jobs extend {view.id}{cost}{time}"


def _check_extension(current: JobView, more: JobLimits, balance: Mapping[MoneyKind, Balance]) -> None:
    """Raises `InvalidInput` and `NotAllowed` as `extend`, for what needs no policy."""
    if current.state.final or current.cancel_requested:
        state = f"is over ({current.state.value})" if current.state.final else "is being cancelled"
        raise InvalidInput(
            f"{current.id} {state}, so higher limits change nothing",
            hint="`gpubroker jobs resume` goes on from its checkpoint as a new job; `jobs retry` starts again",
        )
    if current.asked is not None:
        who = ", ".join(current.asked.approvers)
        raise NotAllowed(f"{current.id} already waits for approval by {who}", hint="`gpubroker approvals list`")
    if more.max_cost is not None and current.max_cost is not None and more.max_cost <= current.max_cost:
        raise InvalidInput(f"max_cost is {current.max_cost} already; expected more than that")
    spent, held = _used(balance)
    if more.max_cost is not None and more.max_cost < spent + held:
        wanted, gone, kept = alike(more.max_cost, spent, held)
        raise InvalidInput(
            f"max_cost of {wanted} is less than the job has already: {gone} spent and {kept} held; "
            f"expected at least {(spent + held).up_to_cents()}"
        )
    if more.max_duration is not None and more.max_duration <= current.max_duration:
        raise InvalidInput(f"max_duration is {print_duration(current.max_duration)} already; expected more than that")


def _extended(
    broker: Broker, tx: Writing, view: JobView, more: JobLimits, by: Actor, now: datetime
) -> JobView | Admission:
    """The job with its new limits or with a request for them; or the refusal. The decision is recorded, unless the job
    is judged again before money is held for it."""
    current = tx.job(view.id) or view
    _check_extension(current, more, tx.balance(view.id))
    if more.max_cost is not None and current.job.task is not None:
        _within_the_array(tx, current, current.job.task.array, more.max_cost)
    body, after = _with_limits(current, more, by, now)
    if after.latest is None:
        return tx.append(view.id, [(None, body)], now)  # it is judged when it is placed
    found, record = _judged(broker, tx, after, after.latest.placement, now)
    runs = not after.latest.state.final
    held, moved = held_of(tx.balance(view.id)), movements_of(tx, view.id)
    dated = hold_entries(tags_of(after), held, found.burns, Movement.TOP_UP, moved)
    record = of_ask(record, now) if found.answer is Answer.ASK else record
    # When it is placed again, the broker makes the request, which could exceed what its owner may request.
    refused = found.answer is Answer.DENY and (runs or any(v.code == _TOO_MUCH for v in found.objections))
    if runs or refused or found.answer is Answer.ASK:
        tx.record(replace(record, job_id=view.id, attempt=after.latest.number if runs else None))
    if found.answer is Answer.ASK:
        asked = ask(found, now, by=by.identity, extension=True, max_cost=more.max_cost, max_duration=more.max_duration)
        tx.post(dated)
        return tx.append(view.id, [(None, asked)], now)
    if refused:
        return found
    given = through_standing(tx, found, view.id)
    items: list[tuple[int | None, ev.EventBody]] = [*((None, one) for one in given), (None, body)]
    after = tx.append(view.id, items, now)
    if runs:
        tx.post(dated)
    return after


def _with_limits(view: JobView, more: JobLimits, by: Actor, now: datetime) -> tuple[ev.Extended, JobView]:
    """The event that sets new limits, and the job after it."""
    seconds = None if more.max_duration is None else more.max_duration.total_seconds()
    body = ev.Extended(by=by.identity, max_cost=more.max_cost, max_duration_seconds=seconds)
    return body, advance(view, ev.Event(view.id, view.seq + 1, now, None, body))


def _may_go_on_as_it_is(view: JobView) -> bool:
    """Whether a policy paused the job, not one of its own limits; it needs no new limits to go on."""
    latest = view.latest
    own = (Cause.MAX_COST, Cause.MAX_DURATION)
    return view.state is JobState.PAUSED_BUDGET and latest is not None and latest.cause not in own


def _check_owner(view: JobView, by: Actor) -> None:
    """Raises `NotAllowed` unless ``by`` submitted the job or is an administrator, of its team or of all."""
    if not by.may_act_for(view.user, view.job.team):
        raise NotAllowed(f"{view.id} is {view.user}'s job, and you are {by.identity}", hint=f"ask {view.user}")


def _within_the_array(look: Reading, task: JobView, array: str, max_cost: Money) -> None:
    """Raises `InvalidInput` for more than is left of what all tasks of the array may cost."""
    whole = look.job(array)
    if whole is None or whole.max_cost is None:
        return
    left = whole.max_cost - committed(look, array) + (task.max_cost or Money.ZERO)
    if max_cost > left:
        raise InvalidInput(
            f"max_cost of {max_cost} is more than is left of the array's {whole.max_cost}: {left.up_to_cents()}",
            hint=f"raise that first: `gpubroker jobs extend {array} --max-cost USD`",
        )


def _used(balance: Mapping[MoneyKind, Balance]) -> tuple[Money, Money]:
    """What a job has spent and holds (USD) of the money that its ``max_cost`` limits."""
    mine = [b for kind, b in balance.items() if kind is not MoneyKind.AMORTISED]
    return sum((b.spent for b in mine), Money.ZERO), sum((b.held for b in mine), Money.ZERO)


def _judged(
    broker: Broker, look: Reading, view: JobView, placement: Placement, now: datetime
) -> tuple[Admission, Decision]:
    """The verdict on the money that the job needs under its new limits, on its latest placement, and its record. Judged
    as an extension even if the present hold is enough."""
    policy = broker.policy()
    here = Plan(now, (placement,), (), 1, None, view.deadline)
    facts_for, billed = facts_of(look, policy, now), billed_time(view, now)
    found = re_place(view, here, policy, facts_for, look.balance(view.id), billed=billed, now=now, by_owner=True)
    return found, decision_of(found, here, policy, facts_for(found.action))


def logs(broker: Broker, view: JobView, attempt: int | None = None, node: int | None = None) -> Iterator[str]:
    """The lines that the job's command printed, oldest first: of all attempts or of one. ``node``: only those of that
    node, read from the run folder. Raises `InvalidInput` for a node that the job does not have, `Unreachable`."""
    if node is not None and node >= view.job.num_nodes:
        raise InvalidInput(f"{view.id} has no node {node}; its nodes are 0 to {view.job.num_nodes - 1}")
    for candidate in view.attempts:
        if attempt not in (None, candidate.number):
            continue
        if node is not None:
            from broker.app.service.reconciler_setup import run_folders  # needs the object store

            yield from run_folders(broker).of(view.id).logs(candidate.number, node)
        elif candidate.handle is not None:
            yield from broker.engine(candidate.engine).logs(candidate.handle)


def every_attempt(broker: Broker, view: JobView) -> Sequence[AttemptView]:
    """All attempts of the job, in order, also those that its view only counts. Raises `UnreadableJob`."""
    if not view.folded:
        return view.attempts
    return lifecycle.every_attempt(events(broker, view))


def failed_tasks(broker: Broker, view: JobView) -> Sequence[JobView]:
    """The first tasks of an array that failed, at most 20; none of any other job."""
    if view.job.array is None:
        return []
    with broker.store.reading() as look:
        return look.tasks_of(view.id, [JobState.FAILED.value], limit=_FAILED_SHOWN)


def waiting_for_people(view: JobView) -> bool:
    """Whether the job goes on only after a person acts."""
    return view.state in (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the running attempt at its last heartbeat (``seen_at``, UTC). ``finish`` (UTC): extrapolated from
    the steps of this attempt, else the plan's; None if neither is known."""

    step: int | None
    total: int | None
    phase: str
    seen_at: datetime | None
    finish: datetime | None


def progress(broker: Broker, view: JobView) -> Progress | None:
    """The progress of the job; None if nothing runs, or its run folder cannot be read at the moment."""
    from broker.app.service.reconciler_setup import run_folders  # needs the object store, which most commands do not

    attempt = view.latest
    if attempt is None or attempt.state.final or attempt.handle is None:
        return None
    try:
        node = run_folders(broker).read(view, attempt)
    except BrokerError:
        return None
    finish = attempt.placement.finish
    done = (node.step or 0) - (attempt.resumed_step or 0)
    if attempt.running_at is not None and node.heartbeat_at is not None and node.total and done > 0:
        pace = (node.heartbeat_at - attempt.running_at) / done
        finish = node.heartbeat_at + pace * max(node.total - (node.step or 0), 0)
    return Progress(node.step, node.total, node.phase, node.heartbeat_at, finish)


def last_step(view: JobView) -> int | None:
    """The last step of the latest attempt, or the step of the last checkpoint."""
    latest, checkpoint = view.latest, view.checkpoint
    if latest is not None and latest.last_step is not None:
        return latest.last_step
    return checkpoint.step if checkpoint else None


def events(broker: Broker, view: JobView) -> Sequence[ev.Event]:
    """The job's stream, in order."""
    with broker.store.reading() as look:
        return look.events(view.id)


def page(broker: Broker, wanted: WantedJobs, *, after: JobPlace | None, limit: int) -> FoundPage:
    """One page of the jobs that match, newest first."""
    with broker.store.reading() as look:
        return look.job_page(wanted, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs that match, newest first. ``unreadable``: those among them that this version cannot read."""

    views: Sequence[JobView]
    unreadable: Sequence[UnreadableJob]


def search(
    broker: Broker,
    *,
    states: Sequence[JobState] = (),
    user: str | None = None,
    team: str | None = None,
    limit: int | None = None,
    array: str | None = None,
) -> FoundJobs:
    """The jobs that match all criteria, newest first; with ``array``, an id, its tasks in these states instead, in the
    order of their start. ``limit``: None: all."""
    with broker.store.reading() as look:
        if array is not None:
            tasks = look.tasks_of(array, [state.value for state in states], limit=limit)
            return FoundJobs(tasks, look.unreadable)
        views = look.jobs(states=[state.value for state in states], user=user, team=team, limit=limit)
        return FoundJobs(views, look.unreadable)
