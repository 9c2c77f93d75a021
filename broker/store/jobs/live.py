"""The running attempts of jobs, stored with each job's view, so that counting them does not read whole views."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, select

from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.ledger.budgets import in_scope
from broker.ledger.entries import Entry, Movement
from broker.store.engine.statements import insert_rows, pipeline
from broker.store.ledger import ledger
from broker.store.policy import policies
from broker.store.schema.jobs import UNCLOSED, AttemptEventRow, JobRow

log = logging.getLogger(__name__)
_FIELDS = tuple(field.name for field in fields(LiveAttempt))


def attempts_of(view: JobView) -> tuple[LiveAttempt, ...]:
    """The job's attempts whose machines may still exist, including requested attempts."""
    job = view.job
    return tuple(
        LiveAttempt(
            job_id=view.id,
            user=view.user,
            team=job.team,
            project=job.project,
            workload=job.workload.value,
            environment=job.environment,
            gpus=attempt.placement.gpus,
            accelerator=attempt.placement.offer.accelerator,
            provider=attempt.placement.offer.provider,
            money=attempt.placement.money,
            pool=attempt.placement.offer.pool,
            nodes=attempt.placement.nodes,
            capacity_type=attempt.placement.offer.capacity_type,
            **_shared_part(attempt.placement.offer),
        )
        for attempt in view.attempts
        if not attempt.over
    )


def _shared_part(offer: Offer) -> dict[str, Any]:
    """The attempt's part of a shared machine; all of it by default."""
    if offer.whole is None and not offer.divided:
        return {}
    return {"capacity": offer.capacity, "milli_cpus": offer.has.milli_cpus, "mib": offer.has.mib}


def to_text(view: JobView) -> str:
    """The stored form; empty without such attempts."""
    running = () if view.closed else attempts_of(view)
    return (
        json.dumps([[getattr(attempt, name) for name in _FIELDS] for attempt in running], separators=(",", ":"))
        if running
        else ""
    )


@lru_cache(maxsize=16_384)
def _from_text(text: str) -> tuple[LiveAttempt, ...]:
    def attempt(values: list[object]) -> LiveAttempt:
        data = dict(zip(_FIELDS, values, strict=False))
        # A newer version may have other values of both; its machines count in any case, with the strictest
        # interpretation.
        money, capacity = str(data["money"]), str(data["capacity_type"])
        data["money"] = MoneyKind(money) if money in set(MoneyKind) else MoneyKind.CASH
        data["capacity_type"] = CapacityType(capacity) if capacity in set(CapacityType) else None
        return LiveAttempt(**data)  # type: ignore[arg-type] # written by `to_text`

    return tuple(attempt(values) for values in json.loads(text))


# Queued jobs have no attempt yet, so a long queue costs nothing. Each submission reads these rows twice, so only the
# needed columns are selected.
_RUNNING = (
    select(JobRow.id, JobRow.live)
    .where(UNCLOSED, JobRow.state != JobState.QUEUED.value, JobRow.live != "")
    .order_by(JobRow.submitted_at, JobRow.id)
)


def attempts(connection: Connection) -> list[LiveAttempt]:
    """Every attempt whose machine may still exist, oldest job first, including jobs with unreadable views."""
    result: list[LiveAttempt] = []
    for job_id, text in connection.execute(_RUNNING).all():
        try:
            result += _from_text(text)
        except (ValueError, TypeError, KeyError) as error:
            log.error("job %s: its running attempts cannot be read: %s", job_id, error)
    return result


_FIRST_MOVEMENTS = frozenset({Movement.HOLD, Movement.DATE})


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
        if any(entry.movement not in _FIRST_MOVEMENTS for entry in entries):
            raise ValueError("only the hold of a new job is posted with its first records")
        self.entries += entries
        self.holds += ledger.first_holds(entries)

    def append(self, events: Sequence[dict[str, Any]], job: dict[str, Any], view: JobView) -> None:
        """Collect the rows of a new job."""
        self.events += events
        self.jobs.append(job)
        self.live += attempts_of(view)

    def held(self, budget: BudgetSpec) -> list[Burn]:
        """The holds among the entries that count under the budget."""
        return [burn for entry, burn in self.holds if entry.money in budget.counts and _counts_toward(entry, budget)]

    def write(self, connection: Connection) -> None:
        """Write all records, on PostgreSQL in one round trip. Raises `DBAPIError` if one exists already."""
        with pipeline(connection):
            policies.record_decisions(connection, *self.decisions)
            ledger.post(connection, self.entries)
            if self.jobs:
                insert_rows(connection, AttemptEventRow, self.events)
                insert_rows(connection, JobRow, self.jobs)


def _counts_toward(entry: Entry, budget: BudgetSpec) -> bool:
    tags = entry.tags
    return in_scope(
        budget,
        user=tags.user,
        team=tags.team,
        project=tags.project,
        workload=tags.workload,
        environment=tags.environment,
    )
