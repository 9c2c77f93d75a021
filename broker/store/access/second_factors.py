"""Second factors of people."""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from broker.core.access.second_factors import SecondFactor
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.access import SECOND_FACTOR


def read(connection: Connection, person: str) -> SecondFactor | None:
    """The person's second factor, also one that is not confirmed; None without one."""
    row = connection.execute(select(SECOND_FACTOR).where(SECOND_FACTOR.c.person == person)).first()
    if row is None:
        return None
    confirmed = None if row.confirmed_at is None else from_micros(row.confirmed_at)
    return SecondFactor(
        row.person, row.sealed, from_micros(row.made_at), confirmed, row.step, tuple(json.loads(row.recovery))
    )


def keep(connection: Connection, factor: SecondFactor) -> None:
    """Store the second factor; replaces an earlier one."""
    drop(connection, factor.person)
    connection.execute(
        SECOND_FACTOR.insert().values(
            person=factor.person,
            sealed=factor.sealed,
            made_at=to_micros(factor.made_at),
            confirmed_at=None if factor.confirmed_at is None else to_micros(factor.confirmed_at),
            step=factor.step,
            recovery=json.dumps(factor.recovery),
        )
    )


def drop(connection: Connection, person: str) -> None:
    """Delete the person's second factor."""
    connection.execute(SECOND_FACTOR.delete().where(SECOND_FACTOR.c.person == person))
