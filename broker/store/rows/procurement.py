"""The rows of `broker.store.tables.procurement`."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field

from broker.store.rows.row import Row


class HoldingRow(Row, table=True):
    """Paid or committed capacity: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly`` per hour.
    ``proof``: SHA-256 of its document, or empty. ``removed_at``: when the record was removed."""

    __tablename__: ClassVar[str] = "holding"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    kind: str
    accelerator: str
    gpus: int
    provider: str
    site: str
    starts: int = Field(sa_type=BigInteger)
    ends: int = Field(sa_type=BigInteger)
    upfront: int = Field(sa_type=BigInteger)
    hourly: int = Field(sa_type=BigInteger)
    watts: float
    note: str
    order_id: str = Field(sa_column_kwargs={"server_default": ""})
    proof: str = Field(sa_column_kwargs={"server_default": ""})
    added_at: int = Field(sa_type=BigInteger)
    added_by: str
    removed_at: int | None = Field(sa_type=BigInteger)
    removed_by: str


class HoldingProofRow(Row, table=True):
    """A document that proves a holding, such as an invoice, by its SHA-256 (hex)."""

    __tablename__: ClassVar[str] = "holding_proof"

    sha256: str = Field(primary_key=True)
    name: str
    content: bytes


class PurchaseRow(Row, table=True):
    """Projection of one purchase's events: ``view`` is the whole `Purchase` as JSON."""

    __tablename__: ClassVar[str] = "purchase"
    __table_args__ = (Index("purchase_open", "intended_at", sqlite_where=text("NOT closed")),)

    id: str = Field(primary_key=True)
    intended_at: int = Field(sa_type=BigInteger)
    closed: bool
    view: str


class PurchaseEventRow(Row, table=True):
    """One fact of a purchase. Append-only."""

    __tablename__: ClassVar[str] = "purchase_event"

    purchase_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    kind: str
    body: str


class PurchaseQuoteRow(Row, table=True):
    """One quote: a `CapacityQuote` as JSON."""

    __tablename__: ClassVar[str] = "purchase_quote"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    body: str
