"""The spending in which anomalies are found, their causes, and people's answers to them and to a review's advice.

Inside the caller's transaction.

Without simulated money and spend without a workload, such as purchases, which is planned.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime

from sqlalchemy import Connection, delete, insert, select

from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import DAY
from broker.ledger.finops.advice import AdviceAnswer, AdviceVerdict
from broker.ledger.finops.anomalies import AnomalyAnswer, IncidentAnswer
from broker.store.engine.fields import from_micros, to_micros
from broker.store.ledger.month_use import payments_in
from broker.store.schema.ledger import AdviceAnswerRow, AnomalyAnswerRow, LedgerEntryRow, SpendGroupRow, SpendSumRow


def daily_by_team(connection: Connection, since: datetime, until: datetime) -> Mapping[str | None, Sequence[Money]]:
    """The spend (USD) of each team (None: of jobs without one) on each of the days between two midnights (UTC), oldest
    first; only teams that spent anything. Without entries over more than a day.
    """
    first, after = to_micros(since) // DAY, to_micros(until) // DAY
    groups = select(SpendGroupRow.id).where(
        SpendGroupRow.workload.is_not(None), SpendGroupRow.money != MoneyKind.SANDBOX.value
    )
    query = (
        select(SpendGroupRow.team, SpendSumRow.slot, SpendSumRow.micros)
        .join_from(SpendSumRow, SpendGroupRow, SpendGroupRow.id == SpendSumRow.group_id)
        .where(
            SpendSumRow.size == DAY,
            SpendSumRow.group_id.in_(groups),
            SpendSumRow.slot >= first,
            SpendSumRow.slot < after,
        )
    )
    days_by_team: defaultdict[str | None, list[Money]] = defaultdict(lambda: [Money.ZERO] * (after - first))
    for team, slot, micros in connection.execute(query):
        days_by_team[team][slot - first] += Money(micros)
    return days_by_team


def spending_by_job(
    connection: Connection, team: str | None, since: datetime, until: datetime
) -> Mapping[tuple[str, str], Money]:
    """The spend of each job of the team (USD) in the half-open period (UTC), by its id and user."""
    spent: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    columns = (LedgerEntryRow.team, LedgerEntryRow.workload, LedgerEntryRow.job_id, LedgerEntryRow.user_name)
    for payment in payments_in(connection, columns, since, until):
        paid_team, workload, job_id, user = payment.tags
        if paid_team == team and workload is not None and job_id is not None:
            spent[job_id, user or ""] += payment.amount
    return spent


def spent_on_own(connection: Connection, team: str | None, since: datetime, until: datetime) -> Money:
    """The part of the spend of a team's jobs (USD) in the half-open period (UTC) that was for owned and reserved
    machines.
    """
    columns = (LedgerEntryRow.team, LedgerEntryRow.workload, LedgerEntryRow.capacity_type)
    amounts = (
        payment.amount
        for payment in payments_in(connection, columns, since, until)
        if payment.tags[0] == team and payment.tags[1] is not None and payment.tags[2] in BOUGHT
    )
    return sum(amounts, Money.ZERO)


def answers(connection: Connection) -> Mapping[tuple[str, date], IncidentAnswer]:
    """People's answers to anomalies, by team (empty: none) and first day."""
    return {
        (row.team, date.fromisoformat(row.day)): IncidentAnswer(
            AnomalyAnswer(row.answer), row.answered_by, from_micros(row.answered_at), row.reason
        )
        for row in connection.execute(select(AnomalyAnswerRow))
    }


def answer(connection: Connection, team: str, day: date, response: IncidentAnswer) -> None:
    """Record a person's answer to the incident of a team (empty: of jobs without one) that began on that day (UTC).

    Replaces an earlier answer.
    """
    is_same = (AnomalyAnswerRow.team == team, AnomalyAnswerRow.day == day.isoformat())
    connection.execute(delete(AnomalyAnswerRow).where(*is_same))
    values = {"answer": response.answer.value, "answered_at": to_micros(response.at), "answered_by": response.by}
    connection.execute(
        insert(AnomalyAnswerRow).values(team=team, day=day.isoformat(), reason=response.reason, **values)
    )


def advice_answers(connection: Connection, reviews: Sequence[str]) -> Mapping[str, AdviceAnswer]:
    """People's last answers to the advice of these reviews (``2026-11``, ``2026-Q4``), by its id."""
    row = AdviceAnswerRow
    return {
        row.advice: AdviceAnswer(AdviceVerdict(row.verdict), row.answered_by, from_micros(row.answered_at), row.reason)
        for row in connection.execute(select(row).where(row.month.in_(reviews)).order_by(row.answered_at))
    }


def answer_advice(connection: Connection, month: str, advice: str, response: AdviceAnswer) -> None:
    """Record a person's answer to that advice of a month's review. Replaces an earlier answer."""
    row = AdviceAnswerRow
    connection.execute(delete(row).where(row.month == month, row.advice == advice))
    values = {"answered_at": to_micros(response.at), "answered_by": response.by, "reason": response.reason}
    connection.execute(insert(row).values(month=month, advice=advice, verdict=response.verdict.value, **values))
