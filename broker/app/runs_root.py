"""The place of the run folders of a store's jobs. All jobs of a store share one place, because its reconciler looks for
their run folders there."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from broker.agent.store import ObjectFolder
from broker.app.store_identity import signing_key
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
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
