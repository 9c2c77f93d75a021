"""Jobs as event streams, money as entries: `broker.launch.journal` over one database transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import JSON, Connection, bindparam, cast, select, type_coerce
from sqlalchemy.exc import IntegrityError

from broker.core.approvals import StandingGrant
from broker.core.capacity import Charge
from broker.core.decisions import Decision
from broker.core.events import Event, EventBody, Submitted, body_from_json, body_to_json
from broker.core.lifecycle import ImpossibleSequence, advance, fold
from broker.core.money import Money
from broker.core.offers import MoneyKind, Offer, OfferQuery
from broker.core.policy import ActionKind, Answer, LiveAttempt, Verdict
from broker.core.ports import BudgetSpec
from broker.core.reasons import Reason
from broker.core.views import JobView
from broker.launch.journal import HeldMoney, OpenHold
from broker.ledger.entries import Balance, Entry
from broker.store import approvals, ledger, ledger_sums, live, market, open_jobs, policies
from broker.store.records import PolicyVersion
from broker.store.tables import DECISION, EVENT, JOB
from broker.store.times import from_micros, to_micros

_VIEW = select(JOB.c.view).where(JOB.c.id == bindparam("job"))


class StoreReading:
    """One consistent look: `broker.launch.journal.Reading`, and lists for people."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def job(self, job_id: str) -> JobView | None:
        """The projection of one job."""
        text = self._connection.scalar(_VIEW, {"job": job_id})
        return None if text is None else _view_from_json(text)

    def unclosed(self) -> Sequence[JobView]:
        """Every job that is not closed, oldest first."""
        query = select(JOB.c.view).where(~JOB.c.closed).order_by(JOB.c.submitted_at, JOB.c.id)
        return [_view_from_json(text) for text in self._connection.scalars(query)]

    def has_open_jobs(self) -> bool:
        """Whether any job is not closed."""
        return self._connection.scalar(select(JOB.c.id).where(~JOB.c.closed).limit(1)) is not None

    def last_events(self, job_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """The number of the last event of each job that is not closed (or of those jobs, but for closed ones), oldest
        job first."""
        return open_jobs.last_events(self._connection, job_ids)

    def views(self, job_ids: Sequence[str]) -> Sequence[JobView]:
        """The projections of those jobs, in any order."""
        return [_view_from_json(text) for text in open_jobs.views(self._connection, job_ids)]

    def open_balances(self) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each job that is not closed and has entries."""
        return open_jobs.balances(self._connection)

    def sums(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Entry]]:
        """The entries of those jobs, added up by attempt, movement, account and kind of money."""
        return open_jobs.sums(self._connection, job_ids)

    def jobs(
        self,
        *,
        name: str | None = None,
        id_prefix: str = "",
        states: Sequence[str] = (),
        user: str | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> Sequence[JobView]:
        """Jobs that match all that is given, newest first."""
        query = select(JOB.c.view).order_by(JOB.c.submitted_at.desc(), JOB.c.id.desc()).limit(limit)
        wanted = {"name": name, "user_name": user, "team": team}
        query = query.where(*(JOB.c[column] == value for column, value in wanted.items() if value is not None))
        if id_prefix:
            query = query.where(JOB.c.id.startswith(id_prefix, autoescape=True))
        if states:
            query = query.where(JOB.c.state.in_(states))
        return [_view_from_json(text) for text in self._connection.scalars(query)]

    def names_in_jobs(self) -> Mapping[str, frozenset[str]]:
        """Every user, team, project and environment that a job has named, by that word."""
        as_json = cast(JOB.c.view, JSON) if self._connection.dialect.name != "sqlite" else type_coerce(JOB.c.view, JSON)
        columns = {
            "user": JOB.c.user_name,
            "team": JOB.c.team,
            "project": JOB.c.project,
            "environment": as_json[("job", "environment")].as_string(),
        }
        return {
            what: frozenset(filter(None, self._connection.scalars(select(column).distinct())))
            for what, column in columns.items()
        }

    def events(self, job_id: str) -> Sequence[Event]:
        """A job's stream, in order."""
        query = select(EVENT).where(EVENT.c.job_id == job_id).order_by(EVENT.c.seq)
        return [_event_from_row(row) for row in self._connection.execute(query)]

    def entries(self, job_id: str | None = None) -> Sequence[Entry]:
        """The ledger, or one job's part of it, in posting order."""
        return ledger.read(self._connection, job_id)

    def balance(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """What a job's entries come to, by kind of money."""
        return ledger.balance(self._connection, job_id)

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """What counts as spent under that budget for the half-open time, entries that straddle an edge pro rata."""
        return ledger_sums.spent(self._connection, budget, start, end)

    def kept_sums(self) -> Mapping[tuple[str, int, int], int]:
        """The sums that `spent` goes by, so that they can be compared."""
        return ledger_sums.kept(self._connection)

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]:
        """The holds not yet settled or released that count under that budget."""
        return ledger.open_holds(self._connection, budget)

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[HeldMoney]:
        """What those holds come to: in one sum what is meant to last no longer than ``until``, the others singly."""
        return ledger.held(self._connection, budget, until)

    def charges(self, provider: str | None = None) -> Sequence[Charge]:
        """Every charge, or a provider's, oldest first."""
        from broker.store import charges  # most commands do without

        return charges.read(self._connection, provider)

    def standing_grants(self) -> Sequence[StandingGrant]:
        """Every standing grant, oldest first, with what the jobs that use it have spent and hold."""
        return approvals.standing(self._connection)

    def standing_share(self, number: int, job_id: str) -> Money:
        """What of a standing grant's use is this job's; zero for one that does not use it."""
        return approvals.share(self._connection, number, job_id)

    def asked_about(self, limit: int) -> Sequence[str]:
        """The jobs for which an approval was asked or answered, those of the newest word first."""
        return approvals.asked_about(self._connection, limit)

    def undecided(self) -> Sequence[JobView]:
        """Every job about which something was asked that nobody has answered yet, the oldest job first."""
        views = (_view_from_json(text) for text in approvals.maybe_asking(self._connection))
        return [view for view in views if view.asked is not None]

    def policy_number(self) -> int:
        """The number of the policy version in force; 0 when none was ever activated."""
        return policies.number(self._connection)

    def active_policy(self) -> PolicyVersion | None:
        """The policy set in force; None when none was ever activated."""
        return policies.active(self._connection)

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """Every attempt whose machine may still exist, requested ones included."""
        return live.attempts(self._connection, _view_from_json)

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        """The prices observed for the offer's pool and source: the one in force at ``start``, then each change."""
        return market.price_series(self._connection, offer, start, end)

    def offers(self, query: OfferQuery) -> list[Offer]:
        """The current offers that match, unavailable ones included.

        ``query.count`` is the least number of accelerators; ``"cpu"`` among the accelerators means machines without
        one. Reference prices for which a live one is known are not current.
        """
        return market.offers(self._connection, query)

    def count_offers(self) -> int:
        """How many offers are current."""
        return market.count_offers(self._connection)

    def rejected_in_sql(self, query: OfferQuery, *, simulated: bool = False) -> Mapping[Reason, int]:
        """Why the current offers that `offers` leaves out were left out, counted (``max_price`` is not looked at)."""
        return market.rejected_in_sql(self._connection, query, simulated=simulated)

    def decisions(
        self, *, job_id: str | None = None, since: datetime | None = None, limit: int | None = None
    ) -> Sequence[Decision]:
        """Decisions kept, or one job's, or those from a time (UTC) on; newest first."""
        query = select(DECISION).order_by(DECISION.c.id.desc()).limit(limit)
        if since is not None:
            query = query.where(DECISION.c.at >= to_micros(since))
        if job_id is not None:
            query = query.where(DECISION.c.job_id == job_id)
        return [_decision_from_row(row) for row in self._connection.execute(query)]

    def judged_by(self, job_id: str) -> str | None:
        """The version of the policies that judged the job last, whether it may go on left out; None where none did. A
        small part of what `decisions` reads."""
        query = select(DECISION.c.policy_version).order_by(DECISION.c.id.desc()).limit(1)
        others = DECISION.c.action != ActionKind.CONTINUE.value
        return self._connection.scalar(query.where(DECISION.c.job_id == job_id, others))


class StoreWriting(StoreReading):
    """A transaction: `broker.launch.journal.Writing`."""

    def append(self, job_id: str, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
        """Append events to a job's stream, fold them, store and return the new view.

        Raises `ImpossibleSequence`, and ValueError for no events at all; then nothing of the transaction is kept.
        """
        if not items:
            raise ValueError("nothing to append")
        # Whether a new job is there already shows when its events are written: one question less while all others wait.
        before = after = None if isinstance(items[0][1], Submitted) else self.job(job_id)
        rows = []
        for seq, (attempt, body) in enumerate(items, start=before.seq + 1 if before else 1):
            text = body_to_json(body)
            # What is folded is what a reader will find, not what was passed in: so rebuilding gives the same.
            row = {"job_id": job_id, "seq": seq, "attempt": attempt, "at": to_micros(at), "kind": body.kind}
            after = advance(after, Event(job_id, seq, from_micros(to_micros(at)), attempt, body_from_json(text)))
            rows.append({**row, "body": text})
        assert after is not None
        try:
            self._connection.execute(EVENT.insert(), rows)
        except IntegrityError as error:
            if before is not None:
                raise
            raise ImpossibleSequence(Event(job_id, 1, at, *items[0]), "the job has been submitted before") from error
        if before is None:
            self._connection.execute(JOB.insert(), _job_row(after))
        else:
            self._connection.execute(JOB.update().where(JOB.c.id == job_id).values(_job_row(after)))
        return after

    def post(self, entries: Sequence[Entry]) -> None:
        """Post ledger entries. A movement id that exists already is refused with ValueError."""
        ledger.post(self._connection, entries)

    def record(self, decision: Decision) -> None:
        """Keep a decision."""
        body = {"verdicts": decision.verdicts, "seen": dict(decision.seen)}
        row = {
            "at": to_micros(decision.at),
            "action": decision.action.value,
            "user_name": decision.user,
            "job_name": decision.job_name,
            "job_id": decision.job_id,
            "attempt": decision.attempt,
            "pool": decision.pool,
            "answer": decision.answer.value,
            "policy_version": decision.policy_version,
            "facts_hash": decision.facts_hash,
            "body": _anything().dump_json(body).decode(),
        }
        self._connection.execute(DECISION.insert(), row)

    def use_standing(self, number: int, job_id: str) -> None:
        """Count what the job holds and spends against a standing grant from now on. Twice is once."""
        approvals.use(self._connection, number, job_id)

    def give_standing(self, grant: StandingGrant) -> StandingGrant:
        """Put a standing grant on record and return it with its number."""
        return approvals.give(self._connection, grant)

    def revoke_standing(self, number: int, *, by: str, at: datetime) -> StandingGrant:
        """Take a standing grant back. Raises `UnknownName` when there is none of that number."""
        return approvals.revoke(self._connection, number, by=by, at=at)

    def rebuild(self) -> int:
        """Make every projection anew from events and entries; returns the number of jobs."""
        ledger.rebuild(self._connection)
        self._connection.execute(JOB.delete())
        job_ids = list(self._connection.scalars(select(EVENT.c.job_id).distinct()))
        for job_id in job_ids:
            self._connection.execute(JOB.insert().values(_job_row(fold(self.events(job_id)))))
        return len(job_ids)


@cache
def _views() -> TypeAdapter[JobView]:
    return TypeAdapter(JobView)


@cache
def _verdicts() -> TypeAdapter[tuple[Verdict, ...]]:
    return TypeAdapter(tuple[Verdict, ...])


@cache
def _anything() -> TypeAdapter[Any]:
    return TypeAdapter(Any)


def _view_from_json(text: str) -> JobView:
    return _views().validate_json(text)


def _job_row(view: JobView) -> dict[str, object]:
    return {
        "id": view.id,
        "name": view.job.name,
        "user_name": view.user,
        "team": view.job.team,
        "project": view.job.project,
        "state": view.state.value,
        "closed": view.closed,
        "submitted_at": to_micros(view.submitted_at),
        "view": _views().dump_json(view).decode(),
        "live": live.to_text(view),
    }


def _event_from_row(row: Any) -> Event:
    return Event(row.job_id, row.seq, from_micros(row.at), row.attempt, body_from_json(row.body))


def _decision_from_row(row: Any) -> Decision:
    body = json.loads(row.body)
    return Decision(
        at=from_micros(row.at),
        action=ActionKind(row.action),
        user=row.user_name,
        job_name=row.job_name,
        answer=Answer(row.answer),
        policy_version=row.policy_version,
        facts_hash=row.facts_hash,
        job_id=row.job_id,
        attempt=row.attempt,
        pool=row.pool,
        verdicts=_verdicts().validate_python(body["verdicts"]),
        seen=body["seen"],
    )
