"""Handles of engines whose machines are processes on this machine.

Several machines, users and homes may share a store, each with its own engine folder (its *place*). So a handle names
the place: ``<engine>:<host>:<place>:<key>``. The host is for people; the place is a hash of the machine, the user and
the folder. The store that requested a machine is recorded in the key's folder before the start, for sweeps.
"""

import hashlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from broker.agent.store import make_private
from broker.core.errors import GiveUp
from broker.core.market.capacity import Machine, MachineOutside
from broker.core.ports import EngineState, EntryCommand, Launch, Observation
from broker.core.values.clock import Clock
from broker.engines.detached import KEY, Slot

_HANDLE = re.compile(
    r"(?P<engine>[a-z][a-z0-9_-]*):(?P<host>[A-Za-z0-9._-]+):(?P<place>[0-9a-f]{12}):(?P<key>.*)", re.DOTALL
)


class Handles:
    """The handles of one engine folder."""

    def __init__(self, engine: str, root: Path) -> None:
        self._root = root
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
        self._prefix = f"{engine}:{host}:"
        self._place = _place(root)

    def of(self, key: str) -> str:
        return f"{self._prefix}{self._place}:{key}"

    def name(self, key: str) -> str:
        """A name for the key that is unique among all places."""
        return f"{self._place}-{key}"

    def find(self, key: str) -> str | None:
        """The handle of a key whose process was started here. Raises `GiveUp` for a key that is not a plain name."""
        return self.of(key) if Slot.of(self._root, key).known() else None

    def slot(self, handle: str) -> Slot | None:
        """The slot of the handle; None for a handle of another place."""
        match = _HANDLE.fullmatch(handle)
        if match is None or match["place"] != self._place:
            return None
        try:
            return Slot.of(self._root, match["key"])
        except GiveUp:
            return None

    def elsewhere(self, handle: str) -> Observation | None:
        """The observation for a handle of another place; None for all others."""
        match = _HANDLE.fullmatch(handle)
        if match is None or match["place"] == self._place:
            return None
        evidence = f"it was started on {match['host']}, by another user or from another home; query it there"
        return Observation(EngineState.ELSEWHERE, evidence=evidence)

    def way_in(self, handle: str, folder: str, words: Sequence[str]) -> EntryCommand:
        """How to enter the machine of a handle of this place.

        ``folder``: the agent's, within the slot. Raises `GiveUp` for a handle of another place.
        """
        slot = self.slot(handle)
        if slot is None:
            elsewhere = self.elsewhere(handle)
            raise GiveUp(elsewhere.evidence if elsewhere else f"this machine has no record of {handle}")
        agent = (sys.executable, "-P", "-m", "broker.agent", "enter", "--scratch", str(slot.folder / folder))
        return EntryCommand((*agent, *words))


def _place(root: Path) -> str:
    """The hash of machine, user and folder. It uses the machine's id because the host name may change."""
    machine = ""
    with suppress(OSError):
        machine = Path("/etc/machine-id").read_text("ascii").strip()
    parts = (machine or socket.gethostname(), str(os.getuid()), str(root.resolve()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def recorded_end(record: Mapping[str, Any]) -> Observation:
    """The observation of a machine that is gone, from the record that was stored of it."""
    since = record.get("since")
    return Observation(
        EngineState.GONE,
        datetime.fromisoformat(since) if since else None,
        datetime.fromisoformat(record["at"]),
        bool(record["interrupted"]),
        str(record["evidence"]),
        bool(record.get("no_capacity")),
        bool(record.get("own_end")),
        tuple(
            MachineOutside(machine["id"], datetime.fromisoformat(machine["since"]))
            for machine in record.get("outside") or ()
        ),
    )


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
