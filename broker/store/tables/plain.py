"""The tables as `broker.store.rows` defines them, built from a list of their columns: without classes, foreign keys or
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


def _column(text: str) -> Column[object]:
    """A column from ``NAME:TYPE!=DEFAULT``: text if no type is given, ``!`` if in the primary key; the database assigns
    ``id``.
    """
    text, _, default = text.partition("=")
    name, _, kind = text.rstrip("!").partition(":")
    return Column(
        name,
        _TYPES[kind](),
        primary_key=text.endswith("!"),
        autoincrement=kind == "id",
        default=_DEFAULTS[default] if default else None,
    )


_DEFAULTS = {"0": 0, "''": "", "false": False, "ok": "ok", "{}": "{}"}
