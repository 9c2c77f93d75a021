"""Claims in the run folder, created only if absent: they ensure that exactly one gang runs an attempt.

An engine may forget a launch and submit it twice; the object store accepts one claim. The claim of rank 0 decides which
gang runs the attempt; the other ranks join only their own gang.

An agent that is restarted on its machine after the previous one died finds that one's claim. The attempt is over: the
command died with its agent. The broker would only notice after a missing heartbeat, so the new agent reports the end
and exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable

from broker.agent.clock import NodeClock, from_text, to_text
from broker.agent.environment import Scratch
from broker.agent.formats import VERSION, BadDocument, attempt_path, parsing
from broker.agent.names import replace_document
from broker.agent.processes import end_orphans, kernel_start
from broker.agent.store import ObjectFolder, StoreTrouble, to_bytes


@dataclass(frozen=True)
class Claim:
    """The process that runs one rank of an attempt.

    ``gang``: an id shared by all agents of one machine (or gang), so that the ranks of two competing gangs never mix.
    ``started``: the start of the process, in ticks of the node's kernel. ``user``: its account there; empty if that
    has no name.
    """

    rank: int
    host: str
    address: str
    pid: int
    started: str
    nonce: str
    gang: str
    at: datetime
    user: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **self.__dict__, "at": to_text(self.at)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Claim:
        with parsing("claim"):
            texts = {name: str(values[name]) for name in ("host", "address", "started", "nonce", "gang", "user")}
            return cls(int(values["rank"]), pid=int(values["pid"]), at=from_text(values["at"]), **texts)


def claim_path(attempt: int, rank: int) -> str:
    return attempt_path(attempt, f"claim-{rank}.json")


def make_claim(rank: int, gang: str, clock: NodeClock) -> Claim:
    """This process's claim, not stored yet."""
    return Claim(
        rank=rank,
        host=socket.gethostname(),
        address=own_address(),
        pid=os.getpid(),
        started=process_start(),
        nonce=secrets.token_hex(8),
        gang=gang,
        at=clock.now(),
        user=own_user(),
    )


def own_user() -> str:
    """The name of this process's account; empty if its uid has no name here."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def take(store: ObjectFolder, attempt: int, claim: Claim) -> Claim | None:
    """Try to store the claim: None on success, else the existing claim of another process.

    Idempotent: by the nonce, a process recognizes its own claim if the answer was lost. Raises StoreTrouble.
    """
    path = claim_path(attempt, claim.rank)
    if store.create(path, to_bytes(claim.to_json())):
        return None
    holder = read(store, attempt, claim.rank)
    if holder is None:
        raise StoreTrouble(f"cannot read {path}, which exists")
    return None if holder.nonce == claim.nonce else holder


def read(store: ObjectFolder, attempt: int, rank: int) -> Claim | None:
    """The claim of a rank, or None if there is none yet. Raises StoreTrouble, also for an unreadable claim."""
    try:
        document: Mapping[str, Any] | None = store.read_json(claim_path(attempt, rank))
        return None if document is None else Claim.from_json(document)
    except (BadDocument, ValueError) as error:
        raise StoreTrouble(f"{claim_path(attempt, rank)} cannot be read: {error}") from error


def gather(
    store: ObjectFolder, attempt: int, nodes: int, deadline: float, interval: float, stop: Callable[[], bool]
) -> dict[int, Claim]:
    """Claims of all ranks, waiting for missing ones until ``deadline`` (monotonic) or ``stop``. May be incomplete."""
    claims: dict[int, Claim] = {}
    while True:
        for rank in range(nodes):
            if rank not in claims:
                with contextlib.suppress(StoreTrouble):
                    claim = read(store, attempt, rank)
                    if claim is not None:
                        claims[rank] = claim
        if len(claims) == nodes or time.monotonic() >= deadline or stop():
            return claims
        time.sleep(min(interval, 1.0))


def own_address() -> str:
    """The address by which other nodes of the gang most likely reach this one. Sends nothing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # a documentation address: only the routing table is consulted
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def process_start() -> str:
    """The start of this process; with the pid it identifies one process."""
    return kernel_start() or f"{time.time():.3f}"


def write_record(scratch: Scratch, identity: Mapping[str, object], ended: tuple[str, str] | None) -> None:
    """Record the agent's identity, or its end (time and cause), for the next agent and the engine on this machine."""
    record = {
        "pid": os.getpid(),
        "born": kernel_start(),
        **identity,
        "ended": None if ended is None else {"at": ended[0], "cause": ended[1]},
    }
    replace_document(scratch.record, record)


def is_predecessor_dead(holder: Claim, scratch: Scratch, beat: float) -> bool:
    """Whether an agent of this machine and scratch folder claimed the attempt and died. Ends what its command left.

    False if unknown, if that agent ended normally, and if a process cannot be ended.

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
    is_same_process = (record.get("pid"), record.get("born")) == (holder.pid, holder.started)
    if not is_same_process or holder.host != socket.gethostname() or kernel_start(holder.pid) == holder.started:
        return False
    time.sleep(3 * beat)  # nothing tells of the beat of another process
    if scratch.alive.exists() and scratch.alive.stat().st_mtime_ns != touched:
        return False
    return end_orphans(scratch.root)
