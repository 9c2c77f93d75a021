"""The first records of new jobs of one transaction, collected and then written with one statement per table.

If several submissions are judged in one transaction, each must take the holds and placements of those before it into
account. Both are known here without a query: a hold of a new job changes no spend, and no other process writes
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from broker.core.events.views import JobView
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.ledger.budgets import in_scope
from broker.ledger.entries import Entry, Movement
from broker.store.engine.pipeline import insert_rows, pipelined
from broker.store.jobs import live
from broker.store.ledger import ledger
from broker.store.policy import decisions
from broker.store.schema.jobs import AttemptEventRow, JobRow

_FIRST = frozenset({Movement.HOLD, Movement.DATE})


@dataclass(slots=True)
class NewJobs:
    """Records to be written.

    ``holds``: the holds in the entries, each with its first entry; ``known``: answers about budgets, which these
    records do not change.
    """

    decisions: list[Decision] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    holds: list[tuple[Entry, Burn]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    live: list[LiveAttempt] = field(default_factory=list)
    known: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def post(self, entries: Sequence[Entry]) -> None:
        """Collect all entries of some new jobs. Raises ValueError if a job has entries already."""
        if any(entry.movement not in _FIRST for entry in entries):
            raise ValueError("only the hold of a new job is posted with its first records")
        self.entries += entries
        self.holds += ledger.first_holds(entries)

    def append(self, events: Sequence[dict[str, Any]], job: dict[str, Any], view: JobView) -> None:
        """Collect the rows of a new job."""
        self.events += events
        self.jobs.append(job)
        self.live += live.of(view)

    def held(self, budget: BudgetSpec) -> list[Burn]:
        """The holds among the entries that count under the budget."""
        return [burn for one, burn in self.holds if one.money in budget.counts and _counts(one, budget)]

    def write(self, connection: Connection) -> None:
        """Write all records, on PostgreSQL in one round trip. Raises `DBAPIError` if one exists already."""
        with pipelined(connection):
            decisions.record(connection, *self.decisions)
            ledger.post(connection, self.entries)
            if self.jobs:
                insert_rows(connection, AttemptEventRow, self.events)
                insert_rows(connection, JobRow, self.jobs)


def _counts(entry: Entry, budget: BudgetSpec) -> bool:
    tags = entry.tags
    return in_scope(
        budget,
        user=tags.user,
        team=tags.team,
        project=tags.project,
        workload=tags.workload,
        environment=tags.environment,
    )
