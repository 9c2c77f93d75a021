"""What engines and run folders show in one look of the reconciler, read in as few and as parallel questions as
possible."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from broker.core.errors import BrokerError, RetryLater
from broker.core.events.views import AttemptView, JobView
from broker.core.ports import Engine, Observation
from broker.reconciler.isolation import isolated
from broker.reconciler.leases import Leases
from broker.runfolder.mailbox import Mailbox
from broker.runfolder.node_state import NodeState

log = logging.getLogger(__name__)

# So many run folders are read at the same time, where there are enough of them to be worth it.
_READERS, _WORTH_THREADS, _A_READERS_LOT = 16, 32, 32


class Signals:
    """``engines``: the engine of a name. ``leases``: told beforehand which leases will be asked for."""

    def __init__(self, engines: Callable[[str], Engine], mailbox: Mailbox, leases: Leases) -> None:
        self._engines = engines
        self._mailbox = mailbox
        self._leases = leases
        self._seen: Mapping[str, Observation] = {}
        self._nodes: dict[str, NodeState] = {}

    def look(self, views: Sequence[JobView]) -> None:
        """Ask each engine once about all machines of these jobs, then read their run folders. Raises nothing: an
        engine or a run folder that fails tells nothing this time."""
        self._seen = self._observe(views)
        self._nodes = self._read_all(views)

    def seen(self, attempt: AttemptView) -> Observation | None:
        """What its engine said of the attempt at the last look; None where the engine did not answer."""
        return self._seen.get(attempt.key)

    def node(self, view: JobView, attempt: AttemptView) -> NodeState:
        """What lies in the attempt's run folder: as the last look read it, or read now."""
        return self._nodes.pop(attempt.key, None) or self._read(view, attempt)

    def _observe(self, views: Sequence[JobView]) -> dict[str, Observation]:
        """One batched question per engine; engines that fail to answer are left out this time. By attempt key."""
        by_engine: dict[str, dict[str, str]] = defaultdict(dict)
        for view in views:
            for attempt in view.attempts:
                if attempt.handle is not None and not attempt.over:
                    by_engine[attempt.engine][attempt.handle] = attempt.key
        seen: dict[str, Observation] = {}
        for name, keys in by_engine.items():
            with isolated(f"engine {name} does not answer"):
                found = self._engines(name).observe(list(keys))
                seen |= {key: found[handle] for handle, key in keys.items() if handle in found}
        return seen

    def _read_all(self, views: Sequence[JobView]) -> dict[str, NodeState]:
        """The run folders of all that is observed, after it was: what a dead machine wrote is complete. Side by side,
        as each waits for its object store."""
        wanted = [
            (view, attempt)
            for view in views
            for attempt in view.attempts
            if not attempt.over and attempt.key in self._seen
        ]
        if len(wanted) < _WORTH_THREADS:
            return {}
        some = [wanted[first : first + _A_READERS_LOT] for first in range(0, len(wanted), _A_READERS_LOT)]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="run-folders") as readers:
            found = readers.map(self._read_lot, some)
            return {key: node for lot in found for key, node in lot.items()}

    def _read_lot(self, lot: Sequence[tuple[JobView, AttemptView]]) -> dict[str, NodeState]:
        for view, attempt in lot:
            with isolated(f"job {view.id}, attempt {attempt.number}: its lease"):
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
        except Exception:  # a defect in reading one run folder must not keep the others from being read
            log.exception("job %s, attempt %s: its run folder cannot be read", view.id, attempt.number)
            return NodeState(unreachable=True)
