"""The parts of this machine that are assigned to jobs: one file per job, in a folder that all brokers on the machine
share.

A file counts while its lock is held. The job's agent and its guards inherit the lock, so the kernel frees the part
whenever the job ends: normally, by a crash, by SIGKILL or by a reboot. A mutex in the folder prevents brokers of
several users, homes and stores from assigning the same part twice.

This coordinates brokers. It is not access control: a user with access to a GPU can use it without the register.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker.core.errors import RetryLater
from broker.core.market.shares import MachineShare, total

log = logging.getLogger(__name__)

DEFAULT = Path("/var/tmp/gpubroker-machine")  # noqa: S108  # all users, and it outlives a logout; read as from anybody
_MUTEX = "mutex"
_SUFFIX = ".given"
_LARGEST = 8192
_TRIES, _PAUSE = 500, 0.01
_CPU = 1000


@dataclass(frozen=True, slots=True)
class AssignedPart:
    """The part of the machine that one job has: ``cpus`` by number, ``gpus`` by number, MIG slices by UUID. ``store``:
    hash of the job's store."""

    share: MachineShare
    cpus: tuple[int, ...] = ()
    gpus: tuple[int | str, ...] = ()
    store: str = ""

    def divided(self, nodes: int) -> tuple[AssignedPart, ...]:
        """The part, divided among ``nodes`` nodes: each has its own GPUs, and its own CPUs if there are enough."""
        node_share = MachineShare(
            self.share.milli_cpus // nodes,
            self.share.mib // nodes,
            tuple((name, count // nodes) for name, count in self.share.gpus),
        )
        gpus, cpus = node_share.gpu_count, len(self.cpus) // nodes
        return tuple(
            AssignedPart(
                node_share,
                self.cpus[node * cpus : (node + 1) * cpus] or self.cpus,
                self.gpus[node * gpus : (node + 1) * gpus],
                self.store,
            )
            for node in range(nodes)
        )

    def to_text(self) -> str:
        share = {"milli_cpus": self.share.milli_cpus, "mib": self.share.mib, "gpus": dict(self.share.gpus)}
        return json.dumps({"share": share, "cpus": self.cpus, "gpus": self.gpus, "store": self.store})

    @classmethod
    def of_text(cls, text: str) -> AssignedPart:
        """Parse the text of a register file. Raises ValueError if it is malformed."""
        try:
            document: Any = json.loads(text)
            share = document["share"]
            kinds = tuple(sorted((str(name), _whole_number(count)) for name, count in share["gpus"].items()))
            machine_share = MachineShare(_whole_number(share["milli_cpus"]), _whole_number(share["mib"]), kinds)
            cpus = tuple(map(_whole_number, document["cpus"]))
            gpus = tuple(gpu if isinstance(gpu, str) else _whole_number(gpu) for gpu in document["gpus"])
            return cls(machine_share, cpus, gpus, str(document["store"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a part of a machine: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Inventory:
    """The whole machine: ``has`` in total, ``cpus`` and ``gpus`` (of the requested kind) as in `AssignedPart`."""

    has: MachineShare
    cpus: Sequence[int]
    gpus: Sequence[int | str]


class MachineRegister:
    """The register of one machine."""

    def __init__(self, folder: Path = DEFAULT) -> None:
        self._folder = folder

    @contextmanager
    def assign(
        self, name: str, share: MachineShare, inventory: Inventory, store: str, *, free_cpus: bool = False
    ) -> Iterator[tuple[AssignedPart, int]]:
        """Assign a part to the process started in the block, which inherits the yielded descriptor. ``name``: unique.
        ``free_cpus``: with all CPUs that are free now, which later parts may contain, too.

        Raises `RetryLater` if other jobs leave too little, or if the folder cannot be used.
        """
        self._make()
        with self._turn():
            part = _choose_part(
                share, inventory, [part for _, part in self._live(tidy=True)], hash_store(store), free_cpus
            )
            draft = self._folder / f".{name}.{os.getpid()}"
            descriptor = _open_file(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.write(descriptor, part.to_text().encode())
                draft.replace(self._folder / f"{name}{_SUFFIX}")
                yield part, descriptor
            finally:
                draft.unlink(missing_ok=True)
                os.close(descriptor)  # the process that inherited it keeps the lock

    def given(self) -> dict[str, AssignedPart]:
        """All assigned parts by name. Read-only."""
        return dict(self._live(tidy=False))

    def touch(self, name: str) -> None:
        """Renew the file's date, so that a cleaner of temporary files does not delete it."""
        with suppress(OSError):
            os.utime(self._folder / f"{name}{_SUFFIX}")

    def _make(self) -> None:
        try:
            try:
                self._folder.mkdir(mode=0o1777)
                self._folder.chmod(0o1777)
            except FileExistsError:
                status = self._folder.lstat()
                if not stat.S_ISDIR(status.st_mode):
                    raise NotADirectoryError(20, "it is a link or a file") from None
        except OSError as error:
            raise RetryLater(
                f"the register of this machine's assigned parts cannot be created: {error.strerror}",
                where=str(self._folder),
                hint="name a folder that all brokers on this machine may write to: [engines.local] register",
            ) from error

    @contextmanager
    def _turn(self) -> Iterator[None]:
        path = self._folder / _MUTEX
        try:
            with suppress(FileExistsError):
                os.close(_open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            descriptor = _open_file(path, os.O_RDONLY)
        except OSError as error:
            raise RetryLater(f"cannot be used: {error.strerror}", where=str(path)) from error
        try:
            for _ in range(_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_PAUSE)  # flock has no time limit; the caller gets an error after some seconds
            else:
                raise RetryLater("another broker on this machine holds the register's lock", where=str(path))
            yield
        finally:
            os.close(descriptor)

    def _live(self, *, tidy: bool) -> Iterator[tuple[str, AssignedPart]]:
        """Each file whose lock is held. ``tidy``: delete the others; the caller must hold the mutex."""
        with suppress(FileNotFoundError):
            for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
                text = _text_if_locked(path)
                if text is None:
                    if tidy:
                        with suppress(OSError):  # in a sticky folder only the file's owner may delete it
                            path.unlink()
                    continue
                try:
                    yield path.name.removesuffix(_SUFFIX), AssignedPart.of_text(text)
                except ValueError as error:
                    log.warning("%s: %s", path, error)


def hash_store(store: str) -> str:
    """The name of a store in the register; a hash, because other users can read the register."""
    return sha256(store.encode()).hexdigest()[:16]


def _text_if_locked(path: Path) -> str | None:
    """The text of a file whose lock is held; None for any other."""
    try:
        descriptor = _open_file(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, _LARGEST).decode(errors="replace")
    finally:
        os.close(descriptor)
    return None


def _open_file(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if flags & os.O_CREAT:
        os.fchmod(descriptor, 0o644)  # regardless of the umask: brokers of other users read it
    return descriptor


def _choose_part(
    share: MachineShare, inventory: Inventory, given_parts: Sequence[AssignedPart], store: str, free_cpus: bool
) -> AssignedPart:
    """The free GPUs to assign, and the CPUs with the least assigned load. Raises `RetryLater` if too little is free."""
    used = {gpu for part in given_parts for gpu in part.gpus}
    free = [gpu for gpu in inventory.gpus if gpu not in used]
    left = inventory.has - total(MachineShare(part.share.milli_cpus, part.share.mib) for part in given_parts)
    if len(free) < share.gpu_count or left < MachineShare(share.milli_cpus, share.mib):
        gpus = f", {len(free)} GPUs" if share.gpu_count else ""
        bare = MachineShare(max(left.milli_cpus, 0), max(left.mib, 0))
        raise RetryLater(f"this machine has {bare}{gpus} free now, and the job needs {share}", where="this machine")
    loads: Counter[int] = Counter()
    for part in given_parts:
        for cpu in part.cpus:
            loads[cpu] += part.share.milli_cpus // len(part.cpus)
    count = max(-(-share.milli_cpus // _CPU), left.milli_cpus // _CPU if free_cpus else 0)
    cpus = sorted(inventory.cpus, key=lambda cpu: (loads[cpu], cpu))[:count]
    return AssignedPart(share, tuple(sorted(cpus)), tuple(free[: share.gpu_count]), store)


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"not a whole number: {value!r}")
    return value
