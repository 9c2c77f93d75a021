"""A job submitted through the API: a job file, a snapshot that its submitter uploaded, secrets that they sealed.

Its sender is not trusted: nothing in it makes this process read its own disk or another person's files.
"""

import re

from broker.agent.source_tree import tree_path
from broker.agent.store import ObjectFolder
from broker.app import runs_root
from broker.app.jobs.sealed_secrets import SealedBox, attach_sealed_box
from broker.app.jobs.snapshots import has_local_files, pool_name, refuse_local_buckets
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.job.snapshots import FileSnapshot
from broker.core.records import unknown_fields
from broker.engines.snapshots.upload import store_errors

_SHA256, _SEAL = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{32}")
_FILE = "job file"


def parse_received_job(broker: Broker, text: str) -> Job:
    """The job of a file, without its files and secrets. Its command does not run on this machine, unless the settings
    allow that. Raises `InvalidInput` with every finding."""
    job = parse_job(text, file=_FILE, now=broker.clock.now())
    refuse_local_buckets(job, _FILE)
    return mark_from_network(broker, job)


def mark_from_network(broker: Broker, job: Job) -> Job:
    """The job, not to be run on this machine unless the settings allow that."""
    return job if broker.settings.serve.jobs_here else job.model_copy(update={"from_network": True})


def attach_snapshot(broker: Broker, job: Job, snapshot: FileSnapshot | None, *, by: Actor) -> Job:
    """The job with the snapshot that its submitter uploaded.

    Raises `InvalidInput` for a job that names files and has no snapshot, since they would be read from this machine's
    disk; for a snapshot in another person's pool; and for a tree that is not completely uploaded; `Unreachable`.
    """
    if snapshot is None:
        if has_local_files(job):
            raise InvalidInput(
                "the job names files, and none were uploaded with it", where="snapshot", hint="`gpubroker submit`"
            )
        return job
    if snapshot.pool != pool_name(broker, by):
        raise InvalidInput("the snapshot is in another person's folder", where="snapshot.pool")
    if fields := ", ".join(unknown_fields(snapshot)):
        raise InvalidInput(f"unknown: {fields}", where="snapshot")
    for copy in snapshot.trees:
        if not _SHA256.fullmatch(copy.tree):
            raise InvalidInput("expected 64 hexadecimal digits", where="snapshot.trees.tree")
    with store_errors():
        pool = open_upload_pool(broker, by)
        for copy in snapshot.trees:
            if not pool.exists(tree_path(copy.tree)):
                raise InvalidInput(f"the tree {copy.tree[:12]} was not uploaded", where="snapshot", hint="submit again")
    return job.model_copy(update={"snapshot": snapshot})


def attach_sealed_secrets(broker: Broker, job: Job, box: SealedBox | None, *, by: Actor) -> Job:
    """The job with its sealed secrets. Raises `InvalidInput` for a job that requires secrets and has no box, because
    they would come from this process's environment, which belongs to no user; and as `attach_sealed_box`."""
    if box is None:
        if missing_names := [name for name in job.secrets if name not in job.optional_secrets]:
            raise InvalidInput(f"the values of secrets are missing: {', '.join(missing_names)}", where="sealed")
        return job.model_copy(update={"secrets": (), "optional_secrets": ()}) if job.secrets else job
    if not _SEAL.fullmatch(box.id):
        raise InvalidInput("expected 32 hexadecimal digits", where="sealed.id")
    return attach_sealed_box(broker, job, box, by=by)


def open_upload_pool(broker: Broker, by: Actor) -> ObjectFolder:
    """A person's pool of uploaded contents in the run store. Raises `StoreTrouble`."""
    return runs_root.open_folder(broker, pool_name(broker, by))
