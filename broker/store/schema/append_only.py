"""Tables that only grow: triggers refuse every other change, whichever program attempts it."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, UniqueConstraint, event

from broker.store.schema.row import Row, table_of


def append_only(table: type[Row]) -> None:
    """Let the database refuse changes and deletions of the table's rows."""
    event.listen(table_of(table), "after_create", _protect)


def _protect(table: Table, connection: Connection, **_: Any) -> None:
    statements = _for_sqlite if connection.dialect.name == "sqlite" else _for_postgresql
    for statement in statements(table):
        connection.exec_driver_sql(statement)


def _for_sqlite(table: Table) -> Iterator[str]:
    name = table.name
    refuse = f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
    yield f"CREATE TRIGGER {name}_no_update BEFORE UPDATE ON {name} {refuse}"
    yield f"CREATE TRIGGER {name}_no_delete BEFORE DELETE ON {name} {refuse}"
    # INSERT OR REPLACE deletes without firing delete triggers, unless the connection asked for recursive ones.
    keys = [
        table.primary_key,
        *(constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)),
    ]
    is_same = " OR ".join(" AND ".join(f"{column.name} = NEW.{column.name}" for column in key.columns) for key in keys)
    exists = f"SELECT 1 FROM {name} WHERE {is_same}"  # noqa: S608  # our own names
    yield f"CREATE TRIGGER {name}_no_replace BEFORE INSERT ON {name} WHEN EXISTS ({exists}) {refuse}"


def _for_postgresql(table: Table) -> Iterator[str]:
    name = table.name
    yield (
        f"CREATE FUNCTION {name}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{name} is append-only'; END $$"
    )
    yield (
        f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {name}_append_only()"
    )
