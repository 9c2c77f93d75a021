"""The duty of `broker.app.service.serve` that daily deletes or archives what the active policy no longer keeps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from broker.app.jobs.retention import DeletedFiles, delete_due
from broker.app.jobs.snapshot_retention import delete_snapshots, policy_over, unneeded_snapshots
from broker.app.service.archiving import archive_history
from broker.app.service.periodic_duty import PeriodicDuty
from broker.app.wiring import Broker
from broker.store.engine.leader import LeaderRole

# For each job its run folder is listed. Jobs whose retention time ended earlier are left to `gpubroker jobs prune`.
_WITHIN = timedelta(days=14)


class KeepingFiles(PeriodicDuty):
    """Deletes snapshots and files of ended jobs whose retention time (``keep_results`` and similar keys) is over, and
    delivered notices older than ``keep_notices``; moves events older than ``keep_events`` and price history older than
    ``keep_prices`` to the archive. ``say``: receives each error once, also of a single run folder."""

    name = "keeping files"
    first_after, every = 600.0, 86_400.0
    role = LeaderRole.RETENTION

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float | None = None) -> None:
        super().__init__(broker, say=say, every=every)
        self._failed: set[str] = set()  # jobs whose run folders failed in a round and were not emptied since

    def once(self) -> DeletedFiles:
        """One round. Raises as `delete_due` and `archive_history`."""
        if (kept := self._broker.policy().defaults.keep_notices) is not None:
            self._broker.store.outbox.prune(self._broker.clock.now() - kept)
        done = delete_due(self._broker, _WITHIN, self._failed)
        self._failed = (self._failed | done.trouble.keys()) - {one.view.id for one in done.deleted}
        trouble = dict(done.trouble)
        if (over := policy_over(self._broker)) is not None:
            delete_snapshots(self._broker, unneeded_snapshots(self._broker, over, trouble, by=None), trouble)
        left = archive_history(self._broker, by=None).left
        stay = {f"files of {job} stay longer than the policy says: {why}" for job, why in trouble.items()}
        self._tell(stay | {f"an unfinished file of the archive is not deleted: {one}" for one in left})
        return done
