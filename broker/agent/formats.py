"""The documents of the run folder, which broker and agent write for each other, and their paths.

::

    <job>/attempts/<n>/spec.json            broker   what to run                                    (`Spec`)
    <job>/attempts/<n>/lease.json           broker   how long it is paid for, whether to stop       (`Lease`)
    <job>/attempts/<n>/claim-<rank>.json    agent    which process runs this rank; create-if-absent (`claims.Claim`)
    <job>/attempts/<n>/heartbeat.json       agent    a sign of life; heartbeat-<rank>.json for the ranks above 0
    <job>/attempts/<n>/journal.json         agent    what happened, in order; rank 0 only
    <job>/attempts/<n>/metrics.jsonl        agent    samples of the accelerators; metrics-<rank>.jsonl above 0
    <job>/attempts/<n>/exit.json            agent    how it ended (`Exit`); exit-<rank>.json above 0
    <job>/attempts/<n>/logs/<rank>-<piece>.log       what the command printed, in pieces of at most 1 MiB
    <job>/checkpoints/<id>/…                agent    see `broker.agent.checkpoints`

Times are ISO 8601 in UTC on the clock that the spec names; intervals are seconds of the wall clock. Readers ignore
unknown keys, so a newer writer does not break an older reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from broker.agent.clock import NodeClock, from_text, to_text

VERSION = 1
_QUIET_SCANS = 8
ATTEMPTS = "attempts"


class BadDocument(ValueError):
    """A malformed document of the run folder."""


@contextmanager
def parsing(document: str) -> Iterator[None]:
    """Raises BadDocument if a field is missing or invalid."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise BadDocument(f"{document}: {error!r}") from error


def _folder_name(name: object) -> str:
    """The name of a folder next to the run folder, checked. Raises BadDocument."""
    if "/" in str(name) or str(name).startswith("."):
        raise BadDocument(f"spec.json: {str(name)!r} is not the name of a folder next to the run folders")
    return str(name)


def attempt_path(attempt: int, name: str) -> str:
    """The path of an attempt's document, relative to the job's folder."""
    return f"{ATTEMPTS}/{attempt}/{name}"


def rank_document(name: str, rank: int) -> str:
    """The name of a rank's document: ``exit.json`` of rank 0, ``exit-3.json`` of rank 3."""
    if rank == 0:
        return name
    stem, _, suffix = name.partition(".")
    return f"{stem}-{rank}.{suffix}"


def rank_of(name: str, document: str) -> int | None:
    """The inverse of `rank_document`: 0 for ``exit.json``, 3 for ``exit-3.json``, None for other names."""
    if name == document:
        return 0
    stem, _, suffix = document.partition(".")
    match = re.fullmatch(rf"{re.escape(stem)}-([0-9]+)\.{re.escape(suffix)}", name)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class Intervals:
    """The agent's intervals in seconds of the wall clock.

    ``scan``: look for finished checkpoints. ``mail``: read the lease, write a heartbeat. ``log``: upload output.
    ``outputs``: look for results. ``metrics``: sample the accelerators, and the counters of servers. ``figures``:
    forward the metrics that the program reported. ``notice``: check for a preemption. ``session``: look for signs of
    use. ``promise``: how long a program may take to start before missing checkpoints are reported. ``patience``: how
    long an unreachable run folder is retried at start and end, and how long other ranks are waited for.
    """

    scan: float = 2.0
    mail: float = 5.0
    log: float = 5.0
    outputs: float = 10.0
    metrics: float = 30.0
    figures: float = 600.0
    notice: float = 2.0
    session: float = 15.0
    promise: float = 30.0
    patience: float = 600.0

    @property
    def quiet(self) -> float:
        """Seconds without a change after which a checkpoint of an unknown format that was written in place counts as
        finished: programs pause between its files.
        """
        return _QUIET_SCANS * self.scan

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Intervals:
        intervals = {name: float(values[name]) for name in cls.__dataclass_fields__ if name in values}
        if any(not value > 0 for value in intervals.values()):
            raise BadDocument("spec.json: intervals are more than 0 seconds")
        return cls(**intervals)


@dataclass(frozen=True)
class PlacedTree:
    """A tree of the job's files (`broker.agent.source_tree`) and its folder on the node. ``to``: relative to the
    working folder (empty: that folder itself), absolute, or below ``~``."""

    tree: str
    to: str = ""


@dataclass(frozen=True)
class Sources:
    """The job's files as they were at its submission. ``pool``: the name of their folder next to the run folders."""

    pool: str
    trees: tuple[PlacedTree, ...]

    def to_json(self) -> dict[str, Any]:
        return {"pool": self.pool, "trees": [dict(tree.__dict__) for tree in self.trees]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Sources | None:
        if values is None:
            return None
        return cls(
            _folder_name(values["pool"]),
            tuple(PlacedTree(str(tree["tree"]), str(tree["to"])) for tree in values["trees"]),
        )


@dataclass(frozen=True)
class WantedInput:
    """Results of another job.

    ``job``: the name of its run folder. ``to``: their folder in `$GPUBROKER_INPUT_DIR`. ``paths``: paths or patterns
    that select them. ``may_lack``: having none is not an error.
    """

    job: str
    to: str
    paths: tuple[str, ...]
    may_lack: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "paths": list(self.paths)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WantedInput:
        job, to = _folder_name(values["job"]), str(values["to"])
        if not to or to.startswith("/") or ".." in to.split("/"):
            raise BadDocument(f"spec.json: {to!r} is not a valid folder for inputs")
        return cls(job, to, tuple(str(path) for path in values["paths"]), bool(values.get("may_lack")))


@dataclass(frozen=True)
class SessionSpec:
    """An interactive session.

    ``idle``: it ends after this time without a sign of use (None: never). ``at_most``: signs that cannot be read count
    as use for at most this time (None: forever). ``jupyter``: whether its command starts Jupyter. Times are seconds of
    the spec's clock.
    """

    idle: float | None
    at_most: float | None = None
    jupyter: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> SessionSpec | None:
        if values is None:
            return None
        idle, at_most = values.get("idle"), values.get("at_most")
        return cls(
            None if idle is None else float(idle),
            None if at_most is None else float(at_most),
            bool(values.get("jupyter")),
        )


@dataclass(frozen=True)
class Spec:
    """An attempt's spec.

    ``secrets``: names of variables whose values are masked. ``grace``: wall-clock seconds between SIGTERM and
    SIGKILL. ``keep``: the number of checkpoints kept. ``every``: seconds between two of them, as the job promises.
    ``gpus``: per node. ``sources``: what lies in the folder where the commands run. ``outputs``: patterns of results,
    relative to that folder. ``resume_from``: the job (by its run folder's name) whose checkpoint is restored while this
    job has none, and the id of that checkpoint (None: the newest). ``inputs``: results of other jobs. ``session``: its
    settings if it is an interactive session. ``serving_ports``: where its servers count tokens.
    """

    job_id: str
    attempt: int
    key: str
    command: str
    nodes: int = 1
    setup: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sources: Sources | None = None
    outputs: tuple[str, ...] = ()
    resume_from: tuple[str, str | None] | None = None
    inputs: tuple[WantedInput, ...] = ()
    session: SessionSpec | None = None
    serving_ports: tuple[int, ...] = ()
    gpus: int = 0
    keep: int = 3
    every: float | None = None
    grace: float = 30.0
    intervals: Intervals = field(default_factory=Intervals)
    clock: NodeClock = field(default_factory=NodeClock)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "job_id": self.job_id,
            "attempt": self.attempt,
            "key": self.key,
            "nodes": self.nodes,
            "command": self.command,
            "setup": self.setup,
            "envs": dict(self.envs),
            "secrets": list(self.secrets),
            "sources": self.sources and self.sources.to_json(),
            "outputs": list(self.outputs),
            "resume_from": self.resume_from and {"job": self.resume_from[0], "checkpoint": self.resume_from[1]},
            "inputs": [wanted.to_json() for wanted in self.inputs],
            "session": self.session and dict(self.session.__dict__),
            "serving_ports": list(self.serving_ports),
            "gpus": self.gpus,
            "checkpoint": {"keep": self.keep, "every": self.every, "grace": self.grace},
            "intervals": dict(self.intervals.__dict__),
            "clock": self.clock.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Spec:
        with parsing("spec.json"):
            checkpoint = values.get("checkpoint") or {}
            return cls(
                job_id=str(values["job_id"]),
                attempt=int(values["attempt"]),
                key=str(values["key"]),
                command=str(values["command"]),
                nodes=int(values.get("nodes", 1)),
                setup=values.get("setup"),
                envs={str(name): str(value) for name, value in (values.get("envs") or {}).items()},
                secrets=tuple(str(name) for name in values.get("secrets") or ()),
                sources=Sources.from_json(values.get("sources")),
                outputs=tuple(str(item) for item in values.get("outputs") or ()),
                resume_from=_resume_from(values.get("resume_from")),
                inputs=tuple(WantedInput.from_json(item) for item in values.get("inputs") or ()),
                session=SessionSpec.from_json(values.get("session")),
                serving_ports=tuple(int(port) for port in values.get("serving_ports") or ()),
                gpus=int(values.get("gpus", 0)),
                keep=max(1, int(checkpoint.get("keep", 3))),
                every=None if checkpoint.get("every") is None else float(checkpoint["every"]),
                grace=float(checkpoint.get("grace", 30.0)),
                intervals=Intervals.from_json(values.get("intervals") or {}),
                clock=NodeClock.from_json(values.get("clock")),
            )


def _resume_from(values: Mapping[str, Any] | None) -> tuple[str, str | None] | None:
    if values is None:
        return None
    job, checkpoint = _folder_name(values["job"]), values.get("checkpoint")
    return job, None if checkpoint is None else str(checkpoint)


@dataclass(frozen=True)
class LeaseIdleLimit:
    """Stop when all accelerators were below ``below`` percent for ``seconds`` of the spec's clock.

    ``told``: the end of the message about it: duration, limit, and the rule's position in its file.
    """

    below: float
    seconds: float
    told: str


@dataclass(frozen=True)
class Lease:
    """How long the attempt may continue.

    ``paid_until``: it stops itself then (None: nothing is billed). ``ends_at``: the end of its granted duration.
    ``stop``: the broker requests a stop, checkpoint first, for this cause. ``max_unattended``: seconds without a
    renewed lease until it stops. ``renewed_at``: when the broker wrote it, by the broker's clock, like all these times.
    ``stored_at``: the same time by the object store's clock; from the store, not the document. ``idle``: idleness
    limits. ``standby``: another attempt still carries the job; this one prepares, and restores and writes only once its
    lease no longer says so, which fences the other one (`entry.newer_exists`).
    """

    paid_until: datetime | None = None
    ends_at: datetime | None = None
    stop: str | None = None
    max_unattended: float | None = None
    renewed_at: datetime | None = None
    idle: tuple[LeaseIdleLimit, ...] = ()
    standby: bool = False
    stored_at: datetime | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "paid_until": to_text(self.paid_until) if self.paid_until else None,
            "ends_at": to_text(self.ends_at) if self.ends_at else None,
            "stop": self.stop,
            "max_unattended": self.max_unattended,
            "renewed_at": to_text(self.renewed_at) if self.renewed_at else None,
            "idle": [dict(limit.__dict__) for limit in self.idle],
            "standby": self.standby,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Lease:
        """Raises BadDocument, also for a lease that does not state explicitly that nothing is billed."""
        with parsing("lease.json"):
            values["paid_until"]
            times = {
                name: None if values.get(name) is None else from_text(values[name])
                for name in ("paid_until", "ends_at", "renewed_at")
            }
            limit = values.get("max_unattended")
            idle = tuple(
                LeaseIdleLimit(float(row["below"]), float(row["seconds"]), str(row["told"]))
                for row in values.get("idle") or ()
            )
            unattended = None if limit is None else float(limit)
            standby = bool(values.get("standby"))
            return cls(stop=values.get("stop"), max_unattended=unattended, idle=idle, standby=standby, **times)

    def over(self, now: datetime, silent: float = 0.0) -> tuple[str, str] | None:
        """Cause and message once the attempt must stop; None while it may continue.

        ``silent``: seconds without a message of the broker.
        """
        if self.stop:
            return self.stop, "the broker requested it"
        if self.paid_until is not None and now >= self.paid_until:
            return "paid_until", f"paid until {to_text(self.paid_until)}"
        if self.ends_at is not None and now >= self.ends_at:
            return "max_duration", f"the granted time ended at {to_text(self.ends_at)}"
        if self.max_unattended is not None and silent > self.max_unattended:
            return "unattended", f"the lease was not renewed for {silent:.0f} s"
        return None


@dataclass(frozen=True)
class Exit:
    """How an attempt ended on the node. ``cause`` is one of `broker.core.events.outcomes.Cause`; ``exit_status`` is the
    command's (128 + N when signal N killed it); ``step`` the last known one.
    """

    cause: str
    at: datetime
    exit_status: int | None = None
    evidence: str = ""
    step: int | None = None
    checkpoint: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **self.__dict__, "at": to_text(self.at)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Exit:
        with parsing("exit"):
            return cls(
                cause=str(values["cause"]),
                at=from_text(values["at"]),
                exit_status=values.get("exit_status"),
                evidence=str(values.get("evidence") or ""),
                step=values.get("step"),
                checkpoint=values.get("checkpoint"),
            )
