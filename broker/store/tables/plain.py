"""The tables as `broker.store.rows` defines them, from a list of their columns: without classes, keys of others or
indexes, none of which a statement needs.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
)

from broker.store.tables.columns import COLUMNS

_TYPES = {
    "": String,
    "big": BigInteger,
    "bool": Boolean,
    "bytes": LargeBinary,
    "float": Float,
    "id": BigInteger,
    "int": Integer,
    "small": SmallInteger,
}


def plain(name: str) -> Table:
    """The table of that name."""
    return Table(name, MetaData(), *map(_column, COLUMNS[name].split()))


def _column(told: str) -> Column[object]:
    """A column of ``NAME:TYPE!=DEFAULT``: a text without a type, ``!`` in the primary key; ``id`` is given by the
    database."""
    told, _, default = told.partition("=")
    name, _, kind = told.rstrip("!").partition(":")
    return Column(
        name,
        _TYPES[kind](),
        primary_key=told.endswith("!"),
        autoincrement=kind == "id",
        default=_DEFAULTS[default] if default else None,
    )


_DEFAULTS = {"0": 0, "''": "", "false": False, "ok": "ok", "{}": "{}"}
