"""The tables that commands load are those that the row classes define."""

from __future__ import annotations

from broker.store.tables.columns import COLUMNS
from broker.store.tables.plain import plain
from tests.store.plain_columns import columns, every_table


def test_the_columns_are_those_of_the_classes() -> None:
    assert columns() == COLUMNS, "run python -m tests.store.plain_columns"


def test_plain_tables_have_the_types_and_keys_of_the_classes() -> None:
    for name, table in every_table().tables.items():
        # SQLAlchemy types a default without the `arg` that a plain value has.
        found, wanted = (
            [(c.name, str(c.type), c.primary_key, c.default and c.default.arg) for c in one.columns]  # type: ignore[attr-defined]
            for one in (plain(name), table)
        )
        assert found == wanted, name
