"""The reconciler: brings what is, and what should be, together, one job and one step at a time.

Each step is decided by `decide.next_steps` from the stored events alone, taken here, and recorded before the next one
is decided. So it may be killed anywhere: the next tick, in whatever process, goes on from the events. Intent is
written before the effect, and no engine, object store or provider is called inside a transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from broker.core.errors import (
    BrokerError,
)
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.ports import Engine, EngineState
from broker.core.values.clock import Clock
from broker.ledger.entries import Balance, balances
from broker.ledger.journal import Journal, NoLongerCurrent, Writing, writing_if
from broker.reconciler import decide
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.admission.launch_check import LaunchCheck
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.interpret import Patience, Silence, news
from broker.reconciler.isolation import isolated
from broker.reconciler.launching import Launching
from broker.reconciler.leases import EdgesAhead, IdleLimits, Leases, MaxUnattended
from broker.reconciler.progress import billed_time
from broker.reconciler.removal import Removals
from broker.reconciler.settlement.batch import Settling, post_due
from broker.reconciler.settlement.settlement import release
from broker.reconciler.signals import Signals
from broker.reconciler.visit_order import in_turn
from broker.reconciler.worklist import Worklist
from broker.runfolder.mailbox import Mailbox
from broker.runfolder.node_state import Dated

log = logging.getLogger(__name__)

# For how long a look waits for calls of engines that it began, and the last one for those under way: seconds of
# the wall clock.
_A_MOMENT, _LAST_WAIT = 0.1, 5.0
# More steps than a job can sensibly take in one tick (launch, end, pause, close …); a guard against a loop.
_STEPS_PER_TICK = 8


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take. ``settle_every``, ``patience`` and ``grace`` are in the broker's time."""

    settle_every: timedelta = timedelta(seconds=60)
    patience: Patience = field(default_factory=Patience)
    grace: timedelta = timedelta(minutes=2)
    retry_place: timedelta = timedelta(seconds=15)

    def scaled(self, factor: float) -> Timing:
        """For a sandbox that runs faster: silence is caused by processes, and those run in wall-clock time."""
        return replace(
            self,
            patience=self.patience.scaled(factor),
            grace=self.grace * factor,
            retry_place=max(self.retry_place, timedelta(seconds=1) * factor),
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """What one look brought: jobs not closed, of them those that only wait for a person, and steps taken."""

    open: int
    waiting_for_people: int
    steps: int

    @property
    def idle(self) -> bool:
        """Nothing is left that time alone could change."""
        return self.open == self.waiting_for_people


Placer = Callable[[JobView], bool]
"""Plans, judges and requests the next attempt of a job, or records why not; whether to look at it at once again."""


Enforcer = Callable[[JobView, Mapping[MoneyKind, Balance]], bool]
"""Lets the policies judge what runs, with the job's balances; whether it was told to stop."""


class Reconciler:
    """Looks after every job of one store. One at a time per store; a second one would only lose races."""

    def __init__(
        self,
        journal: Journal,
        engines: Callable[[str], Engine],
        mailbox: Mailbox,
        clock: Clock,
        place: Placer,
        check: LaunchCheck,
        timing: Timing | None = None,
        secrets: Callable[[JobView], Mapping[str, str]] = lambda view: {},
        enforce: Enforcer = lambda view, money: False,
        max_unattended: MaxUnattended = lambda job: None,
        idle_limits: IdleLimits = lambda view: (),
        edges_ahead: EdgesAhead = lambda view, kind: (),
        store_id: str = "",
        calls: EngineCalls | None = None,
    ) -> None:
        self._journal = journal
        self._engines = engines
        self._mailbox = mailbox
        self._clock = clock
        self._place = place
        self._timing = timing or Timing()
        self._enforce = enforce
        self._silence = Silence(self._timing.patience.heartbeat / 4)
        self._worklist = Worklist(journal)
        self._leases = Leases(mailbox, self._worklist, max_unattended, idle_limits, edges_ahead)
        self._settling = Settling(journal, self._timing.settle_every)
        self._signals = Signals(engines, mailbox, self._leases)
        self._calls = calls or EngineCalls()
        self._removals = Removals(engines, self._calls)
        self._launching = Launching(
            self._append, engines, mailbox, self._leases, clock, check, self._calls, secrets,
            self._timing.patience.start, store_id,
        )  # fmt: skip
        self._next_try: dict[str, datetime] = {}

    def tick(self) -> Tick:
        """Look at every open job once. One job's trouble is logged and does not keep the others waiting."""
        views = self._worklist.look()
        self._leases.begin_look()
        self._signals.look(views)
        steps = waiting = 0
        for view in in_turn(views, self._clock.now()):
            taken, people = self._visit(view)
            steps += taken
            waiting += people
        steps += self._take_up()
        with isolated("settling what runs"):
            self._settling.settle(self._clock.now())
        return Tick(len(views), waiting, steps)

    def close(self) -> None:
        """No look follows. Calls of engines that do not end soon are left behind, as they are when the process is
        killed: whoever looks next asks the engine what came of them."""
        if left := self._calls.close(_LAST_WAIT):
            log.warning("%d calls of engines are left behind; the next look asks what came of them", left)

    def _visit(self, view: JobView) -> tuple[int, bool]:
        """As `_advance`; raises nothing."""
        try:
            return self._advance(view)
        except BrokerError as error:
            log.warning("job %s: %s", view.id, error)
        except Exception:  # a mistake of ours over one job must not leave all others alone
            log.exception("job %s: left for the next look", view.id)
        return 0, False

    def _take_up(self) -> int:
        """Go on with jobs whose calls of engines end within a moment, as most do; the others are for later looks. How
        many steps were taken."""
        steps, until = 0, time.monotonic() + _A_MOMENT
        while keys := self._calls.ended(max(until - time.monotonic(), 0.0)):
            for job_id in {key.rpartition("-")[0] for key in keys}:
                with isolated(f"job {job_id}: what its engine answered"):
                    view = self._worklist.again(job_id)
                    steps += self._visit(view)[0] if view is not None else 0
            if time.monotonic() >= until:
                break
        return steps

    def _advance(self, view: JobView) -> tuple[int, bool]:
        """Take steps until nothing changes; how many were taken, and whether the job now waits for a person."""
        taken, steps = 0, list[decide.Step]()
        for _ in range(_STEPS_PER_TICK):
            now = self._clock.now()
            money = balances(self._worklist.sums(view.id))
            steps = decide.next_steps(
                view,
                now,
                billed=billed_time(view, now),
                holds=any(balance.held for balance in money.values()),
                paid_until=self._leases.paid_until(view, now),
            )
            if not self._act(steps, view, money):
                break
            taken += 1
            fresh = self._worklist.again(view.id)
            if fresh is None:
                self._forget(view)
                return taken, False
            view = fresh
            self._forget_attempts(attempt for attempt in view.attempts if attempt.over)
        people = any(isinstance(step, decide.Wait) and step.until is None for step in steps)
        return taken, people

    def _act(self, steps: Sequence[decide.Step], view: JobView, money: Mapping[MoneyKind, Balance]) -> bool:
        """Take the steps, and judge what runs where they changed nothing. Whether to decide anew. The one place where a
        view that is no longer current is noticed."""
        changed = False
        for step in steps:
            try:
                with isolated(f"job {view.id}: {type(step).__name__.lower()}"):
                    changed |= self._take(step, view)
            except NoLongerCurrent:
                changed = True
        if changed:
            return True
        try:
            with isolated(f"job {view.id}: judging what runs"):
                return self._enforce(view, money)
        except NoLongerCurrent:
            return True
        return False

    def _take(self, step: decide.Step, view: JobView) -> bool:
        match step:
            case decide.MissDeadline():
                return self._append(view, (None, ev.DeadlineMissed()))
            case decide.Expire():
                return self._expire(view)
            case decide.Submit(attempt):
                return self._launching.submit(view, attempt)
            case decide.Abandon(attempt, cause):
                return self._launching.abandon(view, attempt, cause)
            case decide.Watch(attempt, remove):
                return self._watch(view, attempt, remove=remove)
            case decide.Stop(attempt, cause, why):
                return self._append(view, (attempt.number, ev.StopRequested(cause=cause, why=why)))
            case decide.Place():
                return self._try_to_place(view)
            case decide.Pause(reason):
                return self._append(view, (None, ev.Paused(reason=reason)))
            case decide.Release():
                return self._release(view)
            case decide.End(state, ending):
                return self._append(view, (None, ev.JobEnded(state=state, reason=ending)))
            case decide.Close():
                return self._append(view, (None, ev.JobClosed()), first=release_all)
            case decide.Wait():
                return False

    # --- the steps --------------------------------------------------------------------------------------------------

    def _try_to_place(self, view: JobView) -> bool:
        """Looking for a place costs a plan; a job that found none, noted or not, looks again only after a while."""
        now = self._clock.now()
        # A clock that was set back must not make it wait for the time that it showed before.
        if now < self._next_try.get(view.id, now) <= now + self._timing.retry_place:
            return False
        if self._place(view):
            return True
        self._next_try[view.id] = now + self._timing.retry_place
        return False

    def _expire(self, view: JobView) -> bool:
        """Nobody answered in time; unless somebody just did."""
        with writing_if(self._journal, view) as tx:
            refuse(tx, view, self._clock.now())
        return True

    def _watch(self, view: JobView, attempt: AttemptView, *, remove: bool) -> bool:
        """Record what is new of the attempt, with its money, and only then end a machine that has no business any
        more: an engine that fails to end it delays neither the record nor the bill."""
        if attempt.handle is None:
            return False
        now = self._clock.now()
        # Also while its engine does not answer: the node waits for our word.
        with isolated(f"job {view.id}, attempt {attempt.number}: its lease"):
            self._leases.keep(view, attempt, now)
        seen = self._signals.seen(attempt)
        if seen is None:
            return False
        node = self._signals.node(view, attempt)
        silent = self._silence.of(attempt.key, node.heartbeat_at, now)
        if seen.state is EngineState.QUEUED and attempt.claimed_at is None:
            self._silence.forget(attempt.key)
        found = news(attempt, node, seen, silent, now, self._timing.patience)
        there = seen.state in (EngineState.UP, EngineState.PENDING, EngineState.QUEUED)
        forgotten = seen.state is EngineState.LOST and any(isinstance(dated.body, ev.MachineGone) for dated in found)
        try:
            return self._record(view, attempt, found, now)
        finally:
            if there and (remove or self._removals.due(attempt, now, self._timing.grace)):
                self._remove(view, attempt, now)
            if forgotten:
                # Nobody will look at it again. Should it exist after all, it is ended, or ends itself when it can.
                with isolated(f"job {view.id}, attempt {attempt.number}: its lease"):
                    self._leases.withdraw(view, attempt, now)
                self._removals.remove(attempt, now)

    def _remove(self, view: JobView, attempt: AttemptView, now: datetime) -> None:
        """Have the attempt's machine ended; tell in the job's events, once, that its engine fails to do so."""
        because = self._removals.remove(attempt, now)
        if because is None or attempt.removal_delayed:
            return
        with isolated(f"job {view.id}, attempt {attempt.number}"), self._journal.writing() as tx:
            current = tx.job(view.id)
            known = None if current is None or current.closed else current.attempt(attempt.number)
            if known is not None and not known.gone and not known.removal_delayed:
                tx.append(view.id, [(attempt.number, ev.RemovalDelayed(because=because))], now)

    def _record(self, view: JobView, attempt: AttemptView, found: Sequence[Dated], now: datetime) -> bool:
        """Events and the money that follows from them, in one transaction. Where only money is due, it is settled
        together with that of other jobs."""
        if not found:
            self._settling.note(view, self._worklist.sums(view.id), self._worklist.meters(view.id), now)
            return False
        with writing_if(self._journal, view) as tx:
            for dated in found:
                view = tx.append(view.id, [(attempt.number, dated.body)], dated.at)
            post_due(tx, [view], now, self._timing.settle_every)
        return True

    def _release(self, view: JobView) -> bool:
        with writing_if(self._journal, view) as tx:
            release_all(tx, view, self._clock.now())
        return True

    def _forget(self, view: JobView) -> None:
        """The job is closed: nothing about it needs to be remembered."""
        self._next_try.pop(view.id, None)
        self._settling.forget(view.id)
        self._forget_attempts(view.attempts)

    def _forget_attempts(self, attempts: Iterable[AttemptView]) -> None:
        """Nobody looks at them again."""
        for attempt in attempts:
            self._leases.forget(attempt.key)
            self._launching.forget(attempt.key)
            self._calls.forget(attempt.key)
            self._removals.forget(attempt.key)
            self._silence.forget(attempt.key)

    def _append(
        self,
        view: JobView,
        *items: tuple[int | None, EventBody],
        first: Callable[[Writing, JobView, datetime], None] | None = None,
    ) -> bool:
        now = self._clock.now()
        with writing_if(self._journal, view) as tx:
            if first:
                first(tx, view, now)
            tx.append(view.id, items, now)
        return True


def release_all(tx: Writing, view: JobView, now: datetime) -> None:
    """Give back what the job still holds, after all its attempts were settled at the prices that are known now."""
    post_due(tx, [view], now, late=timedelta.max)
    tx.post(release(view, tx.sums([view.id]).get(view.id, ()), now))
