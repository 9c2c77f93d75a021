"""The rows of `broker.store.tables.setting`."""

from __future__ import annotations

from typing import ClassVar

from sqlmodel import Field

from broker.store.rows.row import Row


class SettingRow(Row, table=True):
    """Settings of this store."""

    __tablename__: ClassVar[str] = "setting"

    key: str = Field(primary_key=True)
    value: str
