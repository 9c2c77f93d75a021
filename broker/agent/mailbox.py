"""The agent's exchange with the broker, in its own thread: receives the lease; sends heartbeat, journal, output and
metrics.

While the run folder is unreachable, the last lease stays valid, and unsent data is sent later.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from datetime import datetime, timedelta
from typing import Any, Callable

from broker.agent import gpu
from broker.agent.clock import NodeClock, to_text
from broker.agent.entry import newer_exists, read_lease
from broker.agent.formats import VERSION, BadDocument, Exit, Lease, LeaseIdleLimit, attempt_path, rank_document, rank_of
from broker.agent.idleness import Idleness, busiest, idle_message, idleness_of_samples
from broker.agent.names import escape_unprintable
from broker.agent.output import OutputUploader
from broker.agent.rank import RankContext
from broker.agent.store import StoreTrouble
from broker.agent.usage import Usage

_DATE_EVERY = 60.0  # seconds of running time between reads of the store's clock
_SLOW = 5.0  # seconds; slower writes give a less precise time than earlier ones


class HeldLease:
    """The last readable lease; a torn or missing one does not replace it.

    The lease uses the broker's time, but this machine's clock may be wrong or may be set. So the object store's clock
    dates both: the lease's age is the difference between the store's dates of the lease and of a file that this machine
    wrote. From then on the machine's running time counts (``running``, seconds). Uncertainty counts as elapsed time:
    truncated seconds and the duration of calls. So a lease may end a few seconds early; it ends late only by the time
    that the broker took to write it. ``clock`` is used on a simulated clock, which broker and node share, and until the
    store has given a date.

    The silence of the broker is measured by running time, too.
    """

    def __init__(self, lease: Lease, clock: NodeClock, running: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._running = clock, running
        self._lease, self._heard = lease, running()
        self._dated: tuple[datetime, float] | None = None

    @property
    def lease(self) -> Lease:
        return self._lease

    def read(self, lease: Lease) -> None:
        """Store a lease that was read: the same one again, or a newer one."""
        if lease != self._lease:
            self._lease, self._heard = lease, self._running()

    @property
    def needs_date(self) -> bool:
        """Whether it is time to read the store's clock, by writing a file."""
        return self._dated is None or self._running() - self._dated[1] >= _DATE_EVERY

    def dated(self, at: datetime, asked: float) -> None:
        """``at``: the store's date of a write requested at ``asked`` (running seconds)."""
        if self._dated is None or self._running() - asked <= _SLOW:
            self._dated = at if at.microsecond else at + timedelta(seconds=1), asked

    def now(self) -> datetime:
        """The latest time that the broker's clock may show."""
        lease, store_date = self._lease, self._dated
        if self._clock.origin is not None or lease.renewed_at is None or lease.stored_at is None or store_date is None:
            return self._clock.now()
        at, requested_at = store_date
        age = at + timedelta(seconds=self._running() - requested_at) - lease.stored_at
        return lease.renewed_at + max(age, timedelta(0))

    def seconds_until(self, at: datetime) -> float:
        """Wall-clock seconds until the broker's clock shows ``at``; negative if past."""
        return (at - self.now()) / timedelta(seconds=1) / self._clock.scale

    def over(self) -> tuple[str, str] | None:
        """Cause and message once the attempt must stop; None while it may continue."""
        silent = (self._running() - self._heard) * self._clock.scale
        return self._lease.over(self.now(), silent)


log = logging.getLogger("gpubroker-agent")
_MAX_SAMPLES = 2000
_MAX_METRICS, _LONGEST_NAME = 32, 64
_USE_EVERY = 6  # so many times the interval of reported metrics: an hour
_TOO_LARGE = 1e300  # NaN and infinity are not below it


class NodeMailbox:
    """``lease``: read before anything starts; a later one that is torn, missing or not signed with ``key`` does not
    replace it. ``tell_fenced`` is called once, when a newer attempt exists; ``tell_peer_ended`` gets the ends of other
    ranks.
    """

    def __init__(
        self,
        context: RankContext,
        lease: Lease,
        tell_fenced: Callable[[], None],
        tell_peer_ended: Callable[[int, Exit], None],
        key: str | None = None,
        renew_access: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._spec, self._rank = context.store, context.spec, context.rank
        self._clock, self._journal = context.clock, context.journal
        self._output = OutputUploader(
            context.store, context.spec.attempt, context.rank, context.scratch.output, mask=context.mask
        )
        self._progress, self._alive = context.scratch.progress, context.scratch.alive
        self._tell_fenced, self._tell_peer_ended, self._key = tell_fenced, tell_peer_ended, key
        self._renew_access = renew_access
        self._held = HeldLease(lease, context.clock)
        self._asked: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopped = False
        self._last_log = 0.0
        self._samples: list[dict[str, Any]] = []
        self._sample_every, self._sampled, self._metrics_dirty = context.spec.intervals.metrics, 0.0, False
        self._idleness = Idleness()
        self._usage, self._usage_at = Usage(), time.monotonic()
        self._idle: tuple[tuple[LeaseIdleLimit, ...], str] | None = None
        self._known_ends: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="mailbox", daemon=True)
        self._reported: tuple[int | None, dict[str, float]] | None = None
        self._reported_at = 0.0
        self.phase = "starting"
        self.saved_step: Callable[[], int | None] = lambda: None

    @property
    def lease(self) -> Lease:
        """The last lease read."""
        return self._held.lease

    def over(self) -> tuple[str, str] | None:
        """Cause and message once the attempt must stop (as `HeldLease.over`, or idle for too long); else None."""
        over, idle = self._held.over(), self._idle
        if over is None and idle is not None and idle[0] == self.lease.idle:
            return "stopped_by_policy", idle[1]
        return over

    def seconds_until(self, at: datetime) -> float:
        """As `HeldLease.seconds_until`."""
        return self._held.seconds_until(at)

    def start(self, timeout: float) -> None:
        """Start, and wait at most ``timeout`` seconds for the first lease."""
        read = self.ask()
        self._thread.start()
        read.wait(timeout)

    def ask(self) -> threading.Event:
        """Request a read of the lease now.

        The event is set after the read, successful or not; a read that is already running does not count, as its result
        may be older than the request.
        """
        read = threading.Event()
        self._asked.put(read)
        self._wake.set()
        return read

    def refresh_lease(self, timeout: float) -> Lease:
        """Read the lease again and return it; after ``timeout`` seconds, the last one read."""
        self.ask().wait(timeout)
        return self.lease

    def stop(self) -> None:
        """Write nothing any more, because a newer attempt exists."""
        self._stopped = True
        self._wake.set()

    def close(self, ending: Exit, deadline: float) -> bool:
        """Send all unsent data, ``exit.json`` last, retrying until ``deadline`` (monotonic), even while a request
        hangs. False if the run folder did not accept it.
        """
        self.stop()
        is_closed = threading.Event()
        threading.Thread(target=self._close, args=(ending, deadline, is_closed), name="last-mail", daemon=True).start()
        return is_closed.wait(max(0.0, deadline - time.monotonic()))

    def _close(self, ending: Exit, deadline: float, is_closed: threading.Event) -> None:
        self._thread.join()
        self._report(every=0.0)
        self._record_use(every=0.0)
        self._journal.close()
        pause = min(self._spec.intervals.mail, 1.0)
        while time.monotonic() < deadline:
            try:
                self._output.upload(last=True)
                self._journal.flush()
                self._heartbeat()
                self._store.write_json(self._path("exit.json"), ending.to_json())
            except StoreTrouble as error:
                log.warning("%s; trying again", error)
                time.sleep(pause)
                pause = min(pause * 2, 30.0)
            else:
                is_closed.set()
                return

    def step(self) -> tuple[int | None, int | None]:
        """The program's step and their total: from its progress file, else from checkpoint names."""
        progress = self._read_progress()
        step, total = _whole_number(progress.get("step")), _whole_number(progress.get("total"))
        return (self.saved_step() if step is None else step), total

    def _read_progress(self) -> dict[str, Any]:
        """The content of the program's progress file; empty if it cannot be read."""
        try:
            progress = json.loads(self._progress.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return progress if isinstance(progress, dict) else {}

    def _report(self, *, every: float) -> None:
        """Put the program's metrics into the journal if they, or their step, are new and ``every`` seconds have passed.

        Only on the first node.
        """
        if self._rank or (self._reported and time.monotonic() - self._reported_at < every):
            return
        progress = self._read_progress()
        metrics = _finite_metrics(progress.get("metrics"))
        step = _whole_number(progress.get("step"))
        if metrics and (step, metrics) != self._reported:
            self._reported, self._reported_at = (step, metrics), time.monotonic()
            self._journal.append("metrics_reported", step=step, metrics=metrics)

    def _record_use(self, *, every: float) -> None:
        """Put the use of the machine into the journal if ``every`` seconds have passed. Only on the first node."""
        if self._rank or time.monotonic() - self._usage_at < every:
            return
        figures = self._usage.take()
        if figures:
            self._usage_at = time.monotonic()
            self._journal.append("resources_used", figures=figures)

    def fenced(self) -> bool:
        """Whether a newer attempt of the job exists. Raises StoreTrouble."""
        return newer_exists(self._store, self._spec.attempt)

    def _path(self, name: str) -> str:
        return attempt_path(self._spec.attempt, rank_document(name, self._rank))

    def _run(self) -> None:
        while not self._stopped:
            pending = self._pending_reads()
            try:
                self._alive.touch()
                self._renew_access()
                if self._held.needs_date:
                    self._read_store_clock()
                if self._read(pending):
                    return
                self._heartbeat()
                self._report(every=self._spec.intervals.figures)
                self._record_use(every=_USE_EVERY * self._spec.intervals.figures)
                self._journal.flush()
                if time.monotonic() - self._last_log >= self._spec.intervals.log:
                    self._output.upload()
                    self._last_log = time.monotonic()
                self._sample()
            except StoreTrouble as error:
                log.warning("%s", error)
            except OSError as error:
                log.warning("the scratch folder: %s", error)
            except Exception:  # whatever else fails, the lease must be read
                log.exception("the exchange with the run folder failed this time")
            _set_events(pending)
            self._wake.wait(self._spec.intervals.mail)
            self._wake.clear()

    def _read_store_clock(self) -> None:
        """Write a file and read its date, to learn the store's time; for the first time before the lease is judged."""
        requested_at = time.monotonic()
        with contextlib.suppress(StoreTrouble):  # the lease must be read even if nothing can be written
            self._heartbeat()
            written_at = self._store.written_at(self._path("heartbeat.json"))
            if written_at is not None:
                self._held.dated(written_at, requested_at)

    def _pending_reads(self) -> list[threading.Event]:
        """The pending requests, which a read that starts now answers."""
        return [self._asked.get() for _ in range(self._asked.qsize())]

    def _read(self, pending: list[threading.Event]) -> bool:
        """Read the lease and set the events; true if a newer attempt exists."""
        try:
            self._held.read(read_lease(self._store, self._spec.attempt, self._key))
        except StoreTrouble as error:
            log.warning("the last lease holds: %s", error)
        _set_events(pending)
        if self.fenced():
            self._stopped = True
            self._tell_fenced()
            return True
        if self._spec.nodes > 1:
            self._read_ends()
        return False

    def _read_ends(self) -> None:
        """Read the ends of other ranks: one failed or preempted rank ends all of them."""
        for name in self._store.files(attempt_path(self._spec.attempt, "")):
            rank = rank_of(name, "exit.json")
            if rank is None or rank == self._rank or rank in self._known_ends:
                continue
            try:
                document = self._store.read_json(attempt_path(self._spec.attempt, name))
                if document is not None:
                    self._tell_peer_ended(rank, Exit.from_json(document))
                    self._known_ends.add(rank)
            except (BadDocument, ValueError):
                continue  # partly written; it will be complete the next time

    def _heartbeat(self) -> None:
        step, total = self.step()
        document = {
            "version": VERSION,
            "at": to_text(self._clock.now()),
            "phase": self.phase,
            "step": step,
            "total": total,
        }
        self._store.write_json(self._path("heartbeat.json"), document)

    def _sample(self) -> None:
        """Sample the accelerators and the machine if it is time.

        When the file is full, every other sample is dropped and the rate is halved, so that its size is bounded.
        """
        if time.monotonic() - self._sampled >= self._sample_every:
            self._sampled = time.monotonic()
            gpus = [gpu_sample.to_json() for gpu_sample in gpu.sample()]
            self._usage.add_sample(gpus)
            if gpus:
                self._samples.append({"at": to_text(self._clock.now()), "gpus": gpus})
                self._metrics_dirty = True
                percent = busiest(gpus)
                if percent is not None:
                    self._idleness.add_sample(percent, self._sampled * self._clock.scale)
                if len(self._samples) > _MAX_SAMPLES:
                    self._samples = self._samples[1::2]
                    self._sample_every *= 2
        if self._metrics_dirty:
            lines = "".join(json.dumps(sample) + "\n" for sample in self._samples)
            self._store.write(self._path("metrics.jsonl"), lines.encode())
            self._metrics_dirty = False
            self._judge()

    def _judge(self) -> None:
        """Judge whether all accelerators of the attempt have been idle for too long.

        The first node decides for all; a node without recent samples counts as busy.
        """
        limits = self.lease.idle
        message = idle_message([self._idleness], limits) if self._rank == 0 else None
        if message is not None and self._spec.nodes > 1:
            own_time = self._store.written_at(self._path("metrics.jsonl"))
            nodes = [self._idleness]
            for rank in range(1, self._spec.nodes):
                path = attempt_path(self._spec.attempt, rank_document("metrics.jsonl", rank))
                sampled_at, text = self._store.written_at(path), self._store.read(path)
                is_recent = (
                    sampled_at is not None
                    and own_time is not None
                    and (own_time - sampled_at).total_seconds() <= 3 * self._sample_every
                )
                nodes.append(idleness_of_samples(text) if is_recent and text else Idleness())
            message = idle_message(nodes, limits)
        self._idle = None if message is None else (limits, message)


def _set_events(pending: list[threading.Event]) -> None:
    for read in pending:
        read.set()


def _finite_metrics(values: Any) -> dict[str, float]:
    """The finite numbers with a short name, at most 32 of them."""
    numbers = values.items() if isinstance(values, dict) else ()
    metrics = {
        escape_unprintable(name): float(value)
        for name, value in numbers
        if 0 < len(escape_unprintable(name)) <= _LONGEST_NAME
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        if abs(value) < _TOO_LARGE
    }
    return dict(list(metrics.items())[:_MAX_METRICS])


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
