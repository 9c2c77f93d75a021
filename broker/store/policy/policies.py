"""The versions of the policy set, with person and time of activation, and the recorded decisions. Every function works
inside the caller's transaction."""

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, func, insert, select

from broker.core.errors import Conflict
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer, Verdict
from broker.ledger.journal import Judgement
from broker.store.engine.fields import from_micros, to_micros, value_of
from broker.store.engine.statements import insert_rows
from broker.store.records import PolicyVersion
from broker.store.schema.policy import DecisionRow, PolicySetRow

_NUMBER = select(func.max(PolicySetRow.number))


def active(connection: Connection) -> PolicyVersion | None:
    """The policy set in force; None if none was ever activated."""
    row = connection.execute(select(PolicySetRow).order_by(PolicySetRow.number.desc()).limit(1)).first()
    return None if row is None else _version(row)


def number(connection: Connection) -> int:
    """The number of the policy version in force; 0 if none was ever activated."""
    return connection.scalar(_NUMBER) or 0


def check_base(connection: Connection, base: int) -> None:
    """Raises `InvalidInput` if another version than ``base`` is in force."""
    current = number(connection)
    if current != base:
        raise Conflict(
            f"version {current} is active, not {base}: the policy was changed meanwhile",
            where="base",
            hint="check the effect again",
        )


def history(connection: Connection) -> list[PolicyVersion]:
    """Every policy version, newest first."""
    return [_version(row) for row in connection.execute(select(PolicySetRow).order_by(PolicySetRow.number.desc()))]


def activate(connection: Connection, files: Mapping[str, str], *, by: str, at: datetime, note: str) -> PolicyVersion:
    """Activate a set of files. If that set is in force already, returns its version and records nothing."""
    text = json.dumps(dict(files), sort_keys=True, ensure_ascii=False)
    digest = sha256(text.encode()).hexdigest()
    current = active(connection)
    if current is not None and current.sha256 == digest:
        return current
    number = current.number + 1 if current else 1
    row = {"number": number, "activated_at": to_micros(at), "activated_by": by, "sha256": digest}
    connection.execute(insert(PolicySetRow).values(**row, files=text, note=note))
    return PolicyVersion(number, from_micros(to_micros(at)), by, digest, dict(files), note)


def _version(row: Any) -> PolicyVersion:
    return value_of(PolicyVersion, row, by=row.activated_by)


log = logging.getLogger(__name__)
_NEWEST_FIRST = DecisionRow.id.desc()
_OF_STARTS = DecisionRow.action != ActionKind.CONTINUE.value


def record_decisions(connection: Connection, *decisions: Decision) -> None:
    if decisions:
        insert_rows(connection, DecisionRow, [_row(decision) for decision in decisions])


def _row(decision: Decision) -> dict[str, object]:
    body = {"verdicts": decision.verdicts, "seen": dict(decision.seen)}
    return {
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
        "body": _any_adapter().dump_json(body).decode(),
    }


def decisions(
    connection: Connection,
    *,
    job_id: str | None = None,
    action: ActionKind | None = None,
    answer: Answer | None = None,
    since: datetime | None = None,
    limit: int | None = None,
) -> list[Decision]:
    """The decisions that match all arguments, newest first. ``since``: UTC. Decisions that this version cannot read are
    logged and omitted."""
    query = select(DecisionRow).order_by(_NEWEST_FIRST).limit(limit)
    if since is not None:
        query = query.where(DecisionRow.at >= to_micros(since))
    if job_id is not None:
        query = query.where(DecisionRow.job_id == job_id)
    if action is not None:
        query = query.where(DecisionRow.action == action.value)
    if answer is not None:
        query = query.where(DecisionRow.answer == answer.value)
    return list(_readable_decisions(connection, query))


def judged_by(connection: Connection, job_id: str) -> str | None:
    """The version of the policies that judged the job last, without judgments of running attempts; None if none did.

    Reads far less than `read`.
    """
    query = select(DecisionRow.policy_version).where(DecisionRow.job_id == job_id, _OF_STARTS)
    return connection.scalar(query.order_by(_NEWEST_FIRST).limit(1))


def last_judged(connection: Connection, job_id: str, attempt: int) -> Judgement | None:
    """The last judgment of that attempt's start, not of the running attempt; None if unknown."""
    of_start = (DecisionRow.job_id == job_id, DecisionRow.attempt == attempt, _OF_STARTS)
    query = select(DecisionRow.at, DecisionRow.policy_version, DecisionRow.answer).where(*of_start)
    row = connection.execute(query.order_by(_NEWEST_FIRST).limit(1)).first()
    return None if row is None else Judgement(from_micros(row.at), row.policy_version, Answer(row.answer))


def _readable_decisions(connection: Connection, query: Any) -> Iterator[Decision]:
    for row in connection.execute(query):
        try:
            yield _decision(row)
        except ValueError as error:  # written by a newer version with actions, answers or verdicts unknown to this one
            log.warning("decision %s cannot be read and is skipped: %s", row.id, error)


def _decision(row: Any) -> Decision:
    body = json.loads(row.body)
    verdicts = _verdicts().validate_python(body["verdicts"])
    return value_of(Decision, row, user=row.user_name, verdicts=verdicts, seen=body["seen"])


@cache
def _verdicts() -> TypeAdapter[tuple[Verdict, ...]]:
    return TypeAdapter(tuple[Verdict, ...])


@cache
def _any_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Any)
