"""All run folders of a broker: implements the reconciler's `broker.engines.runfolder.mailbox.Mailbox`.

For each attempt: the documents for its agents (spec, lease, variables, credentials) and their reports. Raises as
`RunFolder`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from broker.agent.access import ACCESS_VARIABLE
from broker.agent.aws import REGION_VARIABLE, bucket_region
from broker.agent.clock import NodeClock, from_text
from broker.agent.formats import Intervals, Lease, LeaseIdleLimit, PlacedTree, SessionSpec, Sources, Spec, WantedInput
from broker.core.errors import BrokerError
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.arrays import task_id
from broker.core.job.jobs import Predecessor, SessionPlan
from broker.core.job.snapshots import FileSnapshot
from broker.core.policy.policy import IdleLimit, Usage
from broker.core.values.clock import Clock, ScaledClock
from broker.engines.runfolder.attempt_keys import AttemptKeys
from broker.engines.runfolder.mailbox import LeaseGrant, NodeState
from broker.engines.runfolder.node_access import AccessProvider
from broker.engines.runfolder.runfolder import RunFolder
from broker.ledger.holds import STOP_GRACE

log = logging.getLogger(__name__)

# For a sandbox in which an hour passes within seconds. On a real object store, that many requests would be expensive.
_SANDBOX_INTERVALS = Intervals(scan=0.1, mail=0.2, log=0.5, outputs=0.5, metrics=5.0, notice=0.05, patience=60.0)


_RENEW_AGAIN = timedelta(minutes=1)  # the time until the next try after a failure

# The maximum number of cached open folders, more than jobs run at once: opening a folder takes longer than a read.
_MAX_FOLDERS = 20_000


class RunFolders:
    """Every job's run folder below one URL.

    ``intervals``: the agents' intervals; by default derived from the clock's speed. ``keys``: with which specs and
    leases are signed; None: they are not signed. ``access``: provides credentials for nodes (needs ``keys``); None:
    nodes use their own identity.
    """

    def __init__(
        self,
        runs_url: str,
        clock: Clock,
        intervals: Intervals | None = None,
        keys: AttemptKeys | None = None,
        access: AccessProvider | None = None,
    ) -> None:
        self._runs_url = runs_url
        self._clock = clock
        self._keys, self._access = keys, access
        self._renew_at: dict[str, datetime] = {}
        self._intervals = intervals or (Intervals() if clock.scale == 1 else _SANDBOX_INTERVALS)
        self.of = lru_cache(maxsize=_MAX_FOLDERS)(self._of)

    def _of(self, job_id: str) -> RunFolder:
        """One job's folder."""
        return RunFolder(self._runs_url, job_id)

    def url(self, view: JobView, attempt: AttemptView) -> str:
        return self.of(view.id).attempt_url(attempt.number)

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """As `Mailbox.prepare`. Writes the lease first, so that an agent that finds the spec also finds its lease."""
        self.write_lease(view, attempt, lease)
        self.of(view.id).write_spec(self.spec(view, attempt), self._key(attempt))

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        now = self._clock.now()
        max_unattended = lease.max_unattended
        document = Lease(
            paid_until=lease.paid_until,
            ends_at=lease.ends_at,
            stop=lease.stop and lease.stop.value,
            max_unattended=None if max_unattended is None else max_unattended.total_seconds(),
            renewed_at=now,
            idle=tuple(LeaseIdleLimit(limit.below, limit.stretch.total_seconds(), limit.told) for limit in lease.idle),
            standby=lease.standby,
        )
        self.of(view.id).write_lease(attempt.number, document, self._key(attempt))

    def variables(self, view: JobView, attempt: AttemptView) -> Mapping[str, str]:
        """The variables that the attempt's launch passes to its agents without writing them anywhere: its key, the
        region of the run folders' bucket, and credentials for the job's folder. Raises as
        `AccessProvider.credentials`."""
        region = bucket_region(self._runs_url)
        result = {} if self._keys is None else dict(self._keys.variables(attempt.key))
        result |= {REGION_VARIABLE: region} if region else {}
        if self._access is not None:
            result[ACCESS_VARIABLE] = json.dumps(dict(self._issue(view, attempt, self._access)))
        return result

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        if self._access is None:
            return
        key, now = self._key(attempt), datetime.now(UTC)
        if key is None or now < self._renew_at.get(attempt.key, now):
            return
        self._renew_at[attempt.key] = now + _RENEW_AGAIN
        try:
            self.of(view.id).write_access(attempt.number, self._issue(view, attempt, self._access), key)
        except BrokerError as error:
            log.warning("job %s, attempt %s: its access cannot be renewed: %s", view.id, attempt.number, error)
            raise

    def _issue(self, view: JobView, attempt: AttemptView, provider: AccessProvider) -> Mapping[str, str]:
        """New credentials, to be renewed when a third of their time has passed."""
        credentials, now = provider.credentials(view.id, view.job), datetime.now(UTC)
        self._renew_at[attempt.key] = now + (from_text(credentials["expires_at"]) - now) / 3
        return credentials

    def _key(self, attempt: AttemptView) -> str | None:
        return self._keys.of(attempt.key) if self._keys is not None else None

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        document = self.of(view.id).read_lease(attempt.number, self._key(attempt))
        if document is None or (document.stop is not None and document.stop not in [cause.value for cause in Cause]):
            return None
        max_unattended = None if document.max_unattended is None else timedelta(seconds=document.max_unattended)
        idle = tuple(IdleLimit(limit.below, timedelta(seconds=limit.seconds), limit.told) for limit in document.idle)
        stop = Cause(document.stop) if document.stop else None
        return LeaseGrant(document.paid_until, document.ends_at, stop, max_unattended, idle, document.standby)

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        news = self.of(view.id).read_news(attempt.number, attempt.agent_events)
        heartbeat = news.heartbeat
        return NodeState(
            journal=news.journal,
            heartbeat_at=heartbeat.at if heartbeat else None,
            step=heartbeat.step if heartbeat else None,
            total=heartbeat.total if heartbeat else None,
            phase=heartbeat.phase if heartbeat else "",
            exit=news.exit,
            silent=heartbeat.silent * self._clock.scale if heartbeat else timedelta(0),
        )

    def usage(self, view: JobView, attempt: AttemptView) -> list[Usage]:
        """The agents' samples of the attempt's accelerators. Raises `Unreachable`."""
        return self.of(view.id).usage(attempt.number)

    def spec(self, view: JobView, attempt: AttemptView) -> Spec:
        """The attempt's spec, without values of secrets."""
        job = view.job
        # A stop takes the command's grace, the same time again for the upload, and a margin; all must fit into the time
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
            secrets=job.secrets,
            sources=_sources(job.snapshot),
            outputs=job.outputs,
            resume_from=(job.resume_from.job, job.resume_from.checkpoint) if job.resume_from else None,
            inputs=_inputs(job.after),
            session=_session(job.session),
            serving_ports=job.serving_ports,
            gpus=attempt.placement.gpus // job.num_nodes,
            keep=job.checkpoint.keep,
            every=job.checkpoint.every.total_seconds() if job.checkpoint.every else None,
            grace=grace,
            intervals=self._intervals,
            clock=_node_clock(self._clock),
        )


def _session(plan: SessionPlan | None) -> SessionSpec | None:
    if plan is None:
        return None
    at_most = None if plan.at_most is None else plan.at_most.total_seconds()
    return SessionSpec(plan.idle.total_seconds(), at_most, plan.jupyter)


def _inputs(predecessors: Sequence[Predecessor]) -> tuple[WantedInput, ...]:
    """The job's inputs from earlier jobs. If the earlier job is an array, its tasks need not all have results."""
    inputs = []
    for predecessor in predecessors:
        if predecessor.inputs and predecessor.tasks:
            inputs += [
                WantedInput(task_id(array, number), f"{predecessor.folder}/{number}", predecessor.inputs, may_lack=True)
                for array, numbers in predecessor.tasks.items()
                for number in numbers
            ]
        elif predecessor.inputs:
            inputs.append(WantedInput(predecessor.job, predecessor.folder, predecessor.inputs))
    return tuple(inputs)


def _commit(snapshot: FileSnapshot | None) -> dict[str, str]:
    """Variables with the Git commit, for programs that record it: a snapshot does not contain ``.git``."""
    git = snapshot.git if snapshot else None
    return {"GPUBROKER_GIT_COMMIT": git.commit} if git and git.commit else {}


def _sources(snapshot: FileSnapshot | None) -> Sources | None:
    if snapshot is None:
        return None
    return Sources(snapshot.pool, tuple(PlacedTree(placed_tree.tree, placed_tree.to) for placed_tree in snapshot.trees))


def _node_clock(clock: Clock) -> NodeClock:
    if isinstance(clock, ScaledClock):
        return NodeClock(clock.origin.astimezone(UTC), clock.starts_at.astimezone(UTC), clock.scale)
    return NodeClock()
