"""The run folders of the money tests, in memory: leases for nodes, and the documents of nodes, which may arrive late or
never.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from broker.core.errors import GiveUp, RetryLater
from broker.core.events.views import AttemptView, JobView
from broker.core.policy.policy import Usage
from broker.engines.runfolder.mailbox import ExitRecord, LeaseGrant, NodeState
from tests.money.clock import StageClock


@dataclass
class Folders:
    """``failing``: errors that the next calls (``prepare``, ``write_lease``, ``read``) raise.

    ``silent``: attempts whose documents do not arrive.
    """

    clock: StageClock
    nodes: dict[str, NodeState] = field(default_factory=dict)
    leases: dict[str, list[tuple[LeaseGrant, datetime]]] = field(default_factory=dict)
    failing: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    silent: set[str] = field(default_factory=set)
    failed: int = 0

    # --- as the broker sees them ------------------------------------------------------------------------------------

    def url(self, view: JobView, attempt: AttemptView) -> str:
        return f"memory:///{view.id}/attempts/{attempt.number}"

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        self._fails("prepare")
        self._keep(attempt.key, lease)

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        self._fails("write_lease")
        self._keep(attempt.key, lease)

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        written = self.leases.get(attempt.key)
        return written[-1][0] if written else None

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        """Does nothing: these nodes need no credentials."""

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        self._fails("read")
        node = NodeState() if attempt.key in self.silent else self.node(attempt.key)
        return replace(node, journal=node.journal[attempt.agent_events :])

    def usage(self, view: JobView, attempt: AttemptView) -> Sequence[Usage]:
        return ()

    def variables(self, view: JobView, attempt: AttemptView) -> Mapping[str, str]:
        return {}  # documents are not signed

    # --- as nodes see them ------------------------------------------------------------------------------------------

    def granted(self, key: str) -> tuple[LeaseGrant, datetime]:
        """The lease that a node has read, and when it was written."""
        return self.leases[key][-1]

    def never_prepared(self, key: str) -> bool:
        return key not in self.leases

    def node(self, key: str) -> NodeState:
        return self.nodes.get(key, NodeState())

    def exits(self, key: str, ending: ExitRecord) -> None:
        node = self.node(key)
        if node.exit is None:
            self.nodes[key] = replace(node, exit=ending, heartbeat_at=ending.at)

    def _keep(self, key: str, lease: LeaseGrant) -> None:
        self.leases.setdefault(key, []).append((lease, self.clock.true))

    def _fails(self, call: str) -> None:
        if self.failing[call]:
            kind = self.failing[call].pop(0)
            self.failed += 1
            raise GiveUp("the document makes no sense") if kind == "garbage" else RetryLater("the store is away")
