"""The store that requested a machine: recorded in the key's folder before the start, and listed for sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from broker.agent.store import make_private
from broker.core.market.machines import Machine
from broker.core.ports import Launch
from broker.core.values.clock import Clock
from broker.engines.detached import KEY, Slot
from broker.engines.handles import Handles

_OWNER = "owner.json"


def note_owner(slot: Slot, launch: Launch, clock: Clock) -> None:
    """Record the owner, once. If the folder is not writable, the start that follows raises the error."""
    with suppress(OSError):
        make_private(slot.folder)
        slot.keep_first(_OWNER, {"store": launch.store, "at": clock.now().isoformat()})


def owner_of(slot: Slot) -> tuple[str, datetime | None]:
    """The requesting store (empty if not recorded) and the time (UTC)."""
    record = slot.read(_OWNER)
    if record is None:
        return "", None
    return str(record["store"]), datetime.fromisoformat(record["at"])


def slots(root: Path) -> Iterator[Slot]:
    """The slot of every key in an engine folder."""
    with suppress(OSError):
        for folder in sorted(root.iterdir()):
            if KEY.fullmatch(folder.name) and folder.is_dir():
                yield Slot(folder)


def running_machines(root: Path, handles: Handles, kind: str) -> Iterator[Machine]:
    """The running machines of an engine whose machines are processes on this machine.

    ``kind``: their kind, in words for people.
    """
    for slot in slots(root):
        if slot.alive():
            store, since = owner_of(slot)
            yield Machine(slot.folder.name, handles.of(slot.folder.name), store, since, kind)
