"""Jobs as event streams, money as entries: one database transaction; and the check that projections follow from
events and entries.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, bindparam, delete, insert, update
from sqlalchemy.exc import IntegrityError

from broker.core.errors import UnreadableJob
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.events import Event, EventBody, Submitted, body_from_json, body_to_json
from broker.core.events.lifecycle import advance, fold
from broker.core.events.views import JobView
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding
from broker.ledger.entries import Entry
from broker.ledger.journal import DatedBody
from broker.store.engine.database import Database, query
from broker.store.engine.fields import from_micros, to_micros
from broker.store.jobs import job_rows, live
from broker.store.jobs.live import NewJobs
from broker.store.jobs.reader import StoreReader
from broker.store.ledger import anomalies, billing_months, ledger, machine_time, metering, spent_sums
from broker.store.market import holdings
from broker.store.policy import approvals, policies
from broker.store.purchases import purchases
from broker.store.schema.jobs import AttemptEventRow, JobRow

log = logging.getLogger(__name__)

_BATCH_SIZE = 500  # the maximum number of jobs rebuilt in one batch
_Answer = TypeVar("_Answer")


class StoreWriter(StoreReader):
    """A transaction. Leaving it without an exception commits; any exception rolls all of it back."""

    def __init__(self, connection: Connection, *, for_leader: bool = False) -> None:
        super().__init__(connection, for_leader=for_leader)
        self._new: NewJobs | None = None
        self._views: dict[str, JobView | None] = {}

    def append(self, job_id: str, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
        """Append events (attempt number or None, body) to a job's stream; store and return the new view. ``at``: UTC.

        Raises `ImpossibleSequence`, `UnreadableJob`, and ValueError if there are no events; then nothing of the
        transaction is kept.
        """
        if not items:
            raise ValueError("nothing to append")
        if self._new is not None and not isinstance(items[0][1], Submitted):
            raise ValueError("only a new job is appended with its first records")
        # A duplicate submission shows as an integrity error: this saves a query while all other writers wait.
        if (previous := None if isinstance(items[0][1], Submitted) else self.job(job_id)) is not None:
            (new_view,) = self.append_each([(previous, [(at, *item) for item in items])])
            return new_view
        rows, new_view = _fold_events(job_id, None, [(at, *item) for item in items])
        if self._new is not None:
            self._new.append(rows, _job_row(new_view), new_view)
            self._views.pop(job_id, None)
            return new_view
        try:
            self._connection.execute(insert(AttemptEventRow), rows)
        except IntegrityError as error:
            raise ImpossibleSequence(Event(job_id, 1, at, *items[0]), "the job has been submitted before") from error
        self._connection.execute(insert(JobRow), _job_row(new_view))
        self._update_tables([(None, new_view)])
        return new_view

    def append_each(self, news: Sequence[tuple[JobView, Sequence[DatedBody]]]) -> list[JobView]:
        """Append events (time, attempt number or None, body) to the streams of several jobs, with one statement per
        table. Returns the new views.

        ``news``: each job once, with its view in this transaction; an outdated view raises `StoreProblem`. Raises as
        `append`.
        """
        rows, changes = list[dict[str, Any]](), list[tuple[JobView | None, JobView]]()
        for view, items in news:
            events, new_view = _fold_events(view.id, view, items)
            rows += events
            changes.append((view, new_view))
        if changes:
            self._connection.execute(insert(AttemptEventRow), rows)
            self._connection.execute(_CHANGE_JOB, [_changed_row(new_view) for _, new_view in changes])
            self._update_tables(changes)
        return [new_view for _, new_view in changes]

    def _update_tables(self, changes: Sequence[tuple[JobView | None, JobView]]) -> None:
        """Update the other tables that depend on views."""
        self._live = None
        self._views |= {new_view.id: new_view for _, new_view in changes}
        machine_time.keep(self._connection, changes)
        closed = [
            new_view.id for previous, new_view in changes if new_view.closed and not (previous and previous.closed)
        ]
        approvals.close(self._connection, closed)

    def job(self, job_id: str) -> JobView | None:
        """As `StoreReader.job`; cached, as no other process writes during the transaction."""
        if job_id not in self._views:
            self._views[job_id] = super().job(job_id)
        return self._views[job_id]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """During the block, collect the first records of new jobs; write them together at its end. Does not nest.

        Within the block, budgets and running attempts are read as if these records were written. A second submission of
        a job, or a movement that was posted before, raises `StoreProblem` at the end.
        """
        assert self._new is None, "it does not nest"
        self._new = NewJobs()
        try:
            yield
            self._new.write(self._connection)
        finally:
            self._new = self._live = None

    def post(self, entries: Sequence[Entry]) -> None:
        """Post ledger entries. Raises ValueError for a movement id that exists already."""
        if self._new is not None:
            self._new.post(entries)
        else:
            ledger.post(self._connection, entries)

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """As `StoreReader.spent`."""
        return self._cached(("spent", budget, start, end), lambda: super(StoreWriter, self).spent(budget, start, end))

    def spent_until(self, budget: BudgetSpec) -> datetime:
        """As `StoreReader.spent_until`."""
        return self._cached(("until", budget), lambda: super(StoreWriter, self).spent_until(budget))

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
        """As `StoreReader.held`."""
        stored = self._cached(("held", budget, until), lambda: super(StoreWriter, self).held(budget, until))
        return stored if self._new is None else [*stored, *self._new.held(budget)]

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """As `StoreReader.live_attempts`."""
        stored = super().live_attempts()
        return stored if self._new is None or not self._new.live else [*stored, *self._new.live]

    def _cached(self, key: tuple[object, ...], compute: Callable[[], _Answer]) -> _Answer:
        """The cached answer to a question about money, while the first records of new jobs are collected."""
        if self._new is None:
            return compute()
        if key not in self._new.known:
            self._new.known[key] = compute()
        return cast("_Answer", self._new.known[key])

    add_statement = query(billing_months.add_statement)
    answer_anomaly = query(anomalies.answer)
    answer_advice = query(anomalies.answer_advice)
    append_purchase = query(purchases.append)

    def add_holding(self, holding: Holding, *, by: str, at: datetime) -> int:
        """Record a holding of capacity; returns its number."""
        return holdings.add(self._connection, holding, by=by, at=at).number

    remove_holding = query(holdings.remove_if_present)
    keep_machine_time = query(machine_time.keep_outside)
    keep_meters = query(metering.keep)

    def record(self, decision: Decision) -> None:
        if self._new is not None:
            self._new.decisions.append(decision)
        else:
            policies.record_decisions(self._connection, decision)

    use_standing = query(approvals.use)
    give_standing = query(approvals.give)
    revoke_standing = query(approvals.revoke)

    def rebuild(self) -> int:
        """Rebuild every projection from events and entries; returns the number of jobs. A job with unreadable events
        keeps its projection."""
        ledger.rebuild(self._connection)
        rebuilt, last = 0, ""
        while job_ids := job_rows.open_ids_after(self._connection, last, _BATCH_SIZE):
            rebuilt += self._fold_anew(job_ids)
            last = job_ids[-1]
        approvals.rebuild(self._connection)
        purchases.rebuild(self._connection)
        return rebuilt

    def renew(self, job_ids: Sequence[str]) -> list[str]:
        """Rebuild the projections of these jobs from events and entries; returns the ids of jobs whose projections
        differed. Deletes their meters, as `rebuild` does.
        """
        before = self._states(job_ids)
        ledger.rebuild(self._connection, job_ids)
        self._fold_anew(job_ids)
        after = self._states(job_ids)
        return [job_id for job_id in job_ids if before[job_id] != after[job_id]]

    def _states(self, job_ids: Sequence[str]) -> Mapping[str, object]:
        views, sums = {view.id: view for view in self.views(job_ids)}, self.sums(job_ids)
        return {job_id: (views.get(job_id), self.balance(job_id), sums.get(job_id)) for job_id in job_ids}

    def _fold_anew(self, job_ids: Sequence[str]) -> int:
        """Rebuild the views of these jobs; returns their number."""
        rebuilt, self._live = 0, None
        self._views.clear()
        for job_id in job_ids:
            try:
                events = self.events(job_id)
            except UnreadableJob as error:
                log.warning("%s (%s)", error, error.hint)
                continue
            self._connection.execute(delete(JobRow).where(JobRow.id == job_id))
            machine_time.forget(self._connection, job_id)
            if events:
                view = fold(events)
                self._connection.execute(insert(JobRow).values(_job_row(view)))
                machine_time.keep(self._connection, [(None, view)])
                rebuilt += 1
        return rebuilt


# Columns that never change are not updated, as an update of a column also updates its indexes.
_AS_SUBMITTED = frozenset({"id", "name", "user_name", "team", "project", "environment", "submitted_at", "array_id"})

_CHANGE_JOB = update(JobRow).where(JobRow.id == bindparam("of_job"))


def _fold_events(
    job_id: str, previous: JobView | None, items: Sequence[DatedBody]
) -> tuple[list[dict[str, Any]], JobView]:
    """The rows of a job's next events, and its view after them. Raises `ImpossibleSequence`."""
    rows, view = [], previous
    for seq, (at, attempt, body) in enumerate(items, start=previous.seq + 1 if previous else 1):
        text = body_to_json(body)
        # Fold the events as a reader will read them, not as they were passed in, so that a rebuild gives the same view.
        row = {"job_id": job_id, "seq": seq, "attempt": attempt, "at": to_micros(at), "kind": body.kind}
        view = advance(view, Event(job_id, seq, from_micros(to_micros(at)), attempt, body_from_json(text)))
        rows.append({**row, "body": text})
    if view is None or not rows:
        raise ValueError("nothing to append")
    return rows, view


def _changed_row(view: JobView) -> dict[str, object]:
    return {name: value for name, value in _job_row(view).items() if name not in _AS_SUBMITTED} | {"of_job": view.id}


def _job_row(view: JobView) -> dict[str, object]:
    return {
        "id": view.id,
        "name": view.job.name,
        "user_name": view.user,
        "team": view.job.team,
        "project": view.job.project,
        "environment": view.job.environment,
        "state": view.state.value,
        "closed": view.closed,
        "submitted_at": to_micros(view.submitted_at),
        "view": job_rows.to_text(view),
        "live": live.to_text(view),
        "array_id": view.job.task.array if view.job.task else None,
    }


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
            job_ids = job_rows.open_ids_after(connection, last, BATCH_SIZE)
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
