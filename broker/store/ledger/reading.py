"""The ledger by periods, for reports, from one consistent snapshot: by groups, teams, months and runs."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from broker.core.events.events import EventBody, body_from_json
from broker.core.events.record_format import UnreadableRecord
from broker.store import later
from broker.store.engine.queries import asks
from broker.store.engine.times import from_micros
from broker.store.ledger import spending
from broker.store.ledger.spending import SpendingPeriod

if TYPE_CHECKING:
    from broker.store.ledger.month_runs import GpuAttempt


class SpendingReading:
    """The part of a snapshot that reports use. Most commands do not need it, so its queries are imported on
    first use.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    held_as_of = asks(lambda: later.holdings.held_as_of)
    first_machine_time = asks(lambda: spending.first_machine_time)
    spent_by = asks(lambda: spending.spent_by)
    bought_in_advance = asks(lambda: spending.bought_in_advance)
    billed_in = asks(lambda: later.spent_entries.billed_in)
    used_in = asks(lambda: later.month_use.used_in)
    team_spending = asks(lambda: later.team_spending.team_spending)
    last_entry = asks(lambda: later.team_spending.last_entry)
    recorded_after = asks(lambda: later.team_spending.recorded_after)
    statement = asks(lambda: later.statements.read)
    statements = asks(lambda: later.statements.listed)
    daily_by_team = asks(lambda: later.anomalies.daily_by_team)
    spending_by_job = asks(lambda: later.anomalies.spending_by_job)
    jobs_spent_on_own = asks(lambda: later.anomalies.spent_on_own)
    anomaly_answers = asks(lambda: later.anomalies.answers)
    paid_attempts = asks(lambda: later.paid_attempts.paid_attempts)
    succeeded_runs = asks(lambda: later.month_runs.succeeded)
    succeeded_jobs = asks(lambda: later.month_runs.succeeded_jobs)
    last_reports = asks(lambda: later.month_runs.last_reports)
    machine_hours = asks(lambda: later.month_runs.machine_hours)

    def plans_and_ends(self, job_ids: Sequence[str]) -> Sequence[tuple[str, datetime, EventBody]]:
        """The requests for machines and the ends of attempts of those jobs, in order, with their times (UTC).

        Omits those that this version cannot read.
        """
        found = []
        for job_id, at, text in later.month_runs.plans_and_ends(self._connection, job_ids):
            with suppress(UnreadableRecord):
                found.append((job_id, from_micros(at), body_from_json(text)))
        return found

    def gpu_attempts(self, team: str | None, start: datetime, end: datetime, limit: int) -> Sequence[GpuAttempt]:
        """The attempts with the most accelerator time in a past half-open period (UTC), the largest first."""
        return later.month_runs.gpu_attempts(self._connection, team, start, end, end, limit)

    reported_metrics = asks(lambda: later.month_runs.reported)
    spent_by_jobs = asks(lambda: later.month_runs.spent_by_jobs)

    def groups_of(self, dimension: str, period: SpendingPeriod, job_ids: Sequence[str]) -> Set[tuple[str, str]]:
        """The pairs of job and group in which `spent_by` counts these jobs."""
        return spending.groups_of(self._connection, dimension, period, list(job_ids))

    holding = asks(lambda: spending.holding)
