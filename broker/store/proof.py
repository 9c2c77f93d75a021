"""Proving that what is kept follows from events and entries, a few jobs at a time, so that nobody who writes waits for
long, and nothing that grows with history is held in memory. What differed is made anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.store.engine.database import Database
from broker.store.jobs.journal import StoreWriting
from broker.store.jobs.open_jobs import ids_after
from broker.store.ledger import ledger, spent_sums
from broker.store.policy import approvals

# So many jobs are made anew in one transaction.
AT_ONCE = 20


@dataclass(slots=True)
class Proof:
    """How many jobs there are, and the ids of those whose projections differed; how many sums of what was spent, and
    how many of them differed."""

    jobs: int = 0
    differing: list[str] = field(default_factory=list)
    sums: int = 0
    sums_differing: int = 0


def prove(database: Database) -> Proof:
    """Compare all that is kept with what events and entries come to. Raises `StoreProblem`."""
    found, last = Proof(), ""
    while True:
        with database.writing() as connection:
            job_ids = ids_after(connection, last, AT_ONCE)
            if not job_ids:
                break
            tx = StoreWriting(connection)
            found.differing += tx.renew(job_ids)
            found.jobs += len(tx.views(job_ids))
        last = job_ids[-1]
    with database.writing() as connection:
        approvals.rebuild(connection)
    with database.reading() as connection:
        found.sums, found.sums_differing = spent_sums.compare(connection)
    if found.sums_differing:
        with database.writing() as connection:
            ledger.rebuild_spent(connection)
    return found
