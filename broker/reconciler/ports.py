"""The dependencies of the reconciler and its parts, and their intervals and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from broker.core.market.offers import Offer
from broker.core.ports import Engine
from broker.core.values.clock import Clock
from broker.engines.runfolder.mailbox import Mailbox
from broker.reconciler.controller import Controller
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.interpret import Patience
from broker.store.store import Store


def _no_reservations(_: Offer) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ReconcilerPorts:
    """``engines``: returns the engine with a name.

    ``calls``: runs engine calls; by default one after the other, within a tick. ``store_id``: the id of this store, for
    the tags of machines. ``reservations``: returns the bought capacity to which an offer belongs, as in `Launch`.
    """

    journal: Store
    engines: Callable[[str], Engine]
    mailbox: Mailbox
    clock: Clock
    calls: EngineCalls = field(default_factory=EngineCalls)
    store_id: str = ""
    reservations: Callable[[Offer], tuple[str, ...]] = _no_reservations


@dataclass(frozen=True, slots=True)
class Controllers:
    """``place``: places jobs.

    ``judges``: run in this order for a job without another step, until one changes something. ``tasks``: starts tasks
    of arrays.
    """

    place: Controller
    judges: Sequence[Controller] = ()
    tasks: Controller | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals and limits.

    ``settle_every``, ``patience`` and ``grace`` are in broker time. ``visits``: the minimum number of running jobs
    without news visited in a tick (`broker.reconciler.worklist`).
    """

    settle_every: timedelta = timedelta(seconds=60)
    patience: Patience = field(default_factory=Patience)
    grace: timedelta = timedelta(minutes=2)
    retry_place: timedelta = timedelta(seconds=15)
    visits: int = 1_000

    def scaled(self, factor: float) -> Timing:
        """For a sandbox that runs faster: processes, which cause silence, run in wall-clock time."""
        return replace(
            self,
            patience=self.patience.scaled(factor),
            grace=self.grace * factor,
            retry_place=max(self.retry_place, timedelta(seconds=1) * factor),
        )
