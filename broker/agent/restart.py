"""An agent that is started again on its machine, after the one before it died.

The attempt is over then: the command died with its agent. Nobody else can know that so soon; the broker would wait for
a heartbeat until its patience ends. So the new one says it, and goes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

from broker.agent.claims import kernel_start
from broker.agent.environment import Scratch
from broker.agent.formats import Claim

_PATIENCE = 10.0  # seconds; the guard kills what is left in far less


def predecessor_is_dead(holder: Claim, scratch: Scratch, beat: float) -> bool:
    """Whether the attempt was claimed by an agent of this machine and this scratch folder, of which nothing is alive
    any more. False where that cannot be told, and for one that has ended by itself.

    ``beat``: how often, in seconds, a living one touches a file there. Three of these are waited for, in case it lives
    where its process cannot be seen: in another container.
    """
    try:
        record = json.loads(scratch.record.read_text())
        touched = scratch.alive.stat().st_mtime_ns if scratch.alive.exists() else 0
    except (OSError, ValueError):
        return False
    if not isinstance(record, dict) or record.get("ended") is not None:
        return False
    same = (record.get("pid"), record.get("born")) == (holder.pid, holder.started)
    if not same or holder.host != socket.gethostname() or kernel_start(holder.pid) == holder.started:
        return False
    began = time.monotonic()
    while time.monotonic() - began < 3 * beat or _something_is_left(scratch):
        if time.monotonic() - began >= 3 * beat + _PATIENCE:
            return False
        time.sleep(min(beat, 0.05))
    return not scratch.alive.exists() or scratch.alive.stat().st_mtime_ns == touched


def _something_is_left(scratch: Scratch) -> bool:
    """Whether a process lives that was given this folder's checkpoints: the command, or something it started."""
    mark = b"GPUBROKER_CHECKPOINT_DIR=" + os.fsencode(scratch.checkpoints) + b"\0"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                return True
    return False
