"""Logins of programs, by the hash of their own code or by the code that a person enters."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from broker.core.access.device_logins import DeviceLogin
from broker.core.access.permissions import TokenScope
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.access import DEVICE_LOGIN


def of_program(connection: Connection, digest: str) -> DeviceLogin | None:
    """The login with that hash of the program's code; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.digest == digest)).first()
    return None if row is None else _login(row)


def of_person(connection: Connection, user_code: str) -> DeviceLogin | None:
    """The login with that code for people; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.user_code == user_code)).first()
    return None if row is None else _login(row)


def count(connection: Connection) -> int:
    """The number of stored logins."""
    return connection.scalar(select(func.count()).select_from(DEVICE_LOGIN)) or 0


def keep(connection: Connection, login: DeviceLogin) -> None:
    """Store the login; replaces an earlier record."""
    end(connection, login.digest)
    connection.execute(
        DEVICE_LOGIN.insert().values(
            digest=login.digest,
            user_code=login.user_code,
            client=login.client,
            address=login.address,
            scopes=json.dumps(sorted(login.scopes)),
            made_at=to_micros(login.made_at),
            ends_at=to_micros(login.ends_at),
            asked_at=None if login.asked_at is None else to_micros(login.asked_at),
            person=login.person,
            granted=login.granted,
        )
    )


def end(connection: Connection, digest: str) -> None:
    """Delete the login."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.digest == digest))


def end_expired(connection: Connection, now: datetime) -> None:
    """Delete logins that are over."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.ends_at <= to_micros(now)))


def _login(row: Any) -> DeviceLogin:
    return DeviceLogin(
        digest=row.digest,
        user_code=row.user_code,
        client=row.client,
        address=row.address,
        scopes=frozenset(TokenScope(name) for name in json.loads(row.scopes)),
        made_at=from_micros(row.made_at),
        ends_at=from_micros(row.ends_at),
        asked_at=None if row.asked_at is None else from_micros(row.asked_at),
        person=row.person,
        granted=row.granted,
    )
