"""Second factors of people."""

from __future__ import annotations

from sqlalchemy import Connection, select

from broker.core.access.second_factors import SecondFactor
from broker.store.engine.fields import columns_of, value_of
from broker.store.tables.access import SECOND_FACTOR


def read(connection: Connection, person: str) -> SecondFactor | None:
    """The person's second factor, also one that is not confirmed; None without one."""
    row = connection.execute(select(SECOND_FACTOR).where(SECOND_FACTOR.c.person == person)).first()
    return None if row is None else value_of(SecondFactor, row)


def keep(connection: Connection, factor: SecondFactor) -> None:
    """Store the second factor; replaces an earlier one."""
    drop(connection, factor.person)
    connection.execute(SECOND_FACTOR.insert().values(columns_of(SECOND_FACTOR, factor)))


def drop(connection: Connection, person: str) -> None:
    """Delete the person's second factor."""
    connection.execute(SECOND_FACTOR.delete().where(SECOND_FACTOR.c.person == person))
