"""Kept sums of what was spent, the marks that budgets have passed, and what each job has running."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TAGS = ("money", "user_name", "team", "project", "workload", "environment")
_QUARTER = 900_000_000
_DAY = 96 * _QUARTER


def upgrade() -> None:
    """Add tables and fill the sums from the entries; what is stored stays as it is."""
    op.create_table(
        "spend_group",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("money", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=True) for name in _TAGS[2:]),
        sa.UniqueConstraint("key", name="spend_group_key"),
    )
    op.create_table(
        "spend_sum",
        sa.Column("size", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("group_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("slot", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "budget_mark",
        sa.Column("budget", sa.String(), primary_key=True),
        sa.Column("period_start", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("amount", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("mark", sa.String(), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.add_column("job", sa.Column("live", sa.String(), nullable=True))
    long = sa.text(f"account = 'spent' AND covers_to - covers_from > {_DAY}")
    op.create_index("ledger_entry_long", "ledger_entry", ["covers_to"], sqlite_where=long, postgresql_where=long)
    _fill()


def _fill() -> None:
    """As `broker.store.ledger.spent_sums` keeps them from now on."""
    connection = op.get_bind()
    query = f"SELECT {', '.join(_TAGS)}, account, micros, covers_from, covers_to FROM ledger_entry ORDER BY id"  # noqa: S608  # constants of this file
    groups: dict[tuple[Any, ...], int] = {}
    sums: dict[tuple[int, int, int], int] = defaultdict(int)
    for row in connection.execute(sa.text(query)):
        group = groups.setdefault(tuple(row[: len(_TAGS)]), len(groups) + 1)
        length = row.covers_to - row.covers_from
        if row.account != "spent" or length > _DAY:
            continue
        for size in (_QUARTER, _DAY):
            first = row.covers_from // size
            last = max((row.covers_to - 1) // size, first)
            before = 0
            for slot in range(first, last + 1):
                until = (
                    row.micros if slot == last else _round(row.micros * ((slot + 1) * size - row.covers_from), length)
                )
                sums[size, group, slot] += until - before
                before = until
    for tags, number in groups.items():
        names = dict(zip(_TAGS, tags, strict=True))
        connection.execute(
            sa.text(
                f"INSERT INTO spend_group (id, key, {', '.join(_TAGS)})"  # noqa: S608  # constants of this file
                f" VALUES (:id, :key, {', '.join(f':{name}' for name in _TAGS)})"
            ),
            {"id": number, "key": _key(tags), **names},
        )
    rows = [{"s": size, "g": group, "t": slot, "m": micros} for (size, group, slot), micros in sums.items()]
    if rows:
        insert = "INSERT INTO spend_sum (size, group_id, slot, micros) VALUES (:s, :g, :t, :m)"
        connection.execute(sa.text(insert), rows)
    if groups and connection.dialect.name == "postgresql":
        connection.execute(
            sa.text("SELECT setval(pg_get_serial_sequence('spend_group', 'id'), :n)"), {"n": len(groups)}
        )


def _key(tags: tuple[Any, ...]) -> str:
    import json

    return json.dumps(tags, separators=(",", ":"))


def _round(numerator: int, denominator: int) -> int:
    """Half-even, as money is rounded everywhere."""
    quotient, remainder = divmod(numerator, denominator)
    return quotient + (2 * remainder > denominator or (2 * remainder == denominator and quotient % 2 == 1))
