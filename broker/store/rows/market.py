"""The rows of `broker.store.tables.market`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, SmallInteger, UniqueConstraint, text
from sqlmodel import Field

from broker.store.rows.row import ID, Row


class PollRunRow(Row, table=True):
    """One poll of one provider. ``status``: a `broker.store.records.PollStatus`; ``gone``: the number of offers it
    ended; ``samples``: details of skipped rows, as JSON by reason."""

    __table_args__ = (
        Index("poll_run_provider", "provider", "finished"),
        Index("poll_run_started", "provider", "started"),
        Index("poll_run_newest", "provider", "id"),
    )

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=True))
    provider: str
    started: int = Field(sa_type=BigInteger)
    finished: int = Field(sa_type=BigInteger)
    seen: int
    changed: int
    complete: bool
    skipped: str
    error: str
    status: str = Field(default="ok", sa_column_kwargs={"server_default": "ok"})
    hint: str = Field(default="", sa_column_kwargs={"server_default": ""})
    gone: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    samples: str = Field(default="{}", sa_column_kwargs={"server_default": "{}"})


class PriceAcceptanceRow(Row, table=True):
    """One resolution of doubts by a person. ``what``: the offers, as JSON: ids with the doubt and price (micro-dollars)
    of each; ``ended``: the number of missing ones that ended."""

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    accepted_by: str
    provider: str
    ended: int
    what: str
    note: str


class PoolRow(Row, table=True):
    """One pool. ``accelerator`` is empty for machines without one; ``key`` is `Offer.pool`."""

    __table_args__ = (
        UniqueConstraint("key", name="pool_key"),
        Index("pool_machine", "accelerator", "count"),
        Index("pool_place", "provider", "region", "instance_type"),
    )

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=False))
    key: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str
    count: int
    capacity_type: str
    term_months: int | None


class OfferRow(Row, table=True):
    """The current offer of one source for one pool; its id is the price series' id. ``polled_by``: the adapter that
    reports it; ``run``: the last poll that reported it; ``changed_at``: of its newest ``price_change``; ``ended_at``:
    since when it is no longer reported; ``superseded``: a reference price for which a live one is known;
    ``signalled_at``: of its newest ``signal_change``; ``doubt``: a `Doubt`, with its figures in ``doubt_detail``;
    ``trusted``: while the price is in doubt, the last one that was not. ``accelerator``, ``count``: of its pool, for
    the index of prices."""

    __table_args__ = (
        UniqueConstraint("pool_id", "source", name="offer_source"),
        Index("offer_polled_by", "polled_by"),
        Index("offer_by_price", "accelerator", "count", "micros", "id", sqlite_where=text("ended_at IS NULL")),
    )

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=False))
    pool_id: int = Field(sa_type=BigInteger, foreign_key="pool.id")
    source: str
    polled_by: str
    run: int = Field(sa_type=BigInteger)
    as_of: int = Field(sa_type=BigInteger)
    changed_at: int = Field(sa_type=BigInteger)
    ended_at: int | None = Field(sa_type=BigInteger)
    superseded: bool
    micros: int | None = Field(sa_type=BigInteger)
    availability: str
    unavailable_because: str
    score: float | None
    interruption_rate: float | None
    slots: int | None
    amortised: int | None = Field(sa_type=BigInteger)
    cpus: float | None
    memory_gib: float | None
    interconnect: str | None
    engine: str | None
    money: str
    reference: bool
    bill_minimum: int = Field(sa_type=BigInteger)
    bill_granularity: int = Field(sa_type=BigInteger)
    bill_free_within: int = Field(sa_type=BigInteger)
    max_age: int | None = Field(sa_type=BigInteger)
    signalled_at: int | None = Field(sa_type=BigInteger)
    doubt: str | None = None
    doubt_detail: str = Field(default="", sa_column_kwargs={"server_default": ""})
    trusted: int | None = Field(default=None, sa_type=BigInteger)
    accelerator: str = Field(default="", sa_column_kwargs={"server_default": ""})
    count: int = Field(default=0, sa_column_kwargs={"server_default": "0"})


class PriceChangeRow(Row, table=True):
    """One change of an offer's price or availability, in force from ``at`` until the next of its series. ``learned``:
    when it became known, if after ``at``. ``availability``: a code of `broker.store.market.polls.CODES`. Few columns: a
    year of a large market has some thirty million rows."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    micros: int | None = Field(sa_type=BigInteger)
    availability: int = Field(sa_type=SmallInteger)
    learned: int | None = Field(sa_type=BigInteger)


class SignalChangeRow(Row, table=True):
    """One change of the provider's score and interruptions per hour of an offer."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    score: float | None
    interruption_rate: float | None


class KeptAnswerRow(Row, table=True):
    """A document that polls need not read again: a `broker.core.market.kept_answers.KeptAnswer`. ``at``: when it was
    read; ``version``: of the gpubroker that made the content; ``digest``: SHA-256 of the content."""

    provider: str = Field(primary_key=True)
    address: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)
    version: str
    etag: str
    last_modified: str
    digest: str
    content: bytes


class HoldingRow(Row, table=True):
    """Paid or committed capacity: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly`` per hour.
    ``proof``: SHA-256 of its document, or empty. ``removed_at``: when the record was removed."""

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

    sha256: str = Field(primary_key=True)
    name: str
    content: bytes


class PurchaseRow(Row, table=True):
    """Projection of one purchase's events: ``view`` is the whole `Purchase` as JSON."""

    __table_args__ = (Index("purchase_open", "intended_at", sqlite_where=text("NOT closed")),)

    id: str = Field(primary_key=True)
    intended_at: int = Field(sa_type=BigInteger)
    closed: bool
    view: str


class PurchaseEventRow(Row, table=True):
    """One fact of a purchase. Append-only."""

    purchase_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    kind: str
    body: str


class PurchaseQuoteRow(Row, table=True):
    """One quote: a `CapacityQuote` as JSON."""

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    body: str


class PriceWatchRow(Row, table=True):
    """One watch on prices. ``body``: a `broker.core.market.watches.Watch` as JSON; ``state``: its `WatchState`, also
    compared to detect concurrent changes."""

    name: str = Field(primary_key=True)
    body: str
    state: str


class NoticeRow(Row, table=True):
    """One notice to one target (the name of a setting, never an address). ``next_try`` is set while it is to be sent;
    ``tries`` counts the attempts, the one under way included. ``thread``: the incident that it belongs to."""

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
