"""The place of the run folders of a store's jobs. All jobs of a store share one place, because its reconciler looks for
their run folders there.

Whether its disk and that of the store have room for a job is checked before money is held. If a disk fills up later, a
transaction that does not fit is rolled back, and an agent reports that it could not save a checkpoint, continues, and
tries again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from broker.agent.store import ObjectFolder
from broker.app.store_identity import signing_key
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, StoreProblem
from broker.core.job.jobs import Job
from broker.core.values.figures import join_names

if TYPE_CHECKING:
    from broker.engines.runfolder.attempt_keys import AttemptKeys
    from broker.engines.runfolder.node_access import AccessProvider
    from broker.engines.runfolder.run_folders import RunFolders
    from broker.store.jobs.reader import StoreReader


_KEY = "runs"  # the setting of the store with the URL


def claim(broker: Broker) -> None:
    """Record the URL in this process's settings as the place of the store's run folders. Idempotent; contacts only the
    store.

    Raises `InvalidInput` if another place is recorded and still in use: the reconciler would not find the run folders
    of one of them.
    """
    runs_url = broker.settings.runs_url
    recorded_url = broker.store.keep_setting(_KEY, runs_url)
    if _is_same_place(recorded_url, runs_url):
        return
    with broker.store.reading() as reader:
        open_jobs = [view.id for view in reader.unclosed()] + [
            unreadable_job.job_id for unreadable_job in reader.unreadable
        ]
    if open_jobs:
        reason = f"jobs that have not ended: {join_names(open_jobs, 1)}"
        hint = "or wait until they have ended, or cancel them"
    elif broker.store.is_led():
        reason = "a background process that uses that place still runs"
        hint = "or stop `gpubroker serve`; a background process ends within seconds: submit again then"
    else:
        broker.store.set_setting(_KEY, runs_url)
        return
    raise InvalidInput(
        f"the jobs of this store have their run folders in {recorded_url}, not in {runs_url}; {reason}",
        where="GPUBROKER_RUNS",
        hint=f"set GPUBROKER_RUNS={recorded_url}, {hint}; a separate store (GPUBROKER_HOME) can use another place",
    )


def check_or_claim(broker: Broker, reader: StoreReader) -> None:
    """As `claim`, for a submission: raises `InvalidInput` only if the settings name a place. If they name none, the
    job's run folder goes to the store's place. Usually one read of the store shows that nothing is to be done."""
    recorded_url = reader.runs()
    if recorded_url is not None and _is_same_place(recorded_url, broker.settings.runs_url):
        return
    if broker.settings.runs is not None:
        claim(broker)
        return
    with suppress(InvalidInput):
        claim(broker)


def root(broker: Broker) -> str:
    """The URL recorded in the store, else that of the settings: where run folders of new jobs go."""
    return broker.store.setting(_KEY) or broker.settings.runs_url


def search_root(broker: Broker) -> str:
    """The URL that this process's settings name; if they name none, `root`: where run folders are looked for."""
    return broker.settings.runs or root(broker)


def open_folder(broker: Broker, name: str) -> ObjectFolder:
    """A folder next to the run folders of new jobs. Raises `StoreTrouble`."""
    return ObjectFolder.open(f"{root(broker).rstrip('/')}/{name}")


def run_folders(broker: Broker) -> RunFolders:
    """The run folders of this broker's jobs, at the place in the settings, else the store's."""
    from broker.engines.runfolder.run_folders import RunFolders  # needs the object store, which most commands do not

    url = search_root(broker)
    return RunFolders(url, broker.clock, keys=attempt_keys(broker), access=node_access(broker, url))


def node_access(broker: Broker, runs_url: str) -> AccessProvider | None:
    """The source of nodes' credentials for their folders; None: they use their own."""
    role, scheme = broker.settings.runs_role, urlsplit(runs_url).scheme
    if broker.settings.runs_narrowed and scheme == "gs":
        from broker.engines.runfolder.node_access import BoundTokens

        return BoundTokens(runs_url)
    if broker.settings.runs_narrowed and scheme in ("az", "adl", "azure", "abfs", "abfss"):
        from broker.engines.runfolder.node_access import DelegatedSignatures

        return DelegatedSignatures(runs_url, broker.settings.runs_role_seconds)
    if role is None or scheme not in ("s3", "s3a"):
        return None
    from broker.engines.runfolder.node_access import RoleSessions  # only for buckets with a role

    return RoleSessions(runs_url, role, broker.settings.runs_role_seconds)


def attempt_keys(broker: Broker) -> AttemptKeys:
    """The key that signs this broker's specifications and leases."""
    from broker.engines.runfolder.attempt_keys import AttemptKeys

    return AttemptKeys(partial(signing_key, broker.store))


def _is_same_place(url: str, other_url: str) -> bool:
    return _normalize(url) == _normalize(other_url)


def _normalize(url: str) -> str:
    parts = urlsplit(url)
    return str(Path(unquote(parts.path)).resolve()) if parts.scheme == "file" else url.rstrip("/")


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
