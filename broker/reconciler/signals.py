"""Queries engines and reads run folders outside the loop, with few and parallel calls: a slow engine delays no jobs of
other engines.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import ThreadPool

from broker.core.errors import BrokerError, RetryLater
from broker.core.events.views import AttemptView, JobView
from broker.core.ports import Engine, EngineState, Observation
from broker.engines.runfolder.mailbox import NodeState
from broker.reconciler.controller import isolate_errors
from broker.reconciler.engine_calls import Purpose
from broker.reconciler.leases import Leases
from broker.reconciler.ports import ReconcilerPorts

log = logging.getLogger(__name__)

# Threads that read run folders, and run folders per thread that make a thread worthwhile.
_READERS, _BATCH_SIZE = 16, 32
# The number of ticks for which a job waits for its engine's answer before it is visited without it.
_MAX_WAIT_TICKS = 3

Wanted = Sequence[tuple[JobView, AttemptView]]


@dataclass(frozen=True, slots=True)
class Signal:
    """The reports about an attempt: its engine's, then that of its run folder.

    ``known``: the number of the agent's events that were recorded before.
    """

    seen: Observation
    node: NodeState
    known: int

    def news_for(self, attempt: AttemptView) -> NodeState:
        """The run folder without the journal entries recorded since it was read."""
        return replace(self.node, journal=self.node.journal[max(attempt.agent_events - self.known, 0) :])


class Signals:
    """Collects the reports about all attempts. ``leases``: prefetched along with the run folders."""

    def __init__(self, ports: ReconcilerPorts, leases: Leases) -> None:
        self._ports = ports
        self._leases = leases
        self._signals: dict[str, Signal] = {}
        self._unanswered = Counter[str]()  # by engine: ticks since a query that it has not answered
        self._asked: dict[str, Collection[str]] = {}  # by engine: the attempts that its last call was to report
        self._seen: dict[str, Mapping[str, Observation]] = {}  # by engine: its last reports, by attempt
        self.unread: set[str] = set()
        """The jobs in ``reading`` of the last `ask` whose engine has not answered an earlier query."""

    def ask(self, views: Sequence[JobView], seconds: float, reading: Set[str]) -> Collection[str]:
        """Query each engine once for all machines of these jobs, and read run folders.

        Reads the run folders of the jobs in ``reading`` (ids), of attempts that are not up, and of those whose engine
        reports a change. Waits at most ``seconds`` (wall clock) for the answers. Returns the keys of the attempts with
        a report. Raises nothing: a failing engine has no report in this tick.
        """
        self._signals, self.unread = {}, set()
        by_engine: dict[str, list[tuple[JobView, AttemptView]]] = defaultdict(list)
        for view in views:
            for attempt in view.attempts:
                if attempt.handle is not None and not attempt.over:
                    by_engine[attempt.engine].append((view, attempt))
        pending = []
        for name, pairs in by_engine.items():
            if self._unanswered[name]:
                self.unread |= {view.id for view, _ in pairs} & reading
            else:
                self._asked[name] = [attempt.key for view, attempt in pairs if view.id in reading]
            with isolate_errors(f"engine {name} does not answer"):
                query = partial(self._look, self._ports.engines(name), pairs, reading)
                outcome = self._ports.calls.make(_key(name), _key(name), Purpose.OBSERVE, query)
                if outcome is None:
                    self._unanswered[name] += 1
                    pending.append(_key(name))
                    continue
                del self._unanswered[name]
                if outcome.error is not None:
                    raise outcome.error
                self._signals |= outcome.value
        self._ports.calls.wait(pending, seconds)
        return self._signals.keys()

    def take(self, key: str) -> Collection[str] | None:
        """The attempts reported by the finished call with that key; if it failed, those that it was to report, so that
        their jobs continue. None if it is not a call of this class.
        """
        name = key.removeprefix(_key(""))
        if name == key:
            return None
        del self._unanswered[name]
        outcome = self._ports.calls.taken(key, Purpose.OBSERVE)
        if outcome is not None and outcome.error is not None:
            with isolate_errors(f"engine {name} does not answer"):
                raise outcome.error
            return self._asked[name]
        signals: Mapping[str, Signal] = outcome.value or {} if outcome is not None else {}
        self._signals |= signals
        return signals.keys()

    def awaits(self, view: JobView) -> bool:
        """Whether to postpone the visit to the job until its engine has answered."""
        return any(
            0 < self._unanswered[attempt.engine] <= _MAX_WAIT_TICKS
            for attempt in view.attempts
            if attempt.handle is not None and not attempt.over
        )

    def of(self, attempt: AttemptView) -> Signal | None:
        """The report about the attempt in this tick; None if its engine has not answered."""
        return self._signals.get(attempt.key)

    def _look(self, engine: Engine, pairs: Wanted, reading: Set[str]) -> dict[str, Signal]:
        """Query the engine, then read the run folders of the machines that it knows.

        In this order, the run folder of a machine reported as ended is complete.
        """
        observations = engine.observe([attempt.handle for _, attempt in pairs if attempt.handle is not None])
        previous = self._seen.get(engine.name, {})
        reports = {
            candidate.key: observations[candidate.handle]
            for _, candidate in pairs
            if candidate.handle is not None and candidate.handle in observations
        }
        readable = [
            (view, attempt)
            for view, attempt in pairs
            if attempt.key in reports
            and (
                view.id in reading
                or reports[attempt.key] != previous.get(attempt.key)
                or not _is_up(reports[attempt.key])
            )
        ]
        self._seen[engine.name] = reports
        nodes = self._read_all(readable)
        return {
            attempt.key: Signal(observations[attempt.handle], node, attempt.agent_events)
            for (_, attempt), node in zip(readable, nodes, strict=True)
            if attempt.handle is not None
        }

    def _read_all(self, pairs: Wanted) -> list[NodeState]:
        """Read run folders concurrently, as each read waits for its object store."""
        batches = [pairs[first : first + _BATCH_SIZE] for first in range(0, len(pairs), _BATCH_SIZE)]
        if len(batches) < 2:
            return self._read_batch(pairs)
        # Its threads are daemons: one that hangs must not keep the process from ending.
        with ThreadPool(min(_READERS, len(batches))) as readers:
            return [node for batch in readers.map(self._read_batch, batches) for node in batch]

    def _read_batch(self, batch: Wanted) -> list[NodeState]:
        for view, attempt in batch:
            with isolate_errors(f"job {view.id}, attempt {attempt.number}: its lease"):
                self._leases.find(view, attempt)
        return [self._read(view, attempt) for view, attempt in batch]

    def _read(self, view: JobView, attempt: AttemptView) -> NodeState:
        """The run folder as far as it can be read. A malformed one counts as silent."""
        try:
            return self._ports.mailbox.read(view, attempt)
        except RetryLater as error:
            log.warning("job %s, attempt %s: %s", view.id, attempt.number, error)
            return NodeState(unreachable=True)
        except BrokerError as error:
            log.warning("job %s, attempt %s: %s", view.id, attempt.number, error)
            return NodeState()
        except Exception:  # a bug with one run folder must not affect the others
            log.exception("job %s, attempt %s: its run folder cannot be read", view.id, attempt.number)
            return NodeState(unreachable=True)


def _is_up(observation: Observation) -> bool:
    return observation.state is EngineState.UP


def _key(engine: str) -> str:
    return f"observe {engine}"
