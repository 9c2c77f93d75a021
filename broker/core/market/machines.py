"""What engines may tell of the machines that they run, whoever remembers them; and how such a machine is ended.

Machines of ours carry two tags where engines and clouds have tags: ``gpubroker`` with the attempt's key, and
``gpubroker-store`` with the id of the store that asked for them, so that nobody ends another store's machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

TAG = "gpubroker"
STORE_TAG = "gpubroker-store"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine (or gang) that is there or about to be.

    ``key``: the attempt's key. ``handle``: the engine's. ``store``: the id of the store that asked for it; empty where
    nobody noted it, which proves nothing. ``since``: when it was asked for or came up (UTC); None when not known.
    ``evidence``: one line for people.
    """

    key: str
    handle: str
    store: str = ""
    since: datetime | None = None
    evidence: str = ""


@runtime_checkable
class ListsMachines(Protocol):
    """An engine that can list what it runs."""

    def machines(self) -> Iterator[Machine]:
        """Every machine that is or may be of gpubroker's, those that ended left out. Read-only. Raises what
        `broker.core.ports.Engine.submit` raises."""
        ...

    def end(self, handle: str) -> None:
        """End a machine that `machines` told of, whatever was believed of it. Returns at once; repeatable, and to be
        repeated until it is told of no more; what is gone is fine. Raises what `machines` raises."""
        ...
