"""The broker's side of the run folders: it writes documents for the agent and reads the agent's.

`RunFolder` is one job's folder; `RunFolders` is all of them, as the reconciler's `broker.runfolder.mailbox.Mailbox`.
`broker.agent.formats` defines layout and documents. Every call may be repeated. Raises `Unreachable` if the store does
not answer, and `Malformed` for an invalid document.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from broker.agent import access, checkpoints, signatures
from broker.agent.access import ACCESS_VARIABLE
from broker.agent.bucket_region import REGION_VARIABLE, bucket_region
from broker.agent.checkpoints import Manifest, SavedFile
from broker.agent.clock import NodeClock, from_text
from broker.agent.download import Torn
from broker.agent.formats import (
    BadDocument,
    Claim,
    Intervals,
    Lease,
    LeaseIdleLimit,
    PlacedTree,
    SessionSpec,
    Sources,
    Spec,
    WantedInput,
    attempt_path,
    rank_of,
)
from broker.agent.output import PIECE, piece_path
from broker.agent.outputs import OutputFile
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import BrokerError, Malformed, Unreachable
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.after import Predecessor
from broker.core.job.arrays import task_id
from broker.core.job.jobs import SessionPlan
from broker.core.job.snapshots import FileSnapshot
from broker.core.policy import policy
from broker.core.policy.policy import Usage
from broker.core.values.clock import Clock, ScaledClock
from broker.ledger.holds import STOP_GRACE
from broker.runfolder import untrusted
from broker.runfolder.mailbox import LeaseGrant as Granted
from broker.runfolder.node_access import AccessGiver
from broker.runfolder.node_state import Dated, ExitRecord, NodeState
from broker.runfolder.signing import AttemptKeys

log = logging.getLogger(__name__)
_STALE = timedelta(minutes=10)  # the age of a heartbeat from which the store is asked for its time


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent's last sign of life (UTC). ``phase``: a word for people. ``step`` of ``total``: None if unknown.
    ``silent``: how long the store has had it (wall time), see `NodeState.silent`."""

    at: datetime
    phase: str
    step: int | None
    total: int | None
    silent: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The content of an attempt's folder. ``journal``: the entries after those already seen, in order."""

    claims: tuple[Claim, ...]
    heartbeat: Heartbeat | None
    journal: tuple[Dated, ...]
    exit: ExitRecord | None


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """A result, and the attempt and rank that wrote it."""

    attempt: int
    rank: int
    file: OutputFile


def no_longer_kept(size: int) -> str:
    """The line that replaces the first bytes of an output that are no longer kept."""
    return f"[the first {size:,} bytes are no longer kept]"


class RunFolder:
    """One job's folder: its attempts and its checkpoints."""

    def __init__(self, runs_url: str, job_id: str) -> None:
        """``runs_url``: the place of all run folders (``file:///…``, ``s3://…``, ``gs://…``, ``az://…``). Makes no
        connection; creates a local folder, readable by its owner only. Raises `Unreachable`."""
        self.url = f"{runs_url.rstrip('/')}/{job_id}"
        with self._reaching():
            self._store = ObjectFolder.open(self.url)

    def attempt_url(self, attempt: int) -> str:
        """The URL of an attempt's folder: the agent's ``--folder``."""
        return f"{self.url}/{attempt_path(attempt, '').rstrip('/')}"

    def write_spec(self, spec: Spec, key: str | None = None) -> None:
        """Write the spec: before the lease and the launch. A repeated call must not change its meaning. ``key``: the
        attempt's, to sign it with."""
        self._write_signed(spec.attempt, "spec.json", spec.to_json(), key)

    def write_lease(self, attempt: int, lease: Lease, key: str | None = None) -> None:
        """Replace the lease: the paid time, and whether to stop. ``key``: as for `write_spec`."""
        self._write_signed(attempt, "lease.json", lease.to_json(), key)

    def _write_signed(self, attempt: int, name: str, document: dict[str, Any], key: str | None) -> None:
        with self._reaching():
            signed = document if key is None else signatures.sign(name, document, key)
            self._store.write_json(attempt_path(attempt, name), signed)

    def write_access(self, attempt: int, credentials: Mapping[str, str], key: str) -> None:
        """Renew the credentials of the attempt's nodes, which know the ``key``."""
        with self._reaching():
            self._store.write_json(attempt_path(attempt, access.FILE), access.seal(credentials, key))

    def read_lease(self, attempt: int, key: str | None = None) -> Lease | None:
        """The current lease; None if there is none, or none that is readable and, given a key, signed with it: a node
        may have written over it."""
        with self._reaching():
            lease = self._read(attempt, "lease.json")
        try:
            signatures.check("lease.json", lease or {}, key)
            return None if lease is None else Lease.from_json(lease)
        except BadDocument:
            return None

    def read_state(self, attempt: int, seen: int = 0) -> AttemptFolder:
        """What the agents wrote. ``seen``: the number of journal entries already read."""
        found = self.read_news(attempt, seen)
        with self._reaching():
            names = self._store.files(attempt_path(attempt, ""))
            claims = [self._read(attempt, name) for name in names if rank_of(name, "claim.json") is not None]
        return replace(found, claims=tuple(one for claim in claims if (one := _claim(claim)) is not None))

    def read_news(self, attempt: int, seen: int = 0) -> AttemptFolder:
        """As `read_state` without the claims, in three requests. Reads the exit record first, so a journal read with an
        exit record is complete."""
        with self._reaching():
            ending = self._read(attempt, "exit.json")
            journal = self._read(attempt, "journal.json")
            heartbeat = self._heartbeat(attempt, dated=ending is None)
        entries = untrusted.journal(journal, seen)
        return AttemptFolder((), heartbeat, entries, untrusted.exit_record(ending))

    def _heartbeat(self, attempt: int, *, dated: bool) -> Heartbeat | None:
        """``dated``: an old one is dated by the store, because clocks of nodes and of this machine may be wrong."""
        found = self._store.read_at(attempt_path(attempt, "heartbeat.json"), most=untrusted.MAX_DOCUMENT)
        heart = None if found is None else _heartbeat(untrusted.document(found[0]))
        if found is None or heart is None or not dated or datetime.now(UTC) - found[1] < _STALE:
            return heart
        probe = attempt_path(attempt, "broker-clock.json")
        try:
            self._store.write_json(probe, {})
            now = self._store.written_at(probe) or found[1]
        except StoreTrouble:  # who may only read learns no age
            return heart
        return replace(heart, silent=max(now - found[1], timedelta(0)))

    def exits(self, attempt: int) -> dict[int, ExitRecord]:
        """The exit records of the ranks that have ended, by rank."""
        with self._reaching():
            ranks = {name: rank_of(name, "exit.json") for name in self._store.files(attempt_path(attempt, ""))}
            said = {rank: self._read(attempt, name) for name, rank in ranks.items() if rank is not None}
        return {rank: ending for rank, one in said.items() if (ending := untrusted.exit_record(one)) is not None}

    def checkpoints(self) -> list[Manifest]:
        """The finished checkpoints, oldest first, without those with an unreadable manifest. Does not verify them."""
        found = []
        with self._reaching():
            for name in checkpoints.listed(self._store):
                try:
                    found.append(checkpoints.read_manifest(self._store, name))
                except Torn:
                    continue
        return found

    def verify(self, checkpoint: str) -> str | None:
        """Why a checkpoint cannot be restored; None if sizes and SHA-256 of all files match. Reads all content."""
        with self._reaching():
            try:
                checkpoints.verify(self._store, checkpoint)
            except Torn as reason:
                return str(reason)
        return None

    def logs(self, attempt: int, rank: int = 0) -> Iterator[str]:
        """The uploaded lines of a rank's output, oldest first. If the oldest are no longer kept, the first line says
        so."""
        rest = b""
        pieces = self.log_pieces(attempt, rank)
        if pieces and pieces[0]:
            yield no_longer_kept(pieces[0] * PIECE)
        for number in pieces:
            *lines, rest = (rest + self.log_piece(attempt, rank, number)).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def log_pieces(self, attempt: int, rank: int) -> list[int]:
        """The numbers of the stored pieces (`PIECE` bytes) of a rank's output; the last one may still grow."""
        with self._reaching():
            names = self._store.files(attempt_path(attempt, "logs"))
        return [int(name.removesuffix(".log").partition("-")[2]) for name in names if name.startswith(f"{rank}-")]

    def log_piece(self, attempt: int, rank: int, number: int) -> bytes:
        """The current content of a piece; empty if it is no longer kept."""
        with self._reaching():
            return self._store.read(piece_path(attempt, rank, number), most=2 * PIECE) or b""

    def outputs(self, attempt: int) -> tuple[KeptOutput, ...]:
        """The uploaded results of an attempt, by rank and path, without invalid indexes and without entries whose path
        leaves the folder."""
        found: list[KeptOutput] = []
        with self._reaching():
            for name in self._store.files(attempt_path(attempt, "")):
                rank = rank_of(name, "outputs.json")
                if rank is not None:
                    rows = untrusted.outputs(self._read(attempt, name))
                    found += [KeptOutput(attempt, rank, file) for file in rows]
        return tuple(sorted(found, key=lambda one: (one.rank, one.file.path)))

    def output_content(self, attempt: int, file: OutputFile, start: int = 0) -> Iterator[bytes]:
        """The content of a result from byte ``start`` on, not verified. Raises `Unreachable`, and `Malformed` if it no
        longer exists."""
        return self._content(attempt_path(attempt, file.object), file.size, start)

    def checkpoint_content(self, checkpoint: Manifest, file: SavedFile, start: int = 0) -> Iterator[bytes]:
        """The content of a checkpoint's file; as `output_content`."""
        return self._content(f"{checkpoints.FOLDER}/{checkpoint.id}/{file.object}", file.size, start)

    def _content(self, path: str, size: int, start: int) -> Iterator[bytes]:
        try:
            if size > start:
                yield from self._store.stream(path, start)
        except FileNotFoundError:
            raise Malformed(f"{path} is no longer in the run folder", where=self.url) from None
        except StoreTrouble as error:
            raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error

    def usage(self, attempt: int) -> list[Usage]:
        """The agents' samples of accelerator utilisation, oldest first, without invalid ones."""
        found = []
        with self._reaching():
            names = self._store.files(attempt_path(attempt, ""))
            texts = [
                self._store.read(attempt_path(attempt, name), most=untrusted.MAX_DOCUMENT) or b""
                for name in names
                if name == "metrics.jsonl" or (name.startswith("metrics-") and name.endswith(".jsonl"))
            ]
        for line in (line for text in texts for line in text.splitlines()):
            try:
                sample = json.loads(line)
                busy = [one["utilisation"] for one in sample["gpus"] if one.get("utilisation") is not None]
                if busy and 0 <= max(busy) <= 100:
                    found.append(Usage(from_text(sample["at"]), float(max(busy))))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
        return sorted(found, key=lambda one: one.at)

    def _read(self, attempt: int, name: str) -> dict[str, Any] | None:
        """A document that a node may have written; None if it is missing or unreadable."""
        content = self._store.read(attempt_path(attempt, name), most=untrusted.MAX_DOCUMENT)
        return None if content is None else untrusted.document(content)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except StoreTrouble as error:
            raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error


def _claim(values: dict[str, Any] | None) -> Claim | None:
    try:
        return None if values is None else Claim.from_json(values)
    except BadDocument:
        return None


def _heartbeat(values: dict[str, Any] | None) -> Heartbeat | None:
    try:
        at = from_text((values or {})["at"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    told = values or {}
    phase, step, total = untrusted.text(told.get("phase")), untrusted.step(told.get("step")), told.get("total")
    return Heartbeat(at, phase, step, untrusted.step(total))


# For a sandbox in which an hour passes in seconds. On a real object store so many requests would be expensive.
_BRISK = Intervals(scan=0.1, mail=0.2, log=0.5, outputs=0.5, metrics=5.0, notice=0.05, patience=60.0)


_RENEW_AGAIN = timedelta(minutes=1)  # after a failure

# Open folders kept, more than jobs running at once: opening a folder takes longer than a read.
_MOST_FOLDERS = 20_000


class RunFolders:
    """Every job's run folder below one URL. ``intervals``: the agents' intervals; default: by the clock's speed.
    ``keys``: what specs and leases are signed with; None: they are not. ``access``: gives nodes credentials for their
    folders (needs ``keys``); None: they have their own."""

    def __init__(
        self,
        runs_url: str,
        clock: Clock,
        intervals: Intervals | None = None,
        keys: AttemptKeys | None = None,
        access: AccessGiver | None = None,
    ) -> None:
        self._runs_url = runs_url
        self._clock = clock
        self._keys, self._access = keys, access
        self._renew_at: dict[str, datetime] = {}
        self._intervals = intervals or (Intervals() if clock.scale == 1 else _BRISK)
        self.of = lru_cache(maxsize=_MOST_FOLDERS)(self._of)

    def _of(self, job_id: str) -> RunFolder:
        """One job's folder."""
        return RunFolder(self._runs_url, job_id)

    def url(self, view: JobView, attempt: AttemptView) -> str:
        return self.of(view.id).attempt_url(attempt.number)

    def prepare(self, view: JobView, attempt: AttemptView, lease: Granted) -> None:
        """Writes the lease first, so that an agent that finds the spec also finds its lease."""
        self.write_lease(view, attempt, lease)
        self.of(view.id).write_spec(self.spec(view, attempt), self._key(attempt))

    def write_lease(self, view: JobView, attempt: AttemptView, lease: Granted) -> None:
        now = self._clock.now()
        alone = lease.max_unattended
        granted = Lease(
            paid_until=lease.paid_until,
            ends_at=lease.ends_at,
            stop=lease.stop and lease.stop.value,
            max_unattended=None if alone is None else alone.total_seconds(),
            renewed_at=now,
            idle=tuple(LeaseIdleLimit(one.below, one.stretch.total_seconds(), one.told) for one in lease.idle),
        )
        self.of(view.id).write_lease(attempt.number, granted, self._key(attempt))

    def variables(self, view: JobView, attempt: AttemptView) -> Mapping[str, str]:
        """The variables that the attempt's launch passes to its agents without writing them anywhere: its key, the
        region of the run folders' bucket, and credentials for the job's folder. Raises as `AccessGiver.credentials`."""
        region = bucket_region(self._runs_url)
        own = {} if self._keys is None else dict(self._keys.variables(attempt.key))
        own |= {REGION_VARIABLE: region} if region else {}
        if self._access is not None:
            own[ACCESS_VARIABLE] = json.dumps(dict(self._issued(view, attempt, self._access)))
        return own

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        if self._access is None:
            return
        key, now = self._key(attempt), datetime.now(UTC)
        if key is None or now < self._renew_at.get(attempt.key, now):
            return
        self._renew_at[attempt.key] = now + _RENEW_AGAIN
        try:
            self.of(view.id).write_access(attempt.number, self._issued(view, attempt, self._access), key)
        except BrokerError as error:
            log.warning("job %s, attempt %s: its access cannot be renewed: %s", view.id, attempt.number, error)
            raise

    def _issued(self, view: JobView, attempt: AttemptView, giver: AccessGiver) -> Mapping[str, str]:
        """New credentials, to be renewed when a third of their time has passed."""
        found, now = giver.credentials(view.id, view.job), datetime.now(UTC)
        self._renew_at[attempt.key] = now + (from_text(found["expires_at"]) - now) / 3
        return found

    def _key(self, attempt: AttemptView) -> str | None:
        return self._keys.of(attempt.key) if self._keys is not None else None

    def lease(self, view: JobView, attempt: AttemptView) -> Granted | None:
        found = self.of(view.id).read_lease(attempt.number, self._key(attempt))
        if found is None or (found.stop is not None and found.stop not in [cause.value for cause in Cause]):
            return None
        alone = None if found.max_unattended is None else timedelta(seconds=found.max_unattended)
        idle = tuple(policy.IdleLimit(one.below, timedelta(seconds=one.seconds), one.told) for one in found.idle)
        return Granted(found.paid_until, found.ends_at, Cause(found.stop) if found.stop else None, alone, idle)

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        found = self.of(view.id).read_news(attempt.number, attempt.agent_events)
        heart = found.heartbeat
        return NodeState(
            journal=found.journal,
            heartbeat_at=heart.at if heart else None,
            step=heart.step if heart else None,
            total=heart.total if heart else None,
            phase=heart.phase if heart else "",
            exit=found.exit,
            silent=heart.silent * self._clock.scale if heart else timedelta(0),
        )

    def usage(self, view: JobView, attempt: AttemptView) -> list[Usage]:
        """The agents' samples of the attempt's accelerators. Raises `Unreachable`."""
        return self.of(view.id).usage(attempt.number)

    def spec(self, view: JobView, attempt: AttemptView) -> Spec:
        """The attempt's spec, without names or values of secrets."""
        job = view.job
        # Stopping takes the command's grace, as long again for the upload, and a little; it must fit into the time
        # that the hold pays for after `paid_until`.
        grace = STOP_GRACE / timedelta(seconds=1) / self._clock.scale / 3
        return Spec(
            job_id=view.id,
            attempt=attempt.number,
            key=attempt.key,
            command=job.run,
            nodes=job.num_nodes,
            setup=job.setup,
            envs={**job.envs, **_commit(job.snapshot)},
            workdir=None if job.snapshot else _workdir(job.workdir),
            sources=_sources(job.snapshot),
            outputs=job.outputs,
            resume_from=(job.resume_from.job, job.resume_from.checkpoint) if job.resume_from else None,
            inputs=_inputs(job.after),
            session=_session(job.session),
            gpus=attempt.placement.gpus // job.num_nodes,
            keep=job.checkpoint.keep,
            every=job.checkpoint.every.total_seconds() if job.checkpoint.every else None,
            grace=grace,
            # Who may be stopped early by its figures has them passed on as often as its accelerators are sampled.
            intervals=replace(self._intervals, figures=self._intervals.metrics) if job.stop_when else self._intervals,
            clock=_node_clock(self._clock),
        )


def _session(plan: SessionPlan | None) -> SessionSpec | None:
    if plan is None:
        return None
    at_most = None if plan.at_most is None else plan.at_most.total_seconds()
    return SessionSpec(plan.idle.total_seconds(), at_most, plan.jupyter)


def _inputs(before: Sequence[Predecessor]) -> tuple[WantedInput, ...]:
    """What the job takes from those before it. A task of an array need not have what the others have."""
    found = []
    for one in before:
        if one.inputs and one.tasks:
            of_tasks = ((task_id(one.job, number), f"{one.folder}/{number}") for number in one.tasks)
            found += [WantedInput(job, to, one.inputs, may_lack=True) for job, to in of_tasks]
        elif one.inputs:
            found.append(WantedInput(one.job, one.folder, one.inputs))
    return tuple(found)


def _workdir(folder: str | None) -> str | None:
    """The working folder of a job without a snapshot, which an older version accepted."""
    return str(Path(folder).expanduser().absolute()) if folder else None


def _commit(snapshot: FileSnapshot | None) -> dict[str, str]:
    """Variables with the Git commit, for programs that record it: a snapshot does not contain ``.git``."""
    git = snapshot.git if snapshot else None
    return {"GPUBROKER_GIT_COMMIT": git.commit} if git and git.commit else {}


def _sources(snapshot: FileSnapshot | None) -> Sources | None:
    if snapshot is None:
        return None
    return Sources(snapshot.pool, tuple(PlacedTree(one.tree, one.to) for one in snapshot.trees))


def _node_clock(clock: Clock) -> NodeClock:
    if isinstance(clock, ScaledClock):
        return NodeClock(clock.origin.astimezone(UTC), clock.starts_at.astimezone(UTC), clock.scale)
    return NodeClock()
