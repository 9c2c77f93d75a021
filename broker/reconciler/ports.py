"""The dependencies of the reconciler and its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.core.market.offers import Offer
from broker.core.ports import Engine
from broker.core.values.clock import Clock
from broker.ledger.journal import Journal
from broker.reconciler.engine_calls import EngineCalls
from broker.runfolder.mailbox import Mailbox


def _none_bought(_: Offer) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class ReconcilerPorts:
    """``engines``: returns the engine with a name.

    ``calls``: runs engine calls; by default one after the other, within a tick. ``store_id``: the id of this store, for
    the tags of machines. ``reservations``: returns the bought capacity to which an offer belongs, as in `Launch`.
    """

    journal: Journal
    engines: Callable[[str], Engine]
    mailbox: Mailbox
    clock: Clock
    calls: EngineCalls = field(default_factory=EngineCalls)
    store_id: str = ""
    reservations: Callable[[Offer], tuple[str, ...]] = _none_bought
