"""The market: polls, the documents that they read, offers, their prices and availability, acceptances of suspicious
offers; capacity that is owned, reserved or bought; watches on prices, and alerts to deliver.
"""

from sqlalchemy import BigInteger, Index, SmallInteger, UniqueConstraint
from sqlmodel import Field

from broker.store.schema.row import (
    ID,
    STORE_NUMBERED,
    WITHOUT_ROWID,
    BigInt,
    Column,
    OptionalBigInt,
    Row,
    append_only,
    partial_index,
    prefix_index,
)


class PollRunRow(Row, table=True):
    """One poll of one provider. ``status``: a `broker.store.records.PollStatus`; ``gone``: the number of offers it
    ended; ``samples``: details of skipped rows, as JSON by reason."""

    __table_args__ = (
        Index("poll_run_provider", "provider", "finished"),
        Index("poll_run_started", "provider", "started"),
        Index("poll_run_newest", "provider", "id"),
    )

    id: Column[int] = Field(primary_key=True, sa_type=ID)
    provider: Column[str]
    started: BigInt
    finished: BigInt
    seen: Column[int]
    changed: Column[int]
    complete: Column[bool]
    skipped: Column[str]
    error: Column[str]
    status: Column[str] = Field(default="ok")
    hint: Column[str] = Field(default="")
    gone: Column[int] = Field(default=0)
    samples: Column[str] = Field(default="{}")


class PriceAcceptanceRow(Row, table=True):
    """One acceptance of suspicious offers by a person. ``what``: the offers, as JSON: ids with the doubt and price
    (micro-dollars) of each; ``ended``: the number of missing ones that ended."""

    number: Column[int] = Field(primary_key=True, sa_column_kwargs=STORE_NUMBERED)
    at: BigInt
    accepted_by: Column[str]
    provider: Column[str]
    ended: Column[int]
    what: Column[str]
    note: Column[str]


class PoolRow(Row, table=True):
    """One pool. ``accelerator`` is empty for machines without one; ``key`` is `Offer.pool`."""

    __table_args__ = (
        UniqueConstraint("key", name="pool_key"),
        Index("pool_machine", "accelerator", "count"),
        Index("pool_place", "provider", "region", "instance_type"),
    )

    id: Column[int] = Field(primary_key=True, sa_type=ID, sa_column_kwargs=STORE_NUMBERED)
    key: Column[str]
    provider: Column[str]
    region: Column[str]
    zone: Column[str | None]
    instance_type: Column[str]
    accelerator: Column[str]
    count: Column[int]
    capacity_type: Column[str]
    term_months: Column[int | None]


class OfferRow(Row, table=True):
    """The current offer of one source for one pool; its id is the price series' id. ``polled_by``: the adapter that
    reports it; ``run``: the last poll that reported it; ``changed_at``: of its newest ``price_change``; ``ended_at``:
    since when it is no longer reported; ``superseded``: a reference price for which a live one is known;
    ``signalled_at``: of its newest ``signal_change``; ``doubt``: a `Doubt`, with its figures in ``doubt_detail``;
    ``trusted``: while the price is suspicious, the last one that was not."""

    __table_args__ = (
        UniqueConstraint("pool_id", "source", name="offer_source"),
        Index("offer_polled_by", "polled_by"),
    )

    id: Column[int] = Field(primary_key=True, sa_type=ID, sa_column_kwargs=STORE_NUMBERED)
    pool_id: Column[int] = Field(sa_type=BigInteger, foreign_key="pool.id")
    source: Column[str]
    polled_by: Column[str]
    run: BigInt
    as_of: BigInt
    changed_at: BigInt
    ended_at: OptionalBigInt
    superseded: Column[bool]
    micros: OptionalBigInt
    availability: Column[str]
    unavailable_because: Column[str]
    score: Column[float | None]
    interruption_rate: Column[float | None]
    slots: Column[int | None]
    amortised: OptionalBigInt
    cpus: Column[float | None]
    memory_gib: Column[float | None]
    interconnect: Column[str | None]
    engine: Column[str | None]
    money: Column[str]
    reference: Column[bool]
    bill_minimum: BigInt
    bill_granularity: BigInt
    bill_free_within: BigInt
    max_age: OptionalBigInt
    signalled_at: OptionalBigInt
    doubt: Column[str | None] = Field(default=None)
    doubt_detail: Column[str] = Field(default="")
    trusted: Column[int | None] = Field(default=None, sa_type=BigInteger)


class PriceChangeRow(Row, table=True):
    """One change of an offer's price or availability, in force from ``at`` until the next of its series. ``learned``:
    when it became known, if after ``at``. ``availability``: a code of `broker.store.market.polls.CODES`. Few columns: a
    year of a large market has some thirty million rows."""

    __table_args__ = (WITHOUT_ROWID,)

    series: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    at: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    micros: OptionalBigInt
    availability: Column[int] = Field(sa_type=SmallInteger)
    learned: OptionalBigInt


class SignalChangeRow(Row, table=True):
    """One change of the provider's score and interruptions per hour of an offer."""

    __table_args__ = (WITHOUT_ROWID,)

    series: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    at: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    score: Column[float | None]
    interruption_rate: Column[float | None]


class KeptAnswerRow(Row, table=True):
    """A document that polls need not read again: a `CachedAnswer` (`broker.core.market.cached_answers`). ``at``: when
    it was read; ``version``: of the gpubroker that made the content; ``digest``: SHA-256 of the content."""

    provider: Column[str] = Field(primary_key=True)
    address: Column[str] = Field(primary_key=True)
    at: BigInt
    version: Column[str]
    etag: Column[str]
    last_modified: Column[str]
    digest: Column[str]
    content: Column[bytes]


class HoldingRow(Row, table=True):
    """Paid or committed capacity: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly`` per hour.
    ``proof``: SHA-256 of its document, or empty. ``removed_at``: when the record was removed."""

    number: Column[int] = Field(primary_key=True, sa_column_kwargs=STORE_NUMBERED)
    kind: Column[str]
    accelerator: Column[str]
    gpus: Column[int]
    provider: Column[str]
    site: Column[str]
    starts: BigInt
    ends: BigInt
    upfront: BigInt
    hourly: BigInt
    watts: Column[float]
    note: Column[str]
    order_id: Column[str]
    proof: Column[str]
    added_at: BigInt
    added_by: Column[str]
    removed_at: OptionalBigInt
    removed_by: Column[str]


class HoldingProofRow(Row, table=True):
    """A document that proves a holding, such as an invoice, by its SHA-256 (hex)."""

    sha256: Column[str] = Field(primary_key=True)
    name: Column[str]
    content: Column[bytes]


class PurchaseRow(Row, table=True):
    """Projection of one purchase's events: ``view`` is the whole `Purchase` as JSON."""

    id: Column[str] = Field(primary_key=True)
    intended_at: BigInt
    closed: Column[bool]
    view: Column[str]


OPEN_PURCHASE = ~PurchaseRow.closed
partial_index("purchase_open", PurchaseRow.intended_at, where=OPEN_PURCHASE)


class PurchaseEventRow(Row, table=True):
    """One fact of a purchase. Append-only."""

    purchase_id: Column[str] = Field(primary_key=True)
    seq: Column[int] = Field(primary_key=True)
    at: BigInt
    kind: Column[str]
    body: Column[str]


append_only(PurchaseEventRow)


class PurchaseQuoteRow(Row, table=True):
    """One quote: a `CapacityQuote` as JSON."""

    number: Column[int] = Field(primary_key=True, sa_column_kwargs=STORE_NUMBERED)
    at: BigInt
    body: Column[str]


class PriceWatchRow(Row, table=True):
    """One watch on prices. ``body``: a `broker.core.market.watches.Watch` as JSON; ``state``: its `WatchState`, also
    compared to detect concurrent changes."""

    name: Column[str] = Field(primary_key=True)
    body: Column[str]
    state: Column[str]


class NoticeRow(Row, table=True):
    """One alert to one target (the name of a setting, never an address). ``next_try`` is set while it is to be sent;
    ``tries`` counts the attempts, the one under way included. ``thread``: the incident that it belongs to."""

    __table_args__ = (Index("notice_newest", "made_at", "key"),)

    key: Column[str] = Field(primary_key=True)
    target: Column[str] = Field(primary_key=True)
    title: Column[str]
    body: Column[str]
    severity: Column[str]
    made_at: BigInt
    tries: Column[int]
    next_try: OptionalBigInt
    delivered_at: OptionalBigInt
    error: Column[str]
    thread: Column[str] = Field(default="")


WAITING_NOTICE = NoticeRow.next_try.is_not(None)
UNDELIVERED = NoticeRow.delivered_at.is_(None)
partial_index("notice_waiting", NoticeRow.next_try, where=WAITING_NOTICE)
partial_index("notice_undelivered", NoticeRow.made_at, NoticeRow.key, where=UNDELIVERED)
prefix_index("notice_begins", NoticeRow.key)
