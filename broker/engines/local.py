"""This machine as capacity: the agent runs detached and survives the command line and the broker.

Everything about an attempt is in the engine's folder under its key, readable by its owner only. If the machine goes
down, the last heartbeat (the agent touches a file) counts as the attempt's end; it is too early by at most one
heartbeat.

Each job gets a part of the machine (`broker.engines.register`): GPUs by number and MIG slices by UUID (the others are
hidden from it), CPUs by number (it is bound to them), and memory, which is counted but not limited. The nodes of a
multi-node job share the job's part (`broker.engines.gang`).
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from broker.agent.clock import from_text
from broker.core.errors import RetryLater
from broker.core.market.capacity import Machine
from broker.core.market.local_gpus import local_gpus
from broker.core.market.shares import MachineShare, total
from broker.core.ports import EngineState, EntryCommand, Launch, Observation
from broker.core.values.clock import Clock
from broker.engines.detached import Slot, bind_to_cpus
from broker.engines.environment import agent_environment
from broker.engines.gang import GANG, Gang, GangNode, agent_folders
from broker.engines.handles import Handles, note_owner, running_machines
from broker.engines.register import DEFAULT, AssignedPart, Inventory, MachineRegister, hash_store
from broker.placement.pricing.shares import may_use_free_cpus

_ASSIGNED = "given.json"


class LocalSettings(BaseModel):
    """``register``: the folder where all brokers on this machine record the parts that jobs have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    register_folder: Path = Field(default=DEFAULT, alias="register")


def _nvml() -> Any:
    return import_module("pynvml")


class Local:
    """The engine of owned capacity on this machine. Its handles are those of `broker.engines.handles`."""

    name = "local"
    Settings: ClassVar = LocalSettings
    honours = frozenset({"several_nodes", "workdir", "setup", "secrets"})
    remote = False

    def __init__(
        self, home: Path, clock: Clock, settings: LocalSettings | None = None, nvml: Callable[[], Any] = _nvml
    ) -> None:
        """``home``: the engine's own folder, created when needed. ``clock`` dates an end that the agent could not
        record. ``nvml`` returns the NVML binding; it is called for jobs with GPUs only."""
        self._root = home
        self._handles = Handles(self.name, home)
        self._clock = clock
        self._register = MachineRegister((settings or LocalSettings()).register_folder)
        self._nvml = nvml

    def submit(self, launch: Launch) -> str:
        slot = Slot.of(self._root, launch.key)

        def arguments(*descriptors: int) -> list[str]:
            if (slot.folder / GANG).exists():
                return [sys.executable, "-P", "-m", "broker.engines.gang", str(slot.folder), *map(str, descriptors)]
            agent = [sys.executable, "-P", "-m", "broker.agent", "--folder", launch.run_folder]
            holds = [word for descriptor in descriptors for word in ("--hold", str(descriptor))]
            return [*agent, "--gang", launch.key, "--scratch", str(slot.folder), *holds]

        note_owner(slot, launch, self._clock)
        offer = launch.placement.offer if launch.placement else None
        if offer is None or offer.whole is None:  # the whole machine, of which nothing is assigned
            slot.start(arguments, agent_environment(launch.secrets))
        elif not slot.known():
            name, share = self._handles.name(launch.key), offer.has
            inventory, free = self._inventory(offer.whole, share), may_use_free_cpus(offer, launch.job)
            with self._register.assign(name, share, inventory, launch.store, free_cpus=free) as (part, lock):
                slot.write(_ASSIGNED, json.loads(part.to_text()))
                nodes = part.divided(launch.job.num_nodes)
                if len(nodes) > 1:
                    gang_nodes = tuple(GangNode(node.cpus, _limits(node)) for node in nodes)
                    slot.write(GANG, Gang(launch.run_folder, launch.key, gang_nodes).to_json())
                environment = agent_environment(launch.secrets, _limits(nodes[0]))
                with bind_to_cpus(part.cpus):
                    slot.start(lambda own: arguments(own, lock), environment, [lock])
        return self._handles.of(launch.key)

    def given_to_others(self, store: Callable[[], str]) -> MachineShare:
        parts = self._register.given().values()
        own_hash = hash_store(store()) if parts else ""
        return total(part.share for part in parts if part.store != own_hash)

    def _inventory(self, whole: MachineShare, share: MachineShare) -> Inventory:
        """CPUs and GPUs of this machine. Raises `RetryLater` if its GPUs cannot be listed."""
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        if not share.gpu_count:
            return Inventory(whole, cpus, [])
        try:
            gpus, _ = local_gpus(self._nvml())
        except ImportError as error:
            raise RetryLater(
                f"the GPUs of this machine cannot be listed: the NVML binding cannot be imported: {error}",
                where="this machine",
                hint="install nvidia-ml-py into gpubroker's environment",
            ) from error
        models = {name for name, _ in share.gpus}
        return Inventory(whole, cpus, [gpu.device for gpu in gpus if gpu.accelerator in models])

    def find(self, key: str) -> str | None:
        return self._handles.find(key)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: self._observe(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        slot = self._handles.slot(handle)
        if slot is not None:
            slot.cancel()
            slot.enforce(_patience(slot))

    def machines(self) -> Iterator[Machine]:
        return running_machines(self._root, self._handles, "processes on this machine")

    def end(self, handle: str) -> None:
        self.cancel(handle)

    def way_in(self, handle: str, node: int, words: Sequence[str], *, terminal: bool) -> EntryCommand:
        slot = self._handles.slot(handle)
        return self._handles.way_in(handle, agent_folders(slot)[node] if slot is not None else "", words)

    def _observe(self, handle: str) -> Observation:
        elsewhere = self._handles.elsewhere(handle)
        if elsewhere is not None:
            return elsewhere
        slot = self._handles.slot(handle)
        if slot is None or not slot.known():
            return Observation(EngineState.LOST, evidence="this machine has no record of it")
        # Check whether the process runs before reading its files: those of an ended process are complete.
        alive = slot.alive()
        if alive:
            self._register.touch(self._handles.name(slot.folder.name))
        folders = agent_folders(slot)
        agents = [agent for folder in folders if (agent := slot.read(f"{folder}agent.json"))]
        since = min((from_text(agent["at"]) for agent in agents), default=None)
        if alive:
            slot.enforce(_patience(slot))
            return Observation(EngineState.UP if agents else EngineState.PENDING, since)
        if not agents:
            ended = slot.last_seen(self._clock, "process.log")
            return Observation(EngineState.GONE, None, ended, evidence=slot.last_words() or "the agent did not start")
        ends = [agent["ended"] for agent in agents if agent["ended"] is not None]
        if len(ends) == len(folders):
            causes = [end["cause"] for end in ends if end["cause"] != "completed"] or ["completed"]
            gone_at = max(from_text(end["at"]) for end in ends)
            interrupted = set(causes) == {"preempted"} and slot.read("cancelled.json") is None
            return Observation(EngineState.GONE, since, gone_at, interrupted, f"the agent ended: {causes[0]}")
        # The guard writes the file `died` when the command dies.
        names = [f"{folder}{name}" for folder in folders for name in ("agent.json", "alive", "died")]
        gone_at = slot.last_seen(self._clock, *names)
        return Observation(EngineState.GONE, since, gone_at, evidence="the agent died without a message")


def _limits(part: AssignedPart) -> dict[str, str]:
    """The variables that limit a program to its part: the number of threads for numeric libraries, and the GPUs for
    CUDA, numbered as by NVML and ``nvidia-smi``."""
    gpus = ",".join(map(str, part.gpus))
    threads = max(-(-part.share.milli_cpus // 1000), len(part.cpus), 1)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpus, "OMP_NUM_THREADS": str(threads)}


def _patience(slot: Slot) -> timedelta:
    """Wall-clock time from SIGTERM to SIGKILL: the command's grace, and the same time again for the agent's last
    upload.
    """
    agent = slot.read(f"{agent_folders(slot)[0]}agent.json")
    return timedelta(seconds=2 * float(agent["grace"]) + 15 if agent else 15)
