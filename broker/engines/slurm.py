"""An owned Slurm cluster: one batch job per attempt, with one agent per node.

The job's name is the attempt's key, so Slurm can be queried for it; a private folder per key stores the number, because
slurmctld forgets finished jobs (MinJobAge, 5 minutes by default). Jobs are never requeued: if Slurm preempts one or
loses its node, the attempt is interrupted and the job placed again.

The job's output is read from its run folder. That and the working folder must be reachable from the nodes: on a shared
disk (the default), or in an object store.
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from broker.agent.store import make_private
from broker.core.errors import BrokerError, GiveUp, RetryLater
from broker.core.events.outcomes import Cause
from broker.core.market.accelerators import is_shared
from broker.core.market.capacity import Machine
from broker.core.market.offers import Offer
from broker.core.ports import EngineState, EntryCommand, Launch, Observation
from broker.core.values.clock import Clock
from broker.engines.detached import KEY, Slot
from broker.engines.environment import BASICS, Words
from broker.engines.handles import note_owner, owner_of, recorded_end
from broker.engines.runfolder.attempt_keys import TICKET_VARIABLE, ticket_of
from broker.engines.runfolder.runfolder import RunFolder
from broker.engines.slurm_commands import SqueueRow, accounting_record, cluster_name, own_jobs, run
from broker.placement.feasibility import request_served

_HANDLE = re.compile(r"slurm:(?P<cluster>[A-Za-z0-9._-]+):(?P<number>[0-9]+):(?P<key>[A-Za-z0-9-]{1,40})")
_SCRIPT = Path(__file__).with_name("slurm_job.sh")
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"})
_STARTING = frozenset({"CONFIGURING"})  # nodes are allocated, and are being booted
# The machine was taken away; all other states are the job's own end. CANCELLED counts unless gpubroker cancelled.
_TAKEN = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED", "CANCELLED"})
_SPARE = timedelta(minutes=10)  # how much Slurm's limit exceeds the job's, which the agent enforces
_PATIENCE = timedelta(minutes=2)  # from SIGTERM to SIGKILL: the command's grace, the last upload, and a margin


class SlurmEngineSettings(BaseModel):
    """``[engines.slurm]`` of gpubroker.toml, or ``GPUBROKER_ENGINES__SLURM__…``.

    ``agent``: how a node starts the agent; this Python by default, which then lies on a disk that the nodes share.
    ``shared_disk``: whether nodes see this machine's run folders and working folders. ``environment``: further
    variables of the submitting process to hand to jobs. ``account``, ``qos``: as Slurm knows them. ``memory``: how
    it is requested: by ``node`` (``--mem``), by ``cpu`` (``--mem-per-cpu``), or ``none`` where the cluster decides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: Words = (sys.executable, "-m", "broker.agent")
    shared_disk: bool = True
    environment: Words = ()
    account: str | None = None
    qos: str | None = None
    memory: Literal["node", "cpu", "none"] = "node"


class SlurmEngine:
    """The engine. Its handles are ``slurm:<cluster>:<job number>:<key>``."""

    name = "slurm"
    honours = frozenset({"several_nodes", "workdir", "setup", "secrets", "another_machine"})
    Settings: ClassVar = SlurmEngineSettings

    def __init__(self, home: Path, clock: Clock, settings: SlurmEngineSettings | None = None) -> None:
        """``home``: the engine's own folder, created when needed. ``clock`` gives times that Slurm does not report."""
        self._root = home
        self._clock = clock
        self._settings = settings or SlurmEngineSettings()
        self._cluster: str | None = None

    @property
    def remote(self) -> bool:
        return not self._settings.shared_disk

    def submit(self, launch: Launch) -> str:
        slot = Slot.of(self._root, launch.key)
        make_private(slot.folder)
        from filelock import FileLock  # plans load this module for its features and need no lock

        with FileLock(slot.folder / "submit.lock", mode=0o600):
            stored = self.find(launch.key)
            if stored is not None:
                return stored
            record = {"run_folder": launch.run_folder, "nodes": launch.placement.nodes}
            slot.write("launch.json", {**record, "at": self._clock.now().isoformat()})
            note_owner(slot, launch, self._clock)
            names = [name for name in (*BASICS, *self._settings.environment) if name in os.environ]
            secrets = {**launch.secrets, "GPUBROKER_SCRIPT": str(_SCRIPT)}
            if (ticket := ticket_of(launch.key, launch.secrets)) is not None:
                secrets[TICKET_VARIABLE] = ticket  # for a job_submit plugin that queries the broker
            export = f"--export={','.join([*names, *secrets])}"
            agent = [*self._settings.agent, "--folder", launch.run_folder]
            options = [*self._options(launch, slot), export]
            output = run(["sbatch", *options, str(_SCRIPT), *agent], secrets)
            return self._remember(slot, launch.key, output.strip().partition(";")[0])

    def find(self, key: str) -> str | None:
        slot = Slot.of(self._root, key)
        if stored := slot.read("job.json"):
            return str(stored["handle"])
        rows = own_jobs(key)
        if not rows:
            return None
        make_private(slot.folder)
        return self._remember(slot, key, min(rows, key=lambda row: int(row.number)).number)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        observations = {handle: self._observe_without_query(handle) for handle in handles}
        if any(observation is None for observation in observations.values()):
            rows = {row.number: row for row in own_jobs()}
            for handle in [handle for handle, observation in observations.items() if observation is None]:
                observations[handle] = self._observe(handle, rows)
        return {handle: observation or _UNKNOWN for handle, observation in observations.items()}

    def cancel(self, handle: str) -> None:
        parts = self._own(handle)
        if parts is None:
            return
        slot, number = self._slot(parts["key"]), parts["number"]
        if slot.read("gone.json") is not None:
            return
        if slot.read("cancelled.json") is None:
            slot.write("cancelled.json", {"wall": datetime.now(UTC).isoformat()})
        _signal("--state=PENDING", number)
        if slot.read("told.json") is None:
            # For a gang, signal only the steps: on SIGTERM, srun in the batch step would kill the others.
            gang = int((slot.read("launch.json") or {}).get("nodes", 1)) > 1
            _signal("--signal=TERM", *(() if gang else ("--full",)), number)
            slot.write("told.json", {})

    def machines(self) -> Iterator[Machine]:
        for row in own_jobs():
            if row.state not in _ENDED and KEY.fullmatch(row.key):
                store, since = owner_of(self._slot(row.key))
                handle = f"slurm:{self._name()}:{row.number}:{row.key}"
                where = f" on {row.nodes}" if row.nodes else ""
                yield Machine(row.key, handle, store, row.started or since, f"Slurm: {row.state.lower()}{where}")

    def end(self, handle: str) -> None:
        """End the job through Slurm, which sends SIGTERM, waits for KillWait and sends SIGKILL."""
        if parts := self._own(handle):
            _signal(parts["number"])

    def way_in(self, handle: str, node: int, words: Sequence[str], *, terminal: bool) -> EntryCommand:
        parts = self._own(handle)
        launch = self._slot(parts["key"]).read("launch.json") if parts else None
        if parts is None or launch is None:
            raise GiveUp(f"{handle} was started elsewhere", hint="enter the job from where it was submitted")
        names = ",".join(name for name in (*BASICS, "SLURM_CONF", "COLORTERM") if name in os.environ)
        step = ["srun", "--quiet", f"--jobid={parts['number']}", "--overlap", "--nodes=1", "--ntasks=1"]
        step += [f"--relative={node}", "--cpu-bind=none", f"--export={names}", *(["--pty"] if terminal else [])]
        agent = [*self._settings.agent, "enter", "--folder", str(launch["run_folder"]), "--rank", str(node)]
        return EntryCommand((*step, *agent, *words), whole_lines=not terminal)

    def _slot(self, key: str) -> Slot:
        return Slot.of(self._root, key)

    def _own(self, handle: str) -> re.Match[str] | None:
        """The parts of a handle of this cluster."""
        parts = _HANDLE.fullmatch(handle)
        return parts if parts is not None and parts["cluster"] == self._name() else None

    def _name(self) -> str:
        if self._cluster is None:
            self._cluster = cluster_name()
        return self._cluster

    def _options(self, launch: Launch, slot: Slot) -> list[str]:
        offer, job = launch.placement.offer, launch.job
        options = [
            f"--job-name={launch.key}",
            f"--comment={offer.pool}",  # by it, the provider recognizes the broker's jobs on the cluster
            f"--partition={(offer.zone or '').rpartition(':')[2]}",
            f"--nodes={launch.placement.nodes}",
            "--ntasks-per-node=1",
            "--no-requeue",
            "--parsable",
            f"--chdir={slot.folder}",
            f"--output={slot.output}",
            "--open-mode=append",
            *_machine_options(offer, launch, self._settings.memory),
        ]
        if job.max_duration is not None:
            minutes = math.ceil((job.max_duration + _SPARE) / timedelta(minutes=1))
            options.append(f"--time={minutes}")
        for option, value in (("account", self._settings.account), ("qos", self._settings.qos)):
            if value:
                options.append(f"--{option}={value}")
        return options

    def _remember(self, slot: Slot, key: str, number: str) -> str:
        if not number.isdecimal():
            raise RetryLater(f"sbatch printed no job number but {number[:100]!r}", where="slurm")
        handle = f"slurm:{self._name()}:{number}:{key}"
        return str(slot.keep_first("job.json", {"handle": handle})["handle"])

    def _observe_without_query(self, handle: str) -> Observation | None:
        """The observation of a handle that needs no query: invalid, of another cluster, or gone; else None."""
        parts = _HANDLE.fullmatch(handle)
        if parts is None:
            return _UNKNOWN
        if parts["cluster"] != self._name():
            evidence = f"it runs on cluster {parts['cluster']}, and this is {self._name()}; query it there"
            return Observation(EngineState.ELSEWHERE, evidence=evidence)
        gone_record = self._slot(parts["key"]).read("gone.json")
        return recorded_end(gone_record) if gone_record else None

    def _observe(self, handle: str, rows: Mapping[str, SqueueRow]) -> Observation:
        parts = _HANDLE.fullmatch(handle)
        assert parts is not None, "the others are known"
        row = rows.get(parts["number"]) or accounting_record(parts["number"])
        slot = self._slot(parts["key"])
        if row is None or row.key != parts["key"]:
            return _observe_forgotten(slot)
        if row.state in _WAITING:
            return Observation(EngineState.QUEUED, evidence=f"in Slurm's queue: {row.reason}")
        since = _since(slot, row)
        if row.state in _STARTING:
            return Observation(EngineState.PENDING, since, evidence=f"Slurm boots {row.nodes}")
        if row.state not in _ENDED:  # it runs, or has a state of a newer Slurm, which is no end
            _force_end(slot, parts["number"])
            return Observation(EngineState.UP, since, evidence=f"{row.state.lower()} on {row.nodes}")
        cancelled = slot.read("cancelled.json") is not None
        gone_at = max(row.ended or self._clock.now(), since or datetime.min.replace(tzinfo=UTC))
        state_text = (
            "cancelled by gpubroker" if cancelled and row.state == "CANCELLED" else _WORDS.get(row.state, row.state)
        )
        record = {
            "since": since.isoformat() if since and row.nodes else None,
            "at": gone_at.isoformat(),
            "interrupted": row.state in _TAKEN and not cancelled,
            "evidence": f"Slurm: {state_text}"
            + (f" on {row.nodes}" if row.nodes else "")
            + _last_words(slot, row.state),
        }
        return recorded_end(slot.keep_first("gone.json", record))


_UNKNOWN = Observation(EngineState.LOST, evidence="Slurm has no record of it")
_WORDS = {
    "BOOT_FAIL": "a node could not be started",
    "CANCELLED": "cancelled by another user",
    "COMPLETED": "the job's processes ended",
    "DEADLINE": "its deadline in Slurm is past",
    "FAILED": "the job's processes ended with an error",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "more memory than requested",
    "PREEMPTED": "preempted",
    "TIMEOUT": "Slurm's own time limit",
}
_ENDED = _TAKEN | _WORDS.keys() | {"LAUNCH_FAILED", "RECONFIG_FAIL"}


def _observe_forgotten(slot: Slot) -> Observation:
    """The end of a job that Slurm no longer knows, from its run folder.

    A batch job ends with its last agent, so if all recorded their end, the nodes were released then; otherwise the end
    is unknown. Clocks of one cluster agree: munge rejects hosts whose clocks differ by more than five minutes.
    """
    launch = slot.read("launch.json")
    if launch is None:
        return _UNKNOWN
    try:
        runs, attempt = RunFolder.of_attempt(str(launch["run_folder"]))
        claims, exits = runs.read_attempt(attempt).claims, runs.exits(attempt)
    except BrokerError:
        return _UNKNOWN
    if not claims or not exits.keys() >= set(range(int(launch["nodes"]))):
        return _UNKNOWN
    since, ended = min(entry.at for entry in claims), max(entry.at for entry in exits.values())
    record = {
        "since": since.isoformat(),
        "at": max(ended, since).isoformat(),
        "interrupted": exits[0].cause is Cause.PREEMPTED,
        "evidence": f"Slurm has forgotten it; the agent ended: {exits[0].cause.value}",
    }
    return recorded_end(slot.keep_first("gone.json", record))


def _machine_options(offer: Offer, launch: Launch, memory_by: str) -> list[str]:
    """The job's request per node."""
    job = launch.job
    request = request_served(offer, job)
    kind = "" if is_shared(offer.accelerator) else "gpu:"  # an offer of shards names them
    options = [f"--gres={kind}{offer.instance_type}"] if offer.accelerator else []
    cpus = (request.cpus if request else None) or offer.cpus  # without accelerators, an offer is of free nodes
    memory = (request.memory_gib if request else None) or (offer.memory_gib if offer.accelerator else None)
    if cpus:
        options.append(f"--cpus-per-task={max(1, math.floor(cpus))}")
    if memory and memory_by == "node":
        options.append(f"--mem={math.floor(memory * 1024)}M")
    elif memory and memory_by == "cpu":
        options.append(f"--mem-per-cpu={math.floor(memory * 1024 / max(1, math.floor(cpus or 1)))}M")
    return options


def _since(slot: Slot, row: SqueueRow) -> datetime | None:
    """The job's start (UTC), never before its submission, as Slurm truncates times to seconds."""
    launch = slot.read("launch.json")
    if row.started is None or launch is None:
        return row.started
    return max(row.started, datetime.fromisoformat(launch["at"]))


def _force_end(slot: Slot, number: str) -> None:
    """End a job through Slurm that was signalled but did not stop in time."""
    cancelled = slot.read("cancelled.json")
    if cancelled and datetime.now(UTC) - datetime.fromisoformat(cancelled["wall"]) > _PATIENCE:
        _signal(number)


def _signal(*arguments: str) -> None:
    """Run scancel. Ignores its errors for a job that has ended or that Slurm has forgotten."""
    with suppress(GiveUp):
        run(["scancel", *arguments])


def _last_words(slot: Slot, state: str) -> str:
    words = slot.last_words() if state in ("FAILED", "BOOT_FAIL", "TIMEOUT") else ""
    return f": {words}" if words else ""
