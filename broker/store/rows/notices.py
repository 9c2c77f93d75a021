"""The rows of `broker.store.tables.notices`."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field

from broker.store.rows.row import Row


class WatchRow(Row, table=True):
    """One watch on prices. ``body``: a `broker.core.market.watches.Watch` as JSON; ``state``: its `WatchState`, also
    compared to detect concurrent changes."""

    __tablename__: ClassVar[str] = "price_watch"

    name: str = Field(primary_key=True)
    body: str
    state: str


class NoticeRow(Row, table=True):
    """One notice to one target (the name of a setting, never an address). ``next_try`` is set while it is to be sent;
    ``tries`` counts the attempts, the one under way included. ``thread``: the incident that it belongs to."""

    __tablename__: ClassVar[str] = "notice"
    __table_args__ = (
        Index("notice_waiting", "next_try", sqlite_where=text("next_try IS NOT NULL")),
        Index("notice_begins", "key", sqlite_where=text("0")),  # for PostgreSQL, as ``job_id_begins``
        Index("notice_newest", "made_at", "key"),
        Index("notice_undelivered", "made_at", "key", sqlite_where=text("delivered_at IS NULL")),
    )

    key: str = Field(primary_key=True)
    target: str = Field(primary_key=True)
    title: str
    body: str
    severity: str
    made_at: int = Field(sa_type=BigInteger)
    tries: int
    next_try: int | None = Field(sa_type=BigInteger)
    delivered_at: int | None = Field(sa_type=BigInteger)
    error: str
    thread: str = Field(default="", sa_column_kwargs={"server_default": ""})
