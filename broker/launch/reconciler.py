"""The reconciler: brings what is, and what should be, together, one job and one step at a time.

Each step is decided by `decide.next_steps` from the stored events alone, taken here, and recorded before the next one
is decided. So it may be killed anywhere: the next tick, in whatever process, goes on from the events. Intent is
written before the effect, and no engine, object store or provider is called inside a transaction.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from broker.core import events as ev
from broker.core.clock import Clock
from broker.core.errors import AskAPerson, BrokerError, GiveUp, RetryLater, TryAnotherOffer
from broker.core.events import EventBody
from broker.core.offers import MoneyKind
from broker.core.outcomes import Cause
from broker.core.ports import Engine, EngineState, Launch, Observation
from broker.core.views import AttemptView, JobView
from broker.launch import decide
from broker.launch.approvals import refuse
from broker.launch.interpret import Dated, NodeState, Patience, Silence, must_be_removed, news
from broker.launch.journal import Journal, Writing
from broker.launch.leases import IdleLimits, Leases, MaxUnattended
from broker.launch.mailbox import Lease, Mailbox
from broker.launch.progress import billed_time
from broker.launch.settlement import release, settle
from broker.launch.settling import Settling
from broker.launch.turns import in_turn
from broker.launch.worklist import Worklist
from broker.ledger.entries import Balance, balances

log = logging.getLogger(__name__)

# More steps than a job can sensibly take in one tick (launch, end, pause, close …); a guard against a loop.
_STEPS_PER_TICK = 8

# So many run folders are read at the same time, where there are enough of them to be worth it.
_READERS, _WORTH_THREADS, _A_READERS_LOT = 16, 32, 32


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
        timing: Timing | None = None,
        secrets: Callable[[JobView], Mapping[str, str]] = lambda view: {},
        enforce: Enforcer = lambda view, money: False,
        max_unattended: MaxUnattended = lambda job: None,
        idle_limits: IdleLimits = lambda view: (),
        store_id: str = "",
    ) -> None:
        self._journal = journal
        self._engines = engines
        self._mailbox = mailbox
        self._clock = clock
        self._place = place
        self._timing = timing or Timing()
        self._secrets = secrets
        self._enforce = enforce
        self._store_id = store_id
        self._silence = Silence(self._timing.patience.heartbeat / 4)
        self._worklist = Worklist(journal)
        self._leases = Leases(mailbox, self._worklist, max_unattended, idle_limits)
        self._settling = Settling(journal, self._timing.settle_every)
        self._nodes: dict[str, NodeState] = {}
        self._next_try: dict[str, datetime] = {}

    def tick(self) -> Tick:
        """Look at every open job once. One job's trouble is logged and does not keep the others waiting."""
        views = self._worklist.look()
        self._leases.begin_look()
        observations = self._observe(views)
        self._nodes = self._read_all(views, observations)
        steps = waiting = 0
        for view in in_turn(views, self._clock.now()):
            try:
                taken, people = self._advance(view, observations)
                steps += taken
                waiting += people
            except BrokerError as error:
                log.warning("job %s: %s", view.id, error)
            except Exception:  # a mistake of ours over one job must not leave all others alone
                log.exception("job %s: left for the next look", view.id)
        self._settling.settle(self._clock.now())
        return Tick(len(views), waiting, steps)

    def _observe(self, views: Sequence[JobView]) -> dict[str, Observation]:
        """One batched look per engine; engines that do not answer are left out this time. By attempt key."""
        by_engine: dict[str, dict[str, str]] = defaultdict(dict)
        for view in views:
            for attempt in view.attempts:
                if attempt.handle is not None and not attempt.over:
                    by_engine[attempt.engine][attempt.handle] = attempt.key
        seen: dict[str, Observation] = {}
        for name, keys in by_engine.items():
            try:
                found = self._engines(name).observe(list(keys))
            except BrokerError as error:
                log.warning("engine %s does not answer: %s", name, error)
                continue
            seen |= {key: found[handle] for handle, key in keys.items()}
        return seen

    def _advance(self, view: JobView, observations: Mapping[str, Observation]) -> tuple[int, bool]:
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
            changed = False
            for step in steps:
                changed |= self._take(step, view, observations)
            if not changed:
                changed = self._enforce(view, money)
            if not changed:
                break
            taken += 1
            fresh = self._worklist.again(view.id)
            if fresh is None:
                self._forget(view)
                return taken, False
            view = fresh
        people = any(isinstance(step, decide.Wait) and step.until is None for step in steps)
        return taken, people

    def _take(self, step: decide.Step, view: JobView, observations: Mapping[str, Observation]) -> bool:
        match step:
            case decide.MissDeadline():
                return self._append(view, (None, ev.DeadlineMissed()))
            case decide.Expire():
                return self._expire(view)
            case decide.Submit(attempt):
                return self._submit(view, attempt)
            case decide.Abandon(attempt, cause):
                return self._abandon(view, attempt, cause)
            case decide.Watch(attempt, remove):
                return self._watch(view, attempt, observations.get(attempt.key), remove=remove)
            case decide.Stop(attempt, cause, why):
                return self._append(view, (attempt.number, ev.StopRequested(cause=cause, why=why)))
            case decide.Place():
                return self._try_to_place(view)
            case decide.Pause(why):
                return self._append(view, (None, ev.Paused(because=why)))
            case decide.Release():
                return self._release(view)
            case decide.End(state, why):
                return self._append(view, (None, ev.JobEnded(state=state, because=why)))
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
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is not None and current.seq == view.seq:
                refuse(tx, current, self._clock.now())
        return True

    def _submit(self, view: JobView, attempt: AttemptView) -> bool:
        """Find the attempt or launch it. Only what the engine itself answers to the launch may end the attempt: before
        that, nobody knows whether an earlier process has launched it already."""
        try:
            engine = self._engines(attempt.engine)
            handle = engine.find(attempt.key)
            if handle is None:
                self._mailbox.prepare(view, attempt, self._leases.granted(view, attempt, self._clock.now()))
                secrets = self._secrets(view)
        except BrokerError as error:
            return self._delayed(view, attempt, error)
        if handle is None:
            folder = self._mailbox.url(view, attempt)
            launch = Launch(attempt.key, view.job, attempt.placement, folder, secrets, self._store_id)
            try:
                handle = engine.submit(launch)
            except TryAnotherOffer as error:
                return self._launch_failed(view, attempt, Cause.NO_CAPACITY, error)
            except RetryLater as error:
                if self._clock.now() - attempt.requested_at > self._timing.patience.start:
                    return self._abandon(view, attempt, Cause.LAUNCH_FAILED, str(error))
                return self._delayed(view, attempt, error)
            except (AskAPerson, GiveUp) as error:
                return self._launch_failed(view, attempt, Cause.LAUNCH_REFUSED, error)
        return self._append(view, (attempt.number, ev.Launched(handle=handle)))

    def _delayed(self, view: JobView, attempt: AttemptView, error: BrokerError) -> bool:
        """Try again with the next look; say why, once."""
        because = f"{error} ({error.hint})" if error.hint else str(error)
        log.warning("job %s, attempt %s: %s; trying again", view.id, attempt.number, because)
        if because != view.waiting_because:
            self._append(view, (attempt.number, ev.LaunchDelayed(because=because)))
        return False

    def _launch_failed(self, view: JobView, attempt: AttemptView, cause: Cause, error: BrokerError) -> bool:
        evidence = f"{error} ({error.hint})" if error.hint else str(error)
        return self._append(view, (attempt.number, ev.AttemptEnded(cause=cause, evidence=evidence)))

    def _abandon(self, view: JobView, attempt: AttemptView, cause: Cause, evidence: str = "never launched") -> bool:
        """A request that may or may not have reached its engine before a crash: find out, and only then let it go."""
        handle = self._engines(attempt.engine).find(attempt.key)
        if handle is not None:
            return self._append(view, (attempt.number, ev.Launched(handle=handle)))
        try:  # Should a machine of it still come up, it finds this and goes away.
            self._mailbox.prepare(view, attempt, Lease(stop=cause))
        except BrokerError as error:
            log.warning("job %s, attempt %s: no word could be left for it: %s", view.id, attempt.number, error)
        return self._append(view, (attempt.number, ev.AttemptEnded(cause=cause, evidence=evidence)))

    def _watch(self, view: JobView, attempt: AttemptView, seen: Observation | None, *, remove: bool) -> bool:
        if attempt.handle is None:
            return False
        now = self._clock.now()
        self._leases.keep(view, attempt, now)  # also while its engine does not answer: the node waits for our word
        if seen is None:
            return False
        node = self._nodes.pop(attempt.key, None) or self._read(view, attempt)
        silent = self._silence.of(attempt.key, node.heartbeat_at, now)
        found = news(attempt, node, seen, silent, now, self._timing.patience)
        there = seen.state in (EngineState.UP, EngineState.PENDING)
        if there and (remove or must_be_removed(attempt, now, self._timing.grace)):
            self._engines(attempt.engine).cancel(attempt.handle)
        if seen.state is EngineState.LOST and any(isinstance(dated.body, ev.MachineGone) for dated in found):
            # Nobody will look at it again. Should it exist after all, it is ended, or ends itself as soon as it can.
            self._leases.withdraw(view, attempt, now)
            self._engines(attempt.engine).cancel(attempt.handle)
        return self._record(view, attempt, found, now)

    def _read_all(self, views: Sequence[JobView], seen: Mapping[str, Observation]) -> dict[str, NodeState]:
        """The run folders of all that is observed, after it was: what a dead machine wrote is complete. Side by side,
        as each waits for its object store."""
        wanted = [
            (view, attempt) for view in views for attempt in view.attempts if not attempt.over and attempt.key in seen
        ]
        if len(wanted) < _WORTH_THREADS:
            return {}
        some = [wanted[first : first + _A_READERS_LOT] for first in range(0, len(wanted), _A_READERS_LOT)]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="run-folders") as readers:
            found = readers.map(self._read_lot, some)
            return {key: node for lot in found for key, node in lot.items()}

    def _read_lot(self, lot: Sequence[tuple[JobView, AttemptView]]) -> dict[str, NodeState]:
        for view, attempt in lot:
            self._leases.find(view, attempt)
        return {attempt.key: self._read(view, attempt) for view, attempt in lot}

    def _read(self, view: JobView, attempt: AttemptView) -> NodeState:
        """The run folder as far as it can be read. One that makes no sense is as good as silent."""
        try:
            return self._mailbox.read(view, attempt)
        except RetryLater as error:
            log.warning("job %s, attempt %s: %s", view.id, attempt.number, error)
            return NodeState(unreachable=True)
        except BrokerError as error:
            log.warning("job %s, attempt %s: %s", view.id, attempt.number, error)
            return NodeState()

    def _record(self, view: JobView, attempt: AttemptView, found: Sequence[Dated], now: datetime) -> bool:
        """Events and the money that follows from them, in one transaction; nothing if somebody was faster. Where only
        money is due, it is settled together with that of other jobs."""
        if not found:
            self._settling.note(view, self._worklist.sums(view.id), self._worklist.price_series, now)
            return False
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is None or current.seq != view.seq:
                return True  # look again
            for dated in found:
                current = tx.append(view.id, [(attempt.number, dated.body)], dated.at)
            tx.post(settle(current, tx.entries(view.id), tx.price_series, now, self._timing.settle_every))
        return True

    def _release(self, view: JobView) -> bool:
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is not None and current.seq == view.seq:
                release_all(tx, current, self._clock.now())
        return True

    def _forget(self, view: JobView) -> None:
        """The job is closed: nothing about it needs to be remembered."""
        self._next_try.pop(view.id, None)
        self._settling.forget(view.id)
        for attempt in view.attempts:
            self._leases.forget(attempt.key)
            self._silence.forget(attempt.key)

    def _append(
        self,
        view: JobView,
        *items: tuple[int | None, EventBody],
        first: Callable[[Writing, JobView, datetime], None] | None = None,
    ) -> bool:
        now = self._clock.now()
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is None or current.seq != view.seq:
                return True
            if first:
                first(tx, current, now)
            tx.append(view.id, items, now)
        return True


def release_all(tx: Writing, view: JobView, now: datetime) -> None:
    """Give back what the job still holds."""
    tx.post(release(view, tx.entries(view.id), now))
