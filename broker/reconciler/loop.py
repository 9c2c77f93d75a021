"""The reconciler: brings actual and desired state of jobs together, one job and one step at a time.

`decide.next_steps` derives each step from the stored events alone; it is taken here and recorded before the next
decision. So the process may be killed at any point: the next tick, in any process, continues from the events. Intent is
written before the effect, and no engine, object store or provider is called inside a transaction.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import AttemptView, JobView
from broker.core.ports import EngineState
from broker.ledger.journal import StaleJobView
from broker.reconciler import decide
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.admission.launch_check import LaunchCheck
from broker.reconciler.admission.records import job_of
from broker.reconciler.controller import BACK_OFFS, Agenda, BackOff, JobContext, RetryReason, isolate_errors
from broker.reconciler.controllers.predecessors import AwaitPredecessors
from broker.reconciler.interpret import Silence, new_events
from broker.reconciler.launching import Launching, Removals, Secrets
from broker.reconciler.leases import Leases, NodeLimits, NoNodeLimits
from broker.reconciler.news_recorder import AT_ONCE, NewsRecorder
from broker.reconciler.ports import Controllers, ReconcilerPorts, Timing
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.batch import Settling
from broker.reconciler.signals import Signals
from broker.reconciler.visit_order import visit_order
from broker.reconciler.worklist import VisitTurns, Worklist, WorkQueue
from broker.store.store import append_if, writing_if

log = logging.getLogger(__name__)

# Seconds (wall clock) that a tick waits for answers of engines, before and after its visits, and that `close` waits for
# running calls.
_ANSWER_WAIT, _LAST_WAIT = 0.1, 5.0
# More steps than a job can take in one tick (launch, end, pause, close …); a guard against an endless loop.
_STEPS_PER_TICK = 8


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick: open jobs, those of them that only wait for a person, and steps taken."""

    open: int
    waiting_for_people: int
    steps: int

    @property
    def idle(self) -> bool:
        """Whether nothing is left that the passing of time alone could change."""
        return self.open == self.waiting_for_people


class Reconciler:
    """Runs the jobs of one store.

    A store should have one reconciler at a time; a second one does no harm, but its writes fail with
    `StaleJobView`.

    ``check``: judges requested launches again. ``limits``: limits that nodes enforce. ``secrets``: returns the secrets
    for a launch of a job. ``closing``: called before a job is closed.
    """

    def __init__(
        self,
        ports: ReconcilerPorts,
        controllers: Controllers,
        check: LaunchCheck,
        *,
        limits: NodeLimits | None = None,
        secrets: Secrets = lambda view: {},
        closing: Callable[[JobView], None] = lambda view: None,
        timing: Timing | None = None,
    ) -> None:
        self._journal, self._clock, self._calls = ports.journal, ports.clock, ports.calls
        self._timing = timing or Timing()
        self._place, self._tasks, self._following = (
            controllers.place,
            controllers.tasks,
            AwaitPredecessors(ports.journal),
        )
        self._judges = controllers.judges
        self._silence = Silence(self._timing.patience.heartbeat / 4)
        self._worklist, self._queue = Worklist(ports.journal), WorkQueue()
        self._turns = VisitTurns(self._timing.visits, self._worklist.balances)
        self._leases = Leases(ports.mailbox, self._worklist, limits or NoNodeLimits())
        self._settling = Settling(ports.journal, self._timing.settle_every)
        self._signals = Signals(ports, self._leases)
        self._removals = Removals(ports)
        self._recording = NewsRecorder(ports.journal, self._worklist, self._timing.settle_every, closing)
        self._recorded = Counter[str]()  # how often each job was recorded in this tick
        self._launching = Launching(ports, self._leases, check, secrets, self._timing.patience.start, self._recording)
        retry = self._timing.retry_place
        self._agenda = Agenda({**BACK_OFFS, RetryReason.NO_PLACE: BackOff(retry, retry)})

    def tick(self) -> Tick:
        """Visit every open job once; if very many run, those with news and some others.

        An error of one job is logged and does not delay the others. Raises `StoreProblem`.
        """
        views = self._worklist.look()
        self._recorded.clear()
        selected = self._turns.choose(views, {job_of(key) for key in self._leases.begin_tick()})
        selected |= {job_of(key) for key in self._signals.ask(views, _ANSWER_WAIT, selected)}
        self._turns.again(self._signals.unread)
        ordered = visit_order(views, self._clock.now())
        self._queue.add(view.id for view in ordered if view.id in selected and not self._signals.awaits(view))
        steps, waiting = self._work()
        with isolate_errors("settling what runs"):
            self._settling.settle(self._clock.now())
        return Tick(len(views), waiting, steps)

    def close(self) -> None:
        """End the work of this process. Engine calls that do not end soon are abandoned, as when the process is killed:
        the next process asks the engine for their results."""
        if left := self._calls.close(_LAST_WAIT):
            log.warning("%d engine calls are still running; the next tick asks the engines for their results", left)

    def _visit(self, view: JobView) -> tuple[int, bool]:
        """As `_advance`; raises nothing."""
        try:
            return self._advance(view)
        except BrokerError as error:
            log.warning("job %s: %s", view.id, error)
        except Exception:  # a bug with one job must not affect the others
            log.exception("job %s: left for the next tick", view.id)
        return 0, False

    def _work(self) -> tuple[int, int]:
        """Visit each job in the queue, and those whose engine calls end within a moment, as most do; the rest is
        visited in later ticks. Returns the number of steps taken and of jobs that wait for a person.
        """
        steps, waiting, until = 0, set[str](), 0.0
        while True:
            job_id = self._queue.next()
            if self._recording and (job_id is None or job_id in self._recording or len(self._recording) >= AT_ONCE):
                written = self._write()
                steps += len(written)
                waiting -= written
                if job_id is None:
                    continue
            if job_id is None:
                until = until or time.monotonic() + _ANSWER_WAIT
                left = until - time.monotonic()
                if left <= 0 or not self._collect_answers(left):
                    return steps, len(waiting)
                continue
            view = self._worklist.view(job_id)
            count, waits_for_person = self._visit(view) if view is not None else (0, False)
            steps += count
            (waiting.add if waits_for_person else waiting.discard)(job_id)
            self._collect_answers(0.0)

    def _write(self) -> set[str]:
        """Record the noted events, and queue their jobs for the next steps; returns the ids of these jobs.

        A job that has not changed could not be recorded, and waits for the next tick, so that a failing store is not
        tried repeatedly in this one.
        """
        try:
            written = self._recording.write(self._clock.now())
        except BrokerError as error:
            log.warning("%s (%s)", error, error.hint)
            return set()
        except Exception:  # as for a visit: the next tick reads these jobs again
            log.exception("the recorded events cannot be read")
            return set()
        for id, view in reversed(list(written.items())):
            current = self._worklist.view(id)
            if current is None:
                self._forget(view)
                continue
            self._forget_attempts(attempt for attempt in current.attempts if attempt.over)
            self._recorded[id] += 1
            if current.seq != view.seq and self._recorded[id] < _STEPS_PER_TICK:
                self._queue.news(id)
        return set(written)

    def _collect_answers(self, seconds: float) -> bool:
        """Move jobs whose engine calls have ended to the front of the queue; returns whether there were any. Waits up
        to ``seconds`` (wall clock) for the first one."""
        ended = self._calls.ended(seconds)
        reported = {key: self._signals.take(key) for key in ended}
        with isolate_errors("jobs whose engine answered"):
            self._worklist.refresh([job_of(key) for key, attempts in reported.items() if attempts is None])
        for key, attempts in reported.items():
            for job_id in {job_of(attempt) for attempt in ([key] if attempts is None else attempts)}:
                with isolate_errors(f"job {job_id}: what its engine answered"):
                    if self._worklist.view(job_id) is not None:
                        self._queue.news(job_id)
                    else:  # closed: its outcome is not read
                        self._calls.forget(key)
        return bool(ended)

    def _advance(self, view: JobView) -> tuple[int, bool]:
        """Take steps until nothing changes; returns their number, and whether the job now waits for a person."""
        step_count, steps = 0, list[decide.Step]()
        for _ in range(_STEPS_PER_TICK):
            now = self._clock.now()
            money = self._worklist.known(view.id)
            context = JobContext(view, now, self._worklist.money(view.id), known=money)
            steps = decide.next_steps(
                view,
                now,
                billed=billed_time(view, now),
                holds=any(balance.held for balance in context.money.values()),
                paid_until=self._leases.paid_until(view, now),
            )
            if not self._act(steps, context) or view.id in self._recording:
                break
            step_count += 1
            current = self._worklist.again(view.id)
            if current is None:
                self._forget(view)
                return step_count, False
            view = current
            self._forget_attempts(attempt for attempt in view.attempts if attempt.over)
        waits_for_person = any(isinstance(step, decide.Wait) and step.until is None for step in steps)
        # A job with predecessors proceeds when they end. An array waits for its tasks, unless it just started some or
        # could not start any.
        waits_for_person |= not step_count and any(isinstance(step, decide.AwaitJobs) for step in steps)
        waits_for_person |= (
            not step_count and view.waiting is None and any(isinstance(step, decide.RunTasks) for step in steps)
        )
        return step_count, waits_for_person

    def _act(self, steps: Sequence[decide.Step], context: JobContext) -> bool:
        """Take the steps, and run the judges if they changed nothing. Returns whether to decide again."""
        changed = False
        for step in steps:
            changed |= self._try_step(partial(self._take, step), context, type(step).__name__.lower())
        for judge in () if self._recording.delays_judges(context.view.id) else self._judges:
            changed = changed or self._try_step(partial(self._agenda.ask, judge), context, "judging what runs")
        return changed

    def _try_step(self, step: Callable[[JobContext], bool], context: JobContext, action: str) -> bool:
        """Whether the call changed the job, or failed because the job had changed: the only code that handles
        `StaleJobView`.
        """
        try:
            with isolate_errors(f"job {context.view.id}: {action}"):
                return step(context)
        except StaleJobView:
            return True
        return False

    def _take(self, step: decide.Step, context: JobContext) -> bool:
        view = context.view
        match step:
            case decide.MissDeadline() | decide.Stop() | decide.HandOver() | decide.Pause() | decide.End():
                return self._append(view, _event_of(step))
            case decide.Expire():
                return self._expire(view)
            case decide.Submit(attempt):
                return self._agenda.ask(self._launching, replace(context, attempt=attempt))
            case decide.Abandon(attempt, cause):
                return self._agenda.ask(self._launching, replace(context, attempt=attempt, cause=cause))
            case decide.Observe(attempt, remove):
                return self._watch(replace(context, attempt=attempt), attempt, remove=remove)
            case decide.Place():
                return self._agenda.ask(self._place, context)
            case decide.RunTasks():
                return self._tasks is not None and self._agenda.ask(self._tasks, context)
            case decide.AwaitJobs():
                return self._agenda.ask(self._following, context)
            case decide.Release():
                self._recording.release(view, self._clock.now())
                return True
            case decide.Close():
                self._recording.close(view, self._clock.now())
                return True
            case decide.Wait():
                return False

    # --- the steps --------------------------------------------------------------------------------------------------

    def _expire(self, view: JobView) -> bool:
        """Refuse the expired approval request, unless it was answered meanwhile."""
        with writing_if(self._journal, view) as tx:
            refuse(tx, view, self._clock.now())
        return True

    def _watch(self, context: JobContext, attempt: AttemptView, *, remove: bool) -> bool:
        """Note new events of the attempt.

        Once they are recorded with their cost, end the machine if it is no longer needed, so that an engine that fails
        to end it delays neither the record nor the bill.
        """
        if attempt.handle is None:
            return False
        view, now = context.view, context.now
        # Even if its engine does not answer: the node depends on its lease.
        with isolate_errors(f"job {view.id}, attempt {attempt.number}: its lease"):
            self._leases.keep(view, attempt, now)
        signal = self._signals.of(attempt)
        if signal is None:
            return False
        observation, node = signal.seen, signal.news_for(attempt)
        silent = self._silence.of(attempt.key, node.heartbeat_at, now)
        if observation.state is EngineState.QUEUED and attempt.claimed_at is None:
            self._silence.forget(attempt.key)
        events = new_events(attempt, node, observation, silent, now, self._timing.patience)
        exists = observation.state in (EngineState.UP, EngineState.PENDING, EngineState.QUEUED)
        forgotten = observation.state is EngineState.LOST and any(
            isinstance(dated.body, ev.MachineGone) for dated in events
        )
        removing = exists and (remove or self._removals.due(attempt, now, self._timing.grace))
        afterwards = partial(self._end_machine, context, attempt, removing=removing, forgotten=forgotten)
        if events:
            self._recording.note(view, [(dated.at, attempt.number, dated.body) for dated in events], afterwards)
        else:  # due entries are settled together with those of other jobs
            self._settling.note(view, self._worklist.sums(view.id), self._worklist.meters(view.id), now)
            afterwards()
        return False

    def _end_machine(self, context: JobContext, attempt: AttemptView, *, removing: bool, forgotten: bool) -> None:
        """End the attempt's machine if it is no longer needed; ``forgotten``: its engine does not know it any more."""
        if removing:
            self._agenda.ask(self._removals, context)
        if forgotten:
            # The attempt is not visited again. If its machine still exists, the engine ends it, or it stops itself by
            # its lease.
            with isolate_errors(f"job {context.view.id}, attempt {attempt.number}: its lease"):
                self._leases.withdraw(context.view, attempt, context.now)
            self._agenda.ask(self._removals, context)

    def _forget(self, view: JobView) -> None:
        """The job is closed: drop its state."""
        self._agenda.forget(view.id)
        self._settling.forget(view.id)
        self._recording.forget(view.id)
        self._forget_attempts(view.attempts)

    def _forget_attempts(self, attempts: Iterable[AttemptView]) -> None:
        """Drop the state of attempts that are not visited again."""
        for attempt in attempts:
            self._leases.forget(attempt.key)
            self._agenda.forget(attempt.key)
            self._calls.forget(attempt.key)
            self._silence.forget(attempt.key)

    def _append(self, view: JobView, item: tuple[int | None, EventBody]) -> bool:
        append_if(self._journal, view, [item], self._clock.now())
        return True


def _event_of(
    step: decide.MissDeadline | decide.Stop | decide.HandOver | decide.Pause | decide.End,
) -> tuple[int | None, EventBody]:
    """The event that carries out a step that needs nothing else, with the number of its attempt."""
    match step:
        case decide.MissDeadline():
            return None, ev.DeadlineMissed()
        case decide.Stop(attempt, cause, reason):
            return attempt.number, ev.StopRequested(cause=cause, reason=reason)
        case decide.HandOver(attempt):
            return attempt.number, ev.HandedOver()
        case decide.Pause(reason):
            return None, ev.Paused(reason=reason)
        case decide.End(state, ending):
            return None, ev.JobEnded(state=state, reason=ending)
