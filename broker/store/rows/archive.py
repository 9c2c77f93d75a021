"""The rows of `broker.store.tables.archive`."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Column
from sqlmodel import Field

from broker.store.rows.row import ID, Row


class ArchiveFileRow(Row, table=True):
    """One file of the archive. ``kind``: a `broker.store.records.ArchiveKind`; ``path``: within the run store;
    ``digest``: SHA-256 of its content; ``size``: bytes; ``since``, ``until``: the earliest and the latest time in it
    (of events: of their jobs' ends); ``first_series``, ``last_series``: of prices and signals; ``before``:
    their cut-off; ``runs``: the URL of the run store."""

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
    runs: str = ""
    before: int | None = Field(sa_type=BigInteger)


class ArchiveIntentRow(Row, table=True):
    """A file that is to be written. Its row goes as the file is put on record. ``abandoned``: whoever wrote it ended;
    the file is being deleted, and may not be put on record any more."""

    __tablename__: ClassVar[str] = "archive_intent"

    path: str = Field(primary_key=True)
    runs: str
    at: int = Field(sa_type=BigInteger)
    abandoned: bool = False


class ArchivedJobRow(Row, table=True):
    """A closed job of whose events some are in a file. Only such events may be deleted: a trigger looks here."""

    __tablename__: ClassVar[str] = "archived_job"

    job_id: str = Field(primary_key=True)
    file: int = Field(sa_type=BigInteger, foreign_key="archive_file.number")
