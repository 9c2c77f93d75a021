"""The versions of the policy set, with person and time of activation."""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, func, insert, select

from broker.core.errors import InvalidInput
from broker.store.engine.fields import from_micros, to_micros, value_of
from broker.store.records import PolicyVersion
from broker.store.schema.policy import PolicySetRow

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
        raise InvalidInput(
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
