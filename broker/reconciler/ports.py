"""What the reconciler and its parts work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.core.ports import Engine
from broker.core.values.clock import Clock
from broker.ledger.journal import Journal
from broker.reconciler.engine_calls import EngineCalls
from broker.runfolder.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class ReconcilerPorts:
    """``engines``: the engine of a name. ``calls``: how engines are called; by default one call after the other, within
    a look. ``store_id``: whose machines are."""

    journal: Journal
    engines: Callable[[str], Engine]
    mailbox: Mailbox
    clock: Clock
    calls: EngineCalls = field(default_factory=EngineCalls)
    store_id: str = ""
