"""An agent restarted on its machine after the previous one died.

The attempt is over: the command died with its agent. The broker would only notice after a missing heartbeat, so the new
agent reports the end and exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from broker.agent.claims import kernel_start
from broker.agent.environment import Scratch
from broker.agent.formats import Claim

_PATIENCE = 10.0  # seconds; the guard needs far less to kill the remaining processes


def write_record(scratch: Scratch, identity: Mapping[str, object], ended: tuple[str, str] | None) -> None:
    """Record the agent's identity, or its end (time and cause), for the next agent and the engine on this machine."""
    record = {
        "pid": os.getpid(),
        "born": kernel_start(),
        **identity,
        "ended": None if ended is None else {"at": ended[0], "cause": ended[1]},
    }
    draft = scratch.record.with_suffix(".new")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(record))
        draft.replace(scratch.record)


def predecessor_is_dead(holder: Claim, scratch: Scratch, beat: float) -> bool:
    """Whether an agent of this machine and scratch folder claimed the attempt and none of its processes runs.

    False if unknown, and if that agent ended normally.

    ``beat``: seconds between two touches of its file by a running agent. Waits for three of them, because that agent
    may run in another container.
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
    """Whether a process with this folder's checkpoint variable still runs: the command, or one of its children."""
    mark = b"GPUBROKER_CHECKPOINT_DIR=" + os.fsencode(scratch.checkpoints) + b"\0"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                return True
    return False
