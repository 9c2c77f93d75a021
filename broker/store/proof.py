"""Verifies that projections follow from events and entries, and rebuilds those that differ.

Processes a few jobs per transaction, so that writers do not wait long and memory does not grow with history.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.store.engine.database import Database
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.open_jobs import ids_after
from broker.store.ledger import ledger, spent_sums
from broker.store.policy import approvals

# Jobs per transaction.
BATCH_SIZE = 20


@dataclass(slots=True)
class Proof:
    """The number of jobs and the ids of those whose projections differed; the number of stored sums of spend, and of
    those that differed.
    """

    jobs: int = 0
    differing: list[str] = field(default_factory=list)
    sums: int = 0
    sums_differing: int = 0


def prove(database: Database) -> Proof:
    """Compare every projection with events and entries, a few jobs per transaction, and rebuild those that differ.
    Raises `StoreProblem`."""
    report, last = Proof(), ""
    while True:
        with database.writing() as connection:
            job_ids = ids_after(connection, last, BATCH_SIZE)
            if not job_ids:
                break
            tx = StoreWriter(connection)
            report.differing += tx.renew(job_ids)
            report.jobs += len(tx.views(job_ids))
        last = job_ids[-1]
    with database.writing() as connection:
        approvals.rebuild(connection)
    with database.reading() as connection:
        report.sums, report.sums_differing = spent_sums.compare(connection)
    if report.sums_differing:
        with database.writing() as connection:
            ledger.rebuild_spent(connection)
    return report
