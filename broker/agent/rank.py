"""The data that all parts of an agent use: one rank of one attempt."""

from __future__ import annotations

from dataclasses import dataclass

from broker.agent.clock import NodeClock
from broker.agent.environment import Scratch
from broker.agent.formats import Spec
from broker.agent.journal import AttemptJournal
from broker.agent.masking import NO_MASK, Mask
from broker.agent.store import ObjectFolder


@dataclass(frozen=True)
class RankContext:
    """``store``: the job's run folder; ``scratch``: the agent's own folder on this machine; ``mask``: hides the
    values of the job's secrets."""

    store: ObjectFolder
    spec: Spec
    rank: int
    scratch: Scratch
    journal: AttemptJournal
    mask: Mask = NO_MASK

    @property
    def clock(self) -> NodeClock:
        """The clock that the spec sets."""
        return self.spec.clock
