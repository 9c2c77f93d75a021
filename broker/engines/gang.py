"""Runs the nodes of one job on one machine: one agent each, with its own folder, GPUs and CPUs.

An engine without a machine per node starts this as a program. It ends when all agents have ended, passes SIGTERM on to
them, and ends the others if one dies without an exit record, as a cluster ends a gang that has lost a machine.

Usage: python -m broker.engines.gang FOLDER LOCK_FD...
"""

from __future__ import annotations

import os
import queue
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from broker.agent.command import CannotStart, Command, CommandFiles, Exited, GuardGone
from broker.engines.detached import Slot, bind_to_cpus, process_record

GANG = "gang.json"


@dataclass(frozen=True, slots=True)
class GangNode:
    """``cpus``: the CPUs that the node is bound to; ``limits``: variables that name its part of the machine."""

    cpus: tuple[int, ...]
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Gang:
    """The nodes of an attempt. ``name``: the id that they share."""

    run_folder: str
    name: str
    nodes: tuple[GangNode, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Gang:
        nodes = tuple(GangNode(tuple(node["cpus"]), dict(node["limits"])) for node in told["nodes"])
        return cls(str(told["run_folder"]), str(told["name"]), nodes)


def agent_folders(slot: Slot) -> tuple[str, ...]:
    """The folder of each node's agent within the slot, by rank, with a slash at its end; a single empty string for a
    single agent, which uses the slot itself.
    """
    gang = slot.read(GANG)
    return ("",) if gang is None else tuple(f"node-{rank}/" for rank in range(len(gang["nodes"])))


def start_agent(
    folder: Path,
    rank: int,
    *,
    run_folder: str,
    gang: str,
    environment: Mapping[str, str],
    umask: int,
    tell: Callable[[Any], None],
    keep_open: Sequence[int],
) -> Command:
    """Start the agent of one rank, with its scratch folder and its own output in ``folder``. ``tell`` gets the messages
    of `Command`."""
    scratch = folder / f"node-{rank}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    agent = [sys.executable, "-P", "-m", "broker.agent", "--folder", run_folder]
    return Command(
        [*agent, "--rank", str(rank), "--gang", gang, "--scratch", str(scratch)],
        environment=environment,
        folder=Path("/"),
        files=CommandFiles(folder / f"agent-{rank}.log", scratch, witness=None),
        umask=umask,
        tell=tell,
        keep_open=keep_open,
    )


def run(slot: Slot, gang: Gang, locks: Sequence[int]) -> int:
    """Run all agents to their end; returns the first exit status that is not 0, else 0."""
    inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    umask = os.umask(0o077)  # files of the machine are private; the job keeps its own umask
    agents: list[Command] = []
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for agent in agents:
            agent.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for rank, node in enumerate(gang.nodes):
        with bind_to_cpus(node.cpus):
            agent = start_agent(
                slot.folder,
                rank,
                run_folder=gang.run_folder,
                gang=gang.name,
                environment={**os.environ, **node.limits},
                umask=umask,
                tell=lambda message, rank=rank: inbox.put((rank, message)),  # type: ignore[misc]  # the default binds it
                keep_open=locks,
            )
        agents.append(agent)
        if stopped:  # SIGTERM arrived during the start
            agent.terminate()
    statuses: dict[int, int] = {}
    while len(statuses) < len(agents):
        rank, message = inbox.get()
        if isinstance(message, Exited):
            statuses.setdefault(rank, message.status)
        elif isinstance(message, CannotStart | GuardGone):
            statuses.setdefault(rank, -signal.SIGKILL)
        if statuses.get(rank, 0) < 0:
            break
    for agent in agents:
        agent.kill()
    return next((abs(status) for status in statuses.values() if status), 0)


def main(arguments: Sequence[str]) -> int:
    folder, locks = Path(arguments[0]), [int(word) for word in arguments[1:]]
    for lock in locks:
        os.set_inheritable(lock, False)
    slot = Slot(folder)
    slot.keep_first("started.json", process_record(os.getpid()))  # its starter may have died before it wrote this
    document = slot.read(GANG)
    assert document is not None, "written before the start"
    return run(slot, Gang.from_json(document), locks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
