"""The ledger by periods, for reports: one consistent snapshot, by groups, teams, months and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from broker.core.events.events import EventBody, body_from_json
from broker.core.events.record_format import UnreadableRecord
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.store import later
from broker.store.engine.times import from_micros
from broker.store.ledger import spending
from broker.store.ledger.spending import SpendingPeriod, Spent

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import RecordedHolding
    from broker.finops.anomalies import IncidentAnswer
    from broker.finops.focus.charges import SpentEntry
    from broker.finops.focus.months import BillingMonth
    from broker.finops.statements import Statement
    from broker.store.ledger.month_runs import GpuAttempt, MachineHours
    from broker.store.ledger.month_use import UseOfTime
    from broker.store.ledger.paid_attempts import PaidAttempt
    from broker.store.ledger.team_spending import LateSpending, TeamSpending


class SpendingReading:
    """The part of a snapshot that reports read. Most commands do without it: its queries are imported when used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def held_as_of(self, at: datetime) -> Sequence[RecordedHolding]:
        """The capacity on record as held at that time (UTC): without what was added since, with what was removed
        since."""
        return later.holdings.held_as_of(self._connection, at)

    def first_machine_time(self) -> datetime | None:
        """When the first machine came up (UTC), or the beginning of its month; None without any."""
        return spending.first_machine_time(self._connection)

    def spent_by(self, dimension: str, period: SpendingPeriod) -> Mapping[str, Spent]:
        """The spend and machine time of attempts with machines in a period, by one of
        `broker.store.ledger.spending.DIMENSIONS`."""
        return spending.spent_by(self._connection, dimension, period)

    def bought_in_advance(self, period: SpendingPeriod) -> Money:
        """The payments in a period for capacity that is used later (USD), read entry by entry."""
        return spending.bought_in_advance(self._connection, period)

    def billed_in(self, month: BillingMonth) -> Iterator[SpentEntry]:
        """The entries of spend that are billed in the month, in posting order, streamed."""
        return later.spent_entries.billed_in(self._connection, month)

    def used_in(self, start: datetime, end: datetime, now: datetime) -> UseOfTime:
        """The spend and machine time of a period (UTC, half-open); machines that still exist count up to ``now``."""
        return later.month_use.used_in(self._connection, start, end, now)

    def team_spending(self, start: datetime, end: datetime) -> TeamSpending:
        """The cost of each team's own use in a period (UTC, half-open)."""
        return later.team_spending.team_spending(self._connection, start, end)

    def last_entry(self) -> int:
        """The number of the newest ledger entry; 0 without any."""
        return later.team_spending.last_entry(self._connection)

    def recorded_after(self, entry: int, months: Sequence[BillingMonth]) -> LateSpending:
        """The records about those months after the ledger entry of that number, by month and team."""
        return later.team_spending.recorded_after(self._connection, entry, months)

    def statement(self, month: str) -> Statement | None:
        """The frozen statement of a month (``2026-10``); None where there is none."""
        return later.statements.read(self._connection, month)

    def statements(self) -> Sequence[Statement]:
        """All frozen statements, newest month first."""
        return later.statements.listed(self._connection)

    def daily_by_team(self, since: datetime, until: datetime) -> Mapping[str | None, Sequence[Money]]:
        """The spend of each team (USD) on each day between two midnights (UTC), oldest first; None: without a team."""
        return later.anomalies.daily_by_team(self._connection, since, until)

    def spending_by_job(self, team: str | None, since: datetime, until: datetime) -> Mapping[tuple[str, str], Money]:
        """The spend of each job of a team (USD) in a period (UTC, half-open), by its id and user."""
        return later.anomalies.spending_by_job(self._connection, team, since, until)

    def jobs_spent_on_own(self, team: str | None, since: datetime, until: datetime) -> Money:
        """The part of what jobs of a team spent (USD) in a time (UTC, half-open) on owned and reserved machines."""
        return later.anomalies.spent_on_own(self._connection, team, since, until)

    def anomaly_answers(self) -> Mapping[tuple[str, date], IncidentAnswer]:
        """People's answers to anomalies, by team (empty: none) and first day."""
        return later.anomalies.answers(self._connection)

    def paid_attempts(self, since: datetime | None, until: datetime | None, billed: str) -> Iterator[PaidAttempt]:
        """The spend of attempts paid in cash whose machines ran in that period (UTC; None: no bound) and are gone."""
        return later.paid_attempts.paid_attempts(self._connection, since, until, billed)

    def succeeded_runs(self, team: str | None, start: datetime, end: datetime) -> int:
        """How many jobs (of the team; None: of all) succeeded and gave up their last machines in a time (UTC)."""
        return later.month_runs.succeeded(self._connection, team, start, end)

    def succeeded_jobs(self, team: str | None, start: datetime, end: datetime, most: int) -> Sequence[str]:
        """The jobs that `succeeded_runs` counts, those first whose machines went last; at most so many."""
        return later.month_runs.succeeded_jobs(self._connection, team, start, end, most)

    def last_reports(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """The newest report of figures of each of those jobs that made one."""
        return later.month_runs.last_reports(self._connection, job_ids)

    def machine_hours(self, job_ids: Sequence[str]) -> Mapping[str, MachineHours]:
        """The accelerators' hours of those jobs, if their machines had any and are gone."""
        return later.month_runs.machine_hours(self._connection, job_ids)

    def plans_and_ends(self, job_ids: Sequence[str]) -> Sequence[tuple[str, datetime, EventBody]]:
        """The requests for machines and the ends of attempts of those jobs, in order, with their times (UTC). What
        this version cannot read is left out."""
        found = []
        for job_id, at, text in later.month_runs.plans_and_ends(self._connection, job_ids):
            with suppress(UnreadableRecord):
                found.append((job_id, from_micros(at), body_from_json(text)))
        return found

    def gpu_attempts(self, team: str | None, start: datetime, end: datetime, limit: int) -> Sequence[GpuAttempt]:
        """The attempts with most accelerator time in a time that has passed (UTC, half-open), the largest first."""
        return later.month_runs.gpu_attempts(self._connection, team, start, end, end, limit)

    def reported_metrics(
        self, team: str | None, start: datetime, end: datetime
    ) -> Mapping[str, Sequence[Mapping[str, float]]]:
        """The reported metrics by job: the newest before the period (UTC), and the newest by its end."""
        return later.month_runs.reported(self._connection, team, start, end)

    def spent_by_jobs(self, job_ids: Sequence[str], start: datetime, end: datetime) -> Mapping[str, Money]:
        """The spend of those jobs (USD) in a period (UTC, half-open)."""
        return later.month_runs.spent_by_jobs(self._connection, job_ids, start, end)

    def groups_of(self, dimension: str, period: SpendingPeriod, job_ids: Sequence[str]) -> Set[tuple[str, str]]:
        """The pairs of job and group in which `spent_by` counts these jobs."""
        return spending.groups_of(self._connection, dimension, period, list(job_ids))

    def holding(self) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each job that holds money."""
        return spending.holding(self._connection)
