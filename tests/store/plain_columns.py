"""Writes `broker.store.tables.columns` from the classes of `broker.store.rows`. Run after a change of theirs:
python -m tests.store.plain_columns
"""

from __future__ import annotations

import pkgutil
import subprocess
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Column, ColumnDefault, MetaData
from sqlmodel import SQLModel

from broker.store import rows

FILE = Path(rows.__file__).parents[1] / "tables" / "columns.py"
_TYPES = {
    "AutoString": "",
    "BigInteger": ":big",
    "Boolean": ":bool",
    "Float": ":float",
    "Integer": ":int",
    "LargeBinary": ":bytes",
    "SmallInteger": ":small",
}
_HEAD = '''"""The columns of all tables, for `broker.store.tables.plain`. Written by tests/store/plain_columns.py."""

from __future__ import annotations

COLUMNS = {
'''


def every_table() -> MetaData:
    """All tables that the code knows."""
    for group in pkgutil.iter_modules(rows.__path__):
        import_module(f"{rows.__name__}.{group.name}")
    return SQLModel.metadata


def column(of: Column[Any]) -> str:
    """As `broker.store.tables.plain` reads it."""
    kind = ":id" if of.autoincrement is True else _TYPES[type(of.type).__name__]
    default = ""
    if of.default is not None:
        assert isinstance(of.default, ColumnDefault), "a value"
        default = "=" + (str(of.default.arg).lower() or "''")
    return f"{of.name}{kind}{'!' if of.primary_key else ''}{default}"


def lines(of: str) -> str:
    """A text as literals of lines."""
    *before, last = textwrap.wrap(of, 105)
    return "".join(f'        "{line} "\n' for line in before) + f'        "{last}"\n'


def columns() -> dict[str, str]:
    """By table, as the classes have them."""
    return {table.name: " ".join(map(column, table.columns)) for table in every_table().tables.values()}


if __name__ == "__main__":
    told = "".join(f'    "{name}": (\n{lines(of)}    ),\n' for name, of in sorted(columns().items()))
    FILE.write_text(f"{_HEAD}{told}}}\n")
    subprocess.run(["ruff", "format", "--quiet", FILE], check=True)
