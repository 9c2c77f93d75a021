"""The broker's side of one job's run folder: it writes documents for the agent and reads the agent's.

`broker.agent.formats` defines layout and documents. Every call may be repeated. Raises `Unreachable` if the store does
not answer, and `Malformed` for an invalid document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.agent import access, checkpoints, signatures
from broker.agent.checkpoints import Manifest, SavedFile
from broker.agent.claims import Claim
from broker.agent.clock import from_text
from broker.agent.download import Torn
from broker.agent.formats import BadDocument, Lease, Spec, attempt_path, rank_of
from broker.agent.idleness import busiest
from broker.agent.output import PIECE, piece_path
from broker.agent.outputs import OutputFile, read_index
from broker.agent.store import ObjectFolder, StoreTrouble, split_folder
from broker.core.errors import Malformed, Unreachable
from broker.core.policy.policy import Usage
from broker.engines.runfolder import untrusted
from broker.engines.runfolder.mailbox import Dated, ExitRecord

_STALE_AFTER = timedelta(minutes=10)  # the age of a heartbeat from which on its age is measured by the store's clock


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agent's last sign of life (UTC).

    ``phase``: a word for people. ``step`` of ``total``: None if unknown. ``silent``: how long it has been in the store
    (wall-clock time), see `NodeState.silent`.
    """

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


def omission_line(size: int) -> str:
    """The line that replaces the first bytes of an output that are no longer kept."""
    return f"[the first {size:,} bytes are no longer kept]"


@contextmanager
def reaching(folder: str) -> Iterator[None]:
    """Turns errors of the store, and of documents in that folder, into `Unreachable` and `Malformed`."""
    try:
        yield
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error
    except BadDocument as error:
        raise Malformed(str(error), where=folder) from error


class RunFolder:
    """One job's folder: its attempts and its checkpoints."""

    def __init__(self, runs_url: str, job_id: str) -> None:
        """``runs_url``: the place of all run folders (``file:///…``, ``s3://…``, ``gs://…``, ``az://…``). Makes no
        connection; creates a local folder, readable by its owner only. Raises `Unreachable`."""
        self.url = f"{runs_url.rstrip('/')}/{job_id}"
        with reaching(self.url):
            self._store = ObjectFolder.open(self.url)

    @classmethod
    def of_attempt(cls, url: str) -> tuple[RunFolder, int]:
        """The job's folder and the attempt's number, by the URL of an attempt's folder."""
        job, attempt = split_folder(url)
        return cls(*job.rsplit("/", 1)), attempt

    def attempt_url(self, attempt: int) -> str:
        """The URL of an attempt's folder, for the agent's option ``--folder``."""
        return f"{self.url}/{attempt_path(attempt, '').rstrip('/')}"

    def write_spec(self, spec: Spec, key: str | None = None) -> None:
        """Write the spec, before the lease and the launch.

        A repeated call must not change its meaning. ``key``: the attempt's, with which it is signed.
        """
        self._write_signed(spec.attempt, "spec.json", spec.to_json(), key)

    def write_lease(self, attempt: int, lease: Lease, key: str | None = None) -> None:
        """Replace the lease. ``key``: as for `write_spec`."""
        self._write_signed(attempt, "lease.json", lease.to_json(), key)

    def _write_signed(self, attempt: int, name: str, document: dict[str, Any], key: str | None) -> None:
        with reaching(self.url):
            signed = document if key is None else signatures.sign(name, document, key)
            self._store.write_json(attempt_path(attempt, name), signed)

    def write_access(self, attempt: int, credentials: Mapping[str, str], key: str) -> None:
        """Write renewed credentials for the attempt's nodes, which know the ``key``."""
        with reaching(self.url):
            self._store.write_json(attempt_path(attempt, access.FILE), access.seal(credentials, key))

    def read_lease(self, attempt: int, key: str | None = None) -> Lease | None:
        """The current lease; None if there is none, or if it is unreadable or, given a key, not signed with it: a node
        may have overwritten it.
        """
        with reaching(self.url):
            lease = self._read(attempt, "lease.json")
        try:
            signatures.check("lease.json", lease or {}, key)
            return None if lease is None else Lease.from_json(lease)
        except BadDocument:
            return None

    def read_attempt(self, attempt: int, seen: int = 0) -> AttemptFolder:
        """The agents' reports. ``seen``: the number of journal entries already read."""
        news = self.read_news(attempt, seen)
        with reaching(self.url):
            names = self._store.files(attempt_path(attempt, ""))
            claims = [self._read(attempt, name) for name in names if rank_of(name, "claim.json") is not None]
        return replace(news, claims=tuple(parsed for claim in claims if (parsed := _claim(claim)) is not None))

    def read_news(self, attempt: int, entries_read: int = 0) -> AttemptFolder:
        """As `read_attempt` without the claims, in three requests. Reads the exit record first, so a journal read with
        one is complete."""
        with reaching(self.url):
            exit_document = self._read(attempt, "exit.json")
            journal = self._read(attempt, "journal.json")
            heartbeat = self._heartbeat(attempt, dated=exit_document is None)
        entries = untrusted.journal(journal, entries_read)
        return AttemptFolder((), heartbeat, entries, untrusted.exit_record(exit_document))

    def _heartbeat(self, attempt: int, *, dated: bool) -> Heartbeat | None:
        """The last heartbeat.

        ``dated``: the store gives the age of an old one, because the clocks of nodes and of this machine may be wrong.
        """
        stored = self._store.read_at(attempt_path(attempt, "heartbeat.json"), untrusted.MAX_DOCUMENT)
        heartbeat = None if stored is None else _heartbeat(untrusted.document(stored[0]))
        if stored is None or heartbeat is None or not dated or datetime.now(UTC) - stored[1] < _STALE_AFTER:
            return heartbeat
        probe = attempt_path(attempt, "broker-clock.json")
        try:
            self._store.write_json(probe, {})
            now = self._store.written_at(probe) or stored[1]
        except StoreTrouble:  # a reader without write access cannot learn the age
            return heartbeat
        return replace(heartbeat, silent=max(now - stored[1], timedelta(0)))

    def exits(self, attempt: int) -> dict[int, ExitRecord]:
        """The exit records of the ranks that have ended, by rank."""
        with reaching(self.url):
            ranks = {name: rank_of(name, "exit.json") for name in self._store.files(attempt_path(attempt, ""))}
            documents = {rank: self._read(attempt, name) for name, rank in ranks.items() if rank is not None}
        return {
            rank: exit_record
            for rank, document in documents.items()
            if (exit_record := untrusted.exit_record(document)) is not None
        }

    def checkpoints(self) -> list[Manifest]:
        """The finished checkpoints, oldest first, without those with an unreadable manifest. Does not verify them."""
        manifests = []
        with reaching(self.url):
            for name in checkpoints.list_ids(self._store):
                try:
                    manifests.append(checkpoints.read_manifest(self._store, name))
                except Torn:
                    continue
        return manifests

    def verify(self, checkpoint: str) -> str | None:
        """Why a checkpoint cannot be restored; None if sizes and SHA-256 of all files match. Reads all content."""
        with reaching(self.url):
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
            yield omission_line(pieces[0] * PIECE)
        for number in pieces:
            *lines, rest = (rest + self.log_piece(attempt, rank, number)).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def log_pieces(self, attempt: int, rank: int) -> list[int]:
        """The numbers of the stored pieces (`PIECE` bytes) of a rank's output; the last one may still grow."""
        with reaching(self.url):
            names = self._store.files(attempt_path(attempt, "logs"))
        return [int(name.removesuffix(".log").partition("-")[2]) for name in names if name.startswith(f"{rank}-")]

    def log_piece(self, attempt: int, rank: int, number: int) -> bytes:
        """The current content of a piece; empty if it is no longer kept."""
        with reaching(self.url):
            return self._store.read(piece_path(attempt, rank, number), most=2 * PIECE) or b""

    def outputs(self, attempt: int) -> tuple[KeptOutput, ...]:
        """The uploaded results of an attempt, by rank and path. Raises also `Malformed`, see `read_index`."""
        results: list[KeptOutput] = []
        with reaching(self.url):
            for name in self._store.files(attempt_path(attempt, "")):
                rank = rank_of(name, "outputs.json")
                if rank is not None:
                    rows = read_index(self._store, attempt_path(attempt, name))
                    results += [KeptOutput(attempt, rank, file) for file in rows]
        return tuple(sorted(results, key=lambda result: (result.rank, result.file.path)))

    def output_content(self, attempt: int, file: OutputFile, start: int = 0) -> Iterator[bytes]:
        """The content of a result from byte ``start`` on, not verified. Raises `Unreachable`, and `Malformed` if it no
        longer exists."""
        return self._content(attempt_path(attempt, file.object), file.size, start)

    def checkpoint_content(self, checkpoint: Manifest, file: SavedFile, start: int = 0) -> Iterator[bytes]:
        """The content of a checkpoint's file; as `output_content`."""
        return self._content(f"{checkpoints.FOLDER}/{file.object}", file.size, start)

    def _content(self, path: str, size: int, start: int) -> Iterator[bytes]:
        try:
            with reaching(self.url):
                if size > start:
                    yield from self._store.stream(path, start)
        except FileNotFoundError:
            raise Malformed(f"{path} is no longer in the run folder", where=self.url) from None

    def usage(self, attempt: int) -> list[Usage]:
        """The agents' samples of accelerator utilization, oldest first, without invalid ones."""
        samples = []
        with reaching(self.url):
            names = self._store.files(attempt_path(attempt, ""))
            texts = [
                self._store.read(attempt_path(attempt, name), most=untrusted.MAX_DOCUMENT) or b""
                for name in names
                if name == "metrics.jsonl" or (name.startswith("metrics-") and name.endswith(".jsonl"))
            ]
        for line in (line for text in texts for line in text.splitlines()):
            try:
                sample = json.loads(line)
                percent = busiest(sample["gpus"])
                if percent is not None and 0 <= percent <= 100:
                    samples.append(Usage(from_text(sample["at"]), percent))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
        return sorted(samples, key=lambda reading: reading.at)

    def _read(self, attempt: int, name: str) -> dict[str, Any] | None:
        """A document that a node may have written; None if it is missing or unreadable."""
        content = self._store.read(attempt_path(attempt, name), most=untrusted.MAX_DOCUMENT)
        return None if content is None else untrusted.document(content)


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
    fields = values or {}
    phase, step, total = untrusted.text(fields.get("phase")), untrusted.step(fields.get("step")), fields.get("total")
    return Heartbeat(at, phase, step, untrusted.step(total))


class OutputTail:
    """Follows one rank's output in an attempt's run folder.

    Each call reads the last piece, which still grows (up to 1 MiB), again. The agent uploads every few seconds.
    """

    def __init__(self, folder: RunFolder, attempt: int, rank: int = 0) -> None:
        self._folder, self._attempt, self._rank = folder, attempt, rank
        self._read = 0  # bytes
        self._rest = b""

    def new(self) -> Iterator[str]:
        """The complete lines since the last call, oldest first. Raises `Unreachable`, possibly after some lines; the
        next call then continues."""
        for number in self._folder.log_pieces(self._attempt, self._rank):
            start = number * PIECE
            if start + PIECE <= self._read:
                continue
            if start > self._read:
                self._read, self._rest = start, b""
                yield omission_line(start)
            data = self._folder.log_piece(self._attempt, self._rank, number)[self._read - start :]
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)

    def last(self) -> list[str]:
        """The text after the last line break, once no more output will come."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []
