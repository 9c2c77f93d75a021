"""Anomalies in what teams spend, from the metered ledger: detected, attributed to jobs, alerted once,
and answered by people.

The current day is judged by what is spent so far, so that a rise is found within hours. Payments for capacity in
advance do not count as spending of a day. Spending that a person marked as planned is not counted in later comparisons.
Answers change no threshold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from broker.app.alerts.routes import recipients
from broker.app.billing.report_documents import IncidentCauseResult, SpendingIncidentResult
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.notices import Notice, Severity
from broker.core.policy.policy import UnusualSpending
from broker.core.values.money import Money
from broker.ledger.finops.anomalies import (
    MEMORY,
    WINDOW,
    AnomalyAnswer,
    Incident,
    IncidentAnswer,
    incidents,
    scores,
)
from broker.ledger.finops.change import NOBODY

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader

MAX_CAUSES = 3  # jobs that are named as causes
_DAY = timedelta(days=1)
_REPORTED_DAYS = 30  # days that are reported
_MEMORY_DAYS = MEMORY  # days that are read before those
_MIN_EXCESS = Money.usd("1")
_NOTHING = Money.ZERO
_UNUSUAL_EVERY = timedelta(minutes=1)
_FOUND_MARK = "found"


def spending_anomalies(broker: Broker, teams: Collection[str] | None = None) -> list[SpendingIncidentResult]:
    """The incidents of the last 30 days, newest first, of those teams (None: of all)."""
    today = _midnight(broker.clock.now())
    with broker.store.reading() as reader:
        incidents_by_team = _incidents(reader, today)
        return [
            _incident_result(reader, team, incident, today, incident_answer)
            for team, incident, incident_answer in sorted(
                incidents_by_team, key=lambda incident: (-incident[1].first, incident[0] or "")
            )
            if teams is None or (team or NOBODY) in teams
        ]


def answer_incident(
    broker: Broker, team: str, day: date, verdict: AnomalyAnswer, reason: str = "", *, by: Actor
) -> SpendingIncidentResult:
    """Record a person's answer on the incident of a team that began on ``day`` (UTC); a later answer replaces it.
    Returns the incident.

    Raises `InvalidInput` if there is no such incident, or if ``by`` neither owns a job that caused it nor may act for
    the team.
    """
    team_incidents = [candidate for candidate in spending_anomalies(broker) if candidate.team == team]
    (incident, *_) = [candidate for candidate in team_incidents if candidate.first == day] or (None,)
    if incident is None:
        known_days = (
            ", ".join(f"{candidate.first:%Y-%m-%d}" for candidate in team_incidents) or "none in the last 30 days"
        )
        raise InvalidInput(f"no incident of {team} began on {day:%Y-%m-%d}", where="--day", hint=f"known: {known_days}")
    if not any(by.may_act_for(cause.user, team) for cause in incident.causes) and not by.may_act_for("", team):
        raise InvalidInput(
            f"{by.identity} owns none of the jobs that caused it and does not act for {team}",
            where="--team",
            hint=f"ask {', '.join(dict.fromkeys(cause.user for cause in incident.causes)) or 'an administrator'}",
        )
    with broker.store.writing() as tx:
        tx.answer_anomaly(_key(team), day, IncidentAnswer(verdict, by.identity, broker.clock.now(), reason))
    return next(
        candidate for candidate in spending_anomalies(broker) if candidate.team == team and candidate.first == day
    )


def queue_notices(broker: Broker) -> list[Notice]:
    """Queue notices of incidents that continue, or ended yesterday, one for each incident; returns the new ones.
    Idempotent, from any number of processes. Sends nothing: see `notify.deliver`. Raises `StoreProblem`."""
    settings, now = broker.settings, broker.clock.now()
    if not settings.notify:
        return []
    today, outbox = _midnight(now), broker.store.outbox
    with broker.store.reading() as reader:
        new_incidents = [
            (team, incident)
            for team, incident, incident_answer in _incidents(reader, today)
            if incident_answer is None
            and incident.last >= _REPORTED_DAYS - 1
            and Money.usd(f"{incident.excess:.6f}") >= _MIN_EXCESS
        ]
        notices = [
            _notice(_incident_result(reader, team, incident, today, None))
            for team, incident in new_incidents
            if not outbox.under(f"{_thread(team or NOBODY, _day(today, incident.first))}/")
        ]
    return [notice for notice in notices if outbox.add(notice, recipients(settings, notice), now)]


class UnusualJobs:
    """The running jobs that cause anomalies of the day, for `broker.reconciler.controllers.enforcement`: by id, without
    those that a person declared planned, or no anomaly. Called for every job; read from the store every minute (broker
    time). Records when an anomaly was found."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: Mapping[str, UnusualSpending] = {}
        self._read: datetime | None = None

    def __call__(self, now: datetime) -> Mapping[str, UnusualSpending]:
        if self._read is None or not timedelta(0) <= now - self._read < _UNUSUAL_EVERY * self._broker.clock.scale:
            self._found, self._read = self._look(now), now
        return self._found

    def _look(self, now: datetime) -> Mapping[str, UnusualSpending]:
        unusual: dict[str, UnusualSpending] = {}
        for incident in spending_anomalies(self._broker):
            is_explained = incident.answer is not None and incident.answer.answer is not AnomalyAnswer.YES
            if not incident.running or is_explained:
                continue
            found_at, answered_by = (
                self._found_at(incident, now),
                incident.answer.by if incident.answer is not None else "",
            )
            unusual |= {cause.job: UnusualSpending(cause.excess, found_at, answered_by) for cause in incident.causes}
        return unusual

    def _found_at(self, incident: SpendingIncidentResult, now: datetime) -> datetime:
        day, marks = datetime.combine(incident.first, time(), UTC), self._broker.store.budget_marks
        mark_key = f"anomaly/{_key(incident.team)}", day, Money.ZERO  # no budget has a name with a slash
        found_at = marks.since(*mark_key).get(_FOUND_MARK)
        if found_at is None:
            marks.passed(*mark_key, {_FOUND_MARK: _notice(incident)}, {_FOUND_MARK}, {}, now)
        return found_at or now


def _incidents(reader: StoreReader, today: datetime) -> list[tuple[str | None, Incident, IncidentAnswer | None]]:
    """The incidents by team; their days are numbered from the first reported day on."""
    start = today - (_REPORTED_DAYS + _MEMORY_DAYS) * _DAY
    recorded_answers, team_incidents = (
        reader.anomaly_answers(),
        list[tuple[str | None, Incident, IncidentAnswer | None]](),
    )
    for team, amounts in reader.daily_by_team(start, today + _DAY).items():
        answers = {
            first: entry for (team_key, first), entry in recorded_answers.items() if team_key == _key(team or NOBODY)
        }
        team_incidents += [
            (team, entry, incident_answer)
            for entry, incident_answer in _incidents_of_days([float(day.dollars) for day in amounts], today, answers)
        ]
    return team_incidents


def _incidents_of_days(
    days: Sequence[float], today: datetime, answers: Mapping[date, IncidentAnswer]
) -> list[tuple[Incident, IncidentAnswer | None]]:
    planned_spend, answered = [0.0] * len(days), list[tuple[Incident, IncidentAnswer | None]]()
    day_scores = scores(days)
    for incident in incidents(day_scores):
        incident_answer = answers.get(_day(today, incident.first - _MEMORY_DAYS))
        if incident_answer is not None and incident_answer.answer is AnomalyAnswer.PLANNED:
            answered.append((_renumber(incident), incident_answer))
            first_score = day_scores[incident.first]
            level = days[incident.first] - (
                0.0 if first_score is None else first_score.excess
            )  # later levels contain the incident
            for number in range(incident.first, incident.last + 1):
                planned_spend[number] = max(0.0, days[number] - level)
    for incident in incidents(scores(days, planned_spend) if answered else day_scores):
        answered.append((_renumber(incident), answers.get(_day(today, incident.first - _MEMORY_DAYS))))
    return [(incident, incident_answer) for incident, incident_answer in answered if incident.last >= 0]


def _renumber(incident: Incident) -> Incident:
    return Incident(incident.first - _MEMORY_DAYS, incident.last - _MEMORY_DAYS, incident.excess)


def _incident_result(
    reader: StoreReader, team: str | None, incident: Incident, today: datetime, incident_answer: IncidentAnswer | None
) -> SpendingIncidentResult:
    first, last = _day(today, incident.first), _day(today, incident.last)
    start, end = datetime.combine(first, time(), UTC), datetime.combine(last, time(), UTC) + _DAY
    spend_by_job = reader.spending_by_job(team, start, end)
    earlier_spend = reader.spending_by_job(team, start - WINDOW * _DAY, start)
    length = (end - start) // _DAY
    causes = [
        IncidentCauseResult(
            job=job, user=user, excess=amount - earlier_spend.get((job, user), _NOTHING).share(length, WINDOW)
        )
        for (job, user), amount in spend_by_job.items()
    ]
    top_causes = sorted((cause for cause in causes if cause.excess > _NOTHING), key=lambda c: (-c.excess.micros, c.job))
    excess = Money.usd(f"{incident.excess:.6f}")
    total = sum(spend_by_job.values(), _NOTHING)
    owned_spend = reader.jobs_spent_on_own(team, start, end)
    return SpendingIncidentResult.from_parts(
        team=team or NOBODY,
        first=first,
        last=last,
        spent=total,
        on_own=owned_spend,
        rented=total - owned_spend,
        excess=excess,
        running=last == today.date(),
        causes=top_causes[:MAX_CAUSES],
        answer=incident_answer,
    )


def _notice(incident: SpendingIncidentResult) -> Notice:
    day_text = "today" if incident.running else f"on {incident.last:%Y-%m-%d}"
    title = f"Spending of {incident.team} {day_text} is {incident.excess.rounded()} above its usual level"
    jobs = "; ".join(f"{cause.job} of {cause.user} ({cause.excess.rounded()} more)" for cause in incident.causes)
    command = f"gpubroker report anomalies --team {incident.team!r} --day {incident.first} --answer"
    body = f"Caused by {jobs or 'no job that can be named'}. Was it an anomaly? {command} yes, no or planned."
    teams = () if incident.team == NOBODY else (incident.team,)
    thread = _thread(incident.team, incident.first)
    return Notice(f"{thread}/found", title, body, Severity.WARNING, thread, teams)


def _thread(team: str, first: date) -> str:
    return f"anomaly/{_key(team)}/{first}"


def _key(team: str) -> str:
    return "" if team == NOBODY else team


def _midnight(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC), time(), UTC)


def _day(today: datetime, number: int) -> date:
    """The date of a numbered day; the last reported day is today."""
    return (today + (number - _REPORTED_DAYS) * _DAY).date()
