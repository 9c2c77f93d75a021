"""Whether the disks of the store and of the run folders have room for a job; checked before money is held.

If a disk fills up later, a transaction that does not fit is rolled back, and an agent reports that it could not save a
checkpoint, continues, and tries again.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import unquote, urlsplit

from broker.app.runs_root import search_root
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, StoreProblem
from broker.core.job.jobs import Job

MIN_FREE_BYTES = 50 * 10**6
"""Bytes that must be free: enough for a job's events, the documents of its run folder and its first output."""
_PROBE_BYTES = 1 << 20  # bytes that are allocated for a moment, to detect quotas
_RECHECK_AFTER = 1.0  # seconds between two tries, because a try takes longer than all other work outside the store
_writable_until: dict[Path, float] = {}  # by the clock of `time.monotonic`
_DISK_FULL_ERRORS = (ENOSPC, EDQUOT, EFBIG)


def check_space(broker: Broker, job: Job) -> None:
    """Raises `StoreProblem` if there is too little room for the job, and `InvalidInput` if the run folders are not
    writable. Creates the folders, and checks only disks of this machine."""
    for folder, setting, size in _folders(broker, job):
        try:
            if time.monotonic() >= _writable_until.get(folder, 0):
                for directory in (folder.parent, folder):  # mkdir does not apply the mode to parents
                    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                with TemporaryFile(dir=folder) as file:
                    os.posix_fallocate(file.fileno(), 0, _PROBE_BYTES)
                _writable_until[folder] = time.monotonic() + _RECHECK_AFTER
            free = shutil.disk_usage(folder).free
        except OSError as error:
            if error.errno in _DISK_FULL_ERRORS:
                raise _disk_full(folder, setting, error.strerror or "no room") from error
            if setting == "GPUBROKER_RUNS":
                raise InvalidInput(
                    f"run folders and checkpoints cannot be written there: {error.strerror or error}",
                    where=str(folder),
                    hint="change its owner or mode, or set GPUBROKER_RUNS to another place",
                ) from error
            continue  # opening the store reports what is wrong with its folder
        if free < MIN_FREE_BYTES + size:
            checkpoint_part = f", and {size / 1e9:.3g} GB for a checkpoint of this job" if size else ""
            raise _disk_full(
                folder,
                setting,
                f"{free / 1e6:,.0f} MB are free; expected {MIN_FREE_BYTES / 1e6:.0f} MB{checkpoint_part}",
            )


def full_disks(broker: Broker, job: Job) -> list[str]:
    """The disks of this machine on which no more of the job can be recorded, in words."""
    messages = []
    for folder, _, _ in _folders(broker, job):
        with suppress(OSError):
            free = shutil.disk_usage(folder).free
            if free < MIN_FREE_BYTES:
                reason = "what happens, also the job's end, is recorded once there is space"
                messages.append(f"the disk of {folder} is full ({free / 1e6:,.0f} MB free): {reason}")
    return messages


def _disk_full(folder: Path, setting: str, reason: str) -> StoreProblem:
    return StoreProblem(
        f"there is no room for another job: {reason}",
        where=str(folder),
        hint=f"free some space, or set {setting} to another place; nothing was stored or held",
    )


def _folders(broker: Broker, job: Job) -> Iterator[tuple[Path, str, int]]:
    """Each folder, the setting that names it, and the bytes that the job needs there besides `MIN_FREE_BYTES`."""
    settings = broker.settings
    database = settings.store_url.partition("?")[0].partition(":///")[2]
    if settings.store_url.startswith("sqlite") and database != ":memory:":
        yield Path(database).absolute().parent, "GPUBROKER_STORE" if settings.store else "GPUBROKER_HOME", 0
    runs = urlsplit(search_root(broker))
    if runs.scheme == "file":
        yield Path(unquote(runs.path)), "GPUBROKER_RUNS", job.checkpoint.size or 0
