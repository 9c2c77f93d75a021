"""Logins of programs, by the hash of their own code or by the code that a person enters."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select

from broker.core.access.device_logins import DeviceLogin
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.tables.access import DEVICE_LOGIN


def of_program(connection: Connection, digest: str) -> DeviceLogin | None:
    """The login with that hash of the program's code; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.digest == digest)).first()
    return None if row is None else value_of(DeviceLogin, row)


def of_person(connection: Connection, user_code: str) -> DeviceLogin | None:
    """The login with that code for people; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.user_code == user_code)).first()
    return None if row is None else value_of(DeviceLogin, row)


def count(connection: Connection) -> int:
    """The number of stored logins."""
    return connection.scalar(select(func.count()).select_from(DEVICE_LOGIN)) or 0


def keep(connection: Connection, login: DeviceLogin) -> None:
    """Store the login; replaces an earlier record."""
    end(connection, login.digest)
    connection.execute(DEVICE_LOGIN.insert().values(columns_of(DEVICE_LOGIN, login)))


def end(connection: Connection, digest: str) -> None:
    """Delete the login."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.digest == digest))


def end_expired(connection: Connection, now: datetime) -> None:
    """Delete logins that are over."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.ends_at <= to_micros(now)))
