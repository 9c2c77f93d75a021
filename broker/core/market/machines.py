"""Machines that engines report, and how to end them.

Where engines and clouds have tags, our machines carry two: ``gpubroker`` with the attempt's key, and
``gpubroker-store`` with the id of the requesting store, so that no store ends another's machines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

TAG = "gpubroker"
STORE_TAG = "gpubroker-store"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine (or gang) that exists or is starting.

    ``key``: the attempt's key. ``handle``: the engine's. ``store``: id of the requesting store; empty if not recorded,
    which proves nothing. ``since``: when it was requested or came up (UTC); None if unknown. ``evidence``: one line for
    people.
    """

    key: str
    handle: str
    store: str = ""
    since: datetime | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class MachineOutside:
    """A machine (its cloud's ``id``) that started outside the bought capacity requested for it: it is billed on
    demand from ``since`` (UTC)."""

    id: str
    since: datetime


@runtime_checkable
class ListsMachines(Protocol):
    """An engine that can list its machines."""

    def machines(self) -> Iterator[Machine]:
        """Every machine that is or may be gpubroker's, without those that ended. Read-only. Raises what
        `broker.core.ports.Engine.submit` raises."""

    def end(self, handle: str) -> None:
        """End a machine that `machines` reported, whatever its state. Returns at once; repeat until it is no longer
        reported; a missing machine is no error. Raises what `machines` raises.
        """
