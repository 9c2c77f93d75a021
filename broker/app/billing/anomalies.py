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
from broker.app.results.reports import IncidentCauseResult, SpendingIncidentResult
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.notices import Notice, Severity
from broker.core.policy.policy import UnusualSpending
from broker.core.values.money import Money
from broker.finops.anomalies import (
    MEMORY,
    WINDOW,
    AnomalyAnswer,
    Incident,
    IncidentAnswer,
    incidents,
    scores,
)
from broker.finops.change import NOBODY

if TYPE_CHECKING:
    from broker.store.jobs.reading import StoreReading

MOST = 3  # jobs that are named as causes
_DAY = timedelta(days=1)
_LOOK_BACK = 30  # days that are reported
_BEFORE = MEMORY  # days that are read before those
_WORTH_TELLING = Money.usd("1")
_NOTHING = Money.ZERO
_UNUSUAL_EVERY = timedelta(minutes=1)
_FOUND = "found"


def spending_anomalies(broker: Broker, teams: Collection[str] | None = None) -> list[SpendingIncidentResult]:
    """The incidents of the last 30 days, newest first, of those teams (None: of all)."""
    today = _midnight(broker.clock.now())
    with broker.store.reading() as look:
        found = _incidents(look, today)
        return [
            _explained(look, team, one, today, said)
            for team, one, said in sorted(found, key=lambda one: (-one[1].first, one[0] or ""))
            if teams is None or (team or NOBODY) in teams
        ]


def answer(
    broker: Broker, team: str, day: date, said: AnomalyAnswer, reason: str = "", *, by: Actor
) -> SpendingIncidentResult:
    """Record a person's answer on the incident of a team that began on ``day`` (UTC); a later answer replaces it.
    Returns the incident.

    Raises `InvalidInput` if there is no such incident, or if ``by`` neither owns a job that caused it nor may act for
    the team.
    """
    there = [one for one in spending_anomalies(broker) if one.team == team]
    (found, *_) = [one for one in there if one.first == day] or (None,)
    if found is None:
        known = ", ".join(f"{one.first:%Y-%m-%d}" for one in there) or "none in the last 30 days"
        raise InvalidInput(f"no incident of {team} began on {day:%Y-%m-%d}", where="--day", hint=f"known: {known}")
    if not any(by.may_act_for(cause.user, team) for cause in found.causes) and not by.may_act_for("", team):
        raise InvalidInput(
            f"{by.identity} owns none of the jobs that caused it and does not act for {team}",
            where="--team",
            hint=f"ask {', '.join(dict.fromkeys(cause.user for cause in found.causes)) or 'an administrator'}",
        )
    with broker.store.writing() as tx:
        tx.answer_anomaly(_key(team), day, IncidentAnswer(said, by.identity, broker.clock.now(), reason))
    return next(one for one in spending_anomalies(broker) if one.team == team and one.first == day)


def check(broker: Broker) -> list[Notice]:
    """Queue notices of incidents that continue, or ended yesterday, one for each incident; returns the new ones.
    Idempotent, from any number of processes. Sends nothing: see `notify.deliver`. Raises `StoreProblem`."""
    settings, now = broker.settings, broker.clock.now()
    if not settings.notify:
        return []
    today, outbox = _midnight(now), broker.store.outbox
    with broker.store.reading() as look:
        fresh = [
            (team, one)
            for team, one, said in _incidents(look, today)
            if said is None and one.last >= _LOOK_BACK - 1 and Money.usd(f"{one.excess:.6f}") >= _WORTH_TELLING
        ]
        told = [
            _notice(_explained(look, team, one, today, None))
            for team, one in fresh
            if not outbox.under(f"{_thread(team or NOBODY, _day(today, one.first))}/")
        ]
    return [notice for notice in told if outbox.add(notice, recipients(settings, notice), now)]


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
        found: dict[str, UnusualSpending] = {}
        for one in spending_anomalies(self._broker):
            explained = one.answer is not None and one.answer.answer is not AnomalyAnswer.YES
            if not one.running or explained:
                continue
            since, said_by = self._known_since(one, now), one.answer.by if one.answer is not None else ""
            found |= {cause.job: UnusualSpending(cause.excess, since, said_by) for cause in one.causes}
        return found

    def _known_since(self, one: SpendingIncidentResult, now: datetime) -> datetime:
        day, marks = datetime.combine(one.first, time(), UTC), self._broker.store.budget_marks
        mine = f"anomaly/{_key(one.team)}", day, Money.ZERO  # no budget has a name with a slash
        known = marks.since(*mine).get(_FOUND)
        if known is None:
            marks.passed(*mine, {_FOUND: _notice(one)}, {_FOUND}, {}, now)
        return known or now


def _incidents(look: StoreReading, today: datetime) -> list[tuple[str | None, Incident, IncidentAnswer | None]]:
    """The incidents by team; their days are numbered from the first reported day on."""
    since = today - (_LOOK_BACK + _BEFORE) * _DAY
    said, found = look.anomaly_answers(), list[tuple[str | None, Incident, IncidentAnswer | None]]()
    for team, amounts in look.daily_by_team(since, today + _DAY).items():
        answers = {first: one for (whose, first), one in said.items() if whose == _key(team or NOBODY)}
        found += [
            (team, one, known) for one, known in _of_team([float(day.dollars) for day in amounts], today, answers)
        ]
    return found


def _of_team(
    days: Sequence[float], today: datetime, answers: Mapping[date, IncidentAnswer]
) -> list[tuple[Incident, IncidentAnswer | None]]:
    planned, meant = [0.0] * len(days), list[tuple[Incident, IncidentAnswer | None]]()
    judged = scores(days)
    for one in incidents(judged):
        known = answers.get(_day(today, one.first - _BEFORE))
        if known is not None and known.answer is AnomalyAnswer.PLANNED:
            meant.append((_numbered(one), known))
            begun = judged[one.first]
            level = days[one.first] - (0.0 if begun is None else begun.excess)  # later levels contain the incident
            for number in range(one.first, one.last + 1):
                planned[number] = max(0.0, days[number] - level)
    for one in incidents(scores(days, planned) if meant else judged):
        meant.append((_numbered(one), answers.get(_day(today, one.first - _BEFORE))))
    return [(one, known) for one, known in meant if one.last >= 0]


def _numbered(one: Incident) -> Incident:
    return Incident(one.first - _BEFORE, one.last - _BEFORE, one.excess)


def _explained(
    look: StoreReading, team: str | None, one: Incident, today: datetime, said: IncidentAnswer | None
) -> SpendingIncidentResult:
    first, last = _day(today, one.first), _day(today, one.last)
    start, end = datetime.combine(first, time(), UTC), datetime.combine(last, time(), UTC) + _DAY
    spent = look.spending_by_job(team, start, end)
    before = look.spending_by_job(team, start - WINDOW * _DAY, start)
    length = (end - start) // _DAY
    causes = [
        IncidentCauseResult(job=job, user=user, excess=amount - before.get((job, user), _NOTHING).share(length, WINDOW))
        for (job, user), amount in spent.items()
    ]
    more = sorted((cause for cause in causes if cause.excess > _NOTHING), key=lambda c: (-c.excess.micros, c.job))
    excess = Money.usd(f"{one.excess:.6f}")
    whole = sum(spent.values(), _NOTHING)
    on_own = look.jobs_spent_on_own(team, start, end)
    return SpendingIncidentResult.from_parts(
        team=team or NOBODY,
        first=first,
        last=last,
        spent=whole,
        on_own=on_own,
        rented=whole - on_own,
        excess=excess,
        running=last == today.date(),
        causes=more[:MOST],
        answer=said,
    )


def _notice(one: SpendingIncidentResult) -> Notice:
    when = "today" if one.running else f"on {one.last:%Y-%m-%d}"
    title = f"Spending of {one.team} {when} is {one.excess.rounded()} above its usual level"
    jobs = "; ".join(f"{cause.job} of {cause.user} ({cause.excess.rounded()} more)" for cause in one.causes)
    how = f"gpubroker report anomalies --team {one.team!r} --day {one.first} --answer"
    body = f"Caused by {jobs or 'no job that can be named'}. Was it an anomaly? {how} yes, no or planned."
    teams = () if one.team == NOBODY else (one.team,)
    thread = _thread(one.team, one.first)
    return Notice(f"{thread}/found", title, body, Severity.WARNING, thread, teams)


def _thread(team: str, first: date) -> str:
    return f"anomaly/{_key(team)}/{first}"


def _key(team: str) -> str:
    return "" if team == NOBODY else team


def _midnight(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC), time(), UTC)


def _day(today: datetime, number: int) -> date:
    """The date of a numbered day; the last reported day is today."""
    return (today + (number - _LOOK_BACK) * _DAY).date()
