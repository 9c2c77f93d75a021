"""The rows of `broker.store.tables.archive`."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Column
from sqlmodel import Field

from broker.store.rows.row import ID, Row


class ArchiveFileRow(Row, table=True):
    """One file of the archive. ``kind``: a `broker.store.records.ArchiveKind`; ``path``: within the run store;
    ``digest``: SHA-256 of its content; ``size``: bytes; ``since``, ``until``: the earliest and the latest time in it
    (of events: of their jobs' ends); ``first_series``, ``last_series``: of prices and signals."""

    __tablename__: ClassVar[str] = "archive_file"

    number: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=True))
    kind: str
    path: str
    digest: str
    rows: int = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)
    since: int = Field(sa_type=BigInteger)
    until: int = Field(sa_type=BigInteger)
    first_series: int | None = Field(sa_type=BigInteger)
    last_series: int | None = Field(sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)


class ArchivedJobRow(Row, table=True):
    """A closed job of whose events some are in a file. Only such events may be deleted: a trigger looks here."""

    __tablename__: ClassVar[str] = "archived_job"

    job_id: str = Field(primary_key=True)
    file: int = Field(sa_type=BigInteger, foreign_key="archive_file.number")
