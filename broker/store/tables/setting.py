"""The table of settings of a store."""

from __future__ import annotations

from typing import ClassVar

from sqlmodel import Field

from broker.store.tables.rows import Row, table_of


class SettingRow(Row, table=True):
    """Settings of this store."""

    __tablename__: ClassVar[str] = "setting"

    key: str = Field(primary_key=True)
    value: str


SETTING = table_of(SettingRow)
