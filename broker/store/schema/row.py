"""What all tables share: their base class, the types of their columns, their partial indexes, and the triggers of
tables that only grow.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    TextClause,
    UniqueConstraint,
    event,
    false,
)
from sqlalchemy.orm import Mapped, declared_attr
from sqlmodel import Field, SQLModel

# SQLModel reads ``name: Column[str]`` as ``name: str``. A type checker reads SQLAlchemy's `Mapped`, so that it knows
# ``JobRow.name`` as a column of texts and ``row.name`` as a text. A column with a `Field` of its own states its type
# there, as that replaces the one of `BigInt`.
if TYPE_CHECKING:
    Column = Mapped
    BigInt = Column[int]
    OptionalBigInt = Column[int | None]
else:
    Value = TypeVar("Value")
    Column = Annotated[Value, "a column"]
    BigInt = Annotated[int, Field(sa_type=BigInteger)]
    OptionalBigInt = Annotated[int | None, Field(sa_type=BigInteger)]

# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
ID: Final[Any] = BigInteger().with_variant(Integer, "sqlite")
STORE_NUMBERED: Final = {"autoincrement": False}  # of a key that the store itself numbers
WITHOUT_ROWID: Final = {"sqlite_with_rowid": False}  # the table is its primary key's index: one search, not two


class Row(SQLModel):
    """Base of all rows; `AuditLogRow` is a row of the table ``audit_log``. Rows are never validated, so pydantic's
    validators are not built."""

    model_config = {"defer_build": True}

    @declared_attr.directive
    def __tablename__(cls) -> str:  # called with the class
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


def columns_of(table: type[Row], *names: str) -> tuple[Any, ...]:
    return tuple(getattr(table, name) for name in names)


def table_of(row: type[Row]) -> Table:
    """The table of a class, for statements that name its columns."""
    return row.metadata.tables[str(row.__tablename__)]


def partial_index(name: str, *columns: Any, where: ColumnElement[bool] | TextClause) -> None:
    """Add an index of the rows for which the condition holds. Both databases use it only for queries that repeat its
    condition, without parameters."""
    Index(name, *columns, sqlite_where=where, info={"postgresql_where": where})


def prefix_index(name: str, column: Any) -> None:
    """Add an index for the beginnings of texts. Only PostgreSQL needs it, as its order of texts depends on the locale;
    on SQLite it has no rows."""
    Index(name, column, sqlite_where=false(), info={"postgresql_ops": {column.key: "text_pattern_ops"}})


@event.listens_for(SQLModel.metadata, "before_create")
def _name_postgresql(metadata: MetaData, *_: Any, **__: Any) -> None:
    """Name what is for PostgreSQL only now, as naming it imports that dialect and asyncio, for a tenth of the time of a
    short command."""
    for table in metadata.tables.values():
        for index in table.indexes:
            index.dialect_kwargs.update(index.info)


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
