"""The tables as plain rows, without validation; domain types validate.

Times are integer microseconds since 1970 UTC and money is integer micro-dollars, the same on SQLite and PostgreSQL.
``attempt_event``, ``ledger_entry``, ``decision``, ``policy_set``, ``purchase_event`` and ``audit_log`` are append-only:
triggers in the migrations refuse UPDATE and DELETE. The migrations, not these classes, create the tables; a test
compares both. Conditions of PostgreSQL's partial indexes are only in the migrations: naming them here would load that
dialect.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    SmallInteger,
    Table,
    UniqueConstraint,
    false,
    literal_column,
    text,
)
from sqlmodel import Field, SQLModel

# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
_ID = BigInteger().with_variant(Integer, "sqlite")
# Entries over more than a day, counted one by one: see `broker.store.ledger.spent_sums`.
_LONG = text("account = 'spent' AND covers_to - covers_from > 86400000000")
_ABOUT_APPROVAL = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")


class Row(SQLModel):
    """Base of all rows. Rows are never validated, so pydantic's validators are not built."""

    model_config = {"defer_build": True}


class JobRow(Row, table=True):
    """Projection of one job's events: ``view`` is the whole `JobView` as JSON, the other columns are for queries.

    ``live``: its attempts that may still have machines, as JSON; empty without any, None in rows of earlier
    versions.
    ``array_id``: the array that it is a task of."""

    __tablename__: ClassVar[str] = "job"
    __table_args__ = (
        Index("job_unclosed", "submitted_at", sqlite_where=text("NOT closed")),
        Index("job_submitted", "submitted_at"),
        Index("job_name", "name", "submitted_at"),
        Index("job_user", "user_name", "submitted_at"),
        Index("job_team", "team", "submitted_at"),
        Index("job_state", "state", "submitted_at"),
        Index("job_project", "project"),
        Index("job_array", "array_id", "closed", "state", sqlite_where=text("array_id IS NOT NULL")),
        Index("job_top", "submitted_at", sqlite_where=text("array_id IS NULL")),
        Index("job_environment", "environment"),
        # Only PostgreSQL needs it, for the beginnings of ids; on SQLite it has no rows.
        Index("job_id_begins", "id", postgresql_ops={"id": "text_pattern_ops"}, sqlite_where=text("0")),
    )

    id: str = Field(primary_key=True)
    name: str
    user_name: str
    team: str | None
    project: str | None
    environment: str | None = None
    state: str
    closed: bool
    submitted_at: int = Field(sa_type=BigInteger)
    view: str
    live: str | None
    array_id: str | None = None


class EventRow(Row, table=True):
    """One fact of a job's stream. Append-only."""

    __tablename__: ClassVar[str] = "attempt_event"
    __table_args__ = (
        Index(
            "attempt_event_approval",
            "at",
            sqlite_where=_ABOUT_APPROVAL,
        ),
        Index("attempt_event_asking", "job_id", sqlite_where=_ABOUT_APPROVAL),
    )

    job_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    attempt: int | None
    at: int = Field(sa_type=BigInteger)
    kind: str
    body: str


class MachineTimeRow(Row, table=True):
    """The machine time of an attempt: a projection of events. ``until``: `STILL_THERE` until the machines are known to
    be gone. ``micros``: the price of one machine per hour at the placement, None if unknown; ``count``: accelerators
    per machine. Attempts whose machines never came up have no row."""

    __tablename__: ClassVar[str] = "machine_time"
    __table_args__ = (Index("machine_time_until", "until"), {"sqlite_with_rowid": False})

    job_id: str = Field(primary_key=True)
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    since: int = Field(sa_type=BigInteger)
    until: int = Field(sa_type=BigInteger)
    user_name: str
    team: str | None
    project: str | None
    workload: str
    environment: str | None
    money: str
    provider: str
    region: str
    capacity_type: str
    instance_type: str
    accelerator: str | None
    count: int
    nodes: int
    micros: int | None = Field(sa_type=BigInteger)


class EntryRow(Row, table=True):
    """One ledger entry; ``id`` is the posting order. Append-only."""

    __tablename__: ClassVar[str] = "ledger_entry"
    __table_args__ = (
        UniqueConstraint("movement_id", "account", name="ledger_entry_movement"),
        Index("ledger_entry_job", "job_id"),
        Index(
            "ledger_entry_spent",
            "covers_to",
            sqlite_where=text("account = 'spent'"),
        ),
        Index("ledger_entry_long", "covers_to", sqlite_where=_LONG),
    )

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=True))
    movement_id: str
    movement: str
    account: str
    micros: int = Field(sa_type=BigInteger)
    money: str
    at: int = Field(sa_type=BigInteger)
    covers_from: int = Field(sa_type=BigInteger)
    covers_to: int = Field(sa_type=BigInteger)
    job_id: str
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None
    attempt: int | None
    provider: str | None
    region: str | None
    capacity_type: str | None
    accelerator: str | None
    gpus: int
    note: str
    rate: int | None = Field(sa_type=BigInteger)


class BalanceRow(Row, table=True):
    """Sums of a job's entries per kind of money, and the tags and dates that count its hold under a budget."""

    __tablename__: ClassVar[str] = "ledger_balance"
    __table_args__ = (Index("ledger_balance_open", "held", sqlite_where=text("held <> 0")),)

    job_id: str = Field(primary_key=True)
    money: str = Field(primary_key=True)
    available: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    spent: int = Field(sa_type=BigInteger)
    holds_to: int = Field(sa_type=BigInteger)
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None
    holds_from: int = Field(sa_type=BigInteger)
    burns: int = Field(sa_type=BigInteger)


class DecisionRow(Row, table=True):
    """One judgement at the gate; ``body`` has verdicts and inputs. Append-only."""

    __tablename__: ClassVar[str] = "decision"
    __table_args__ = (Index("decision_job", "job_id"), Index("decision_at", "at"))

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=True))
    at: int = Field(sa_type=BigInteger)
    action: str
    user_name: str
    job_name: str
    job_id: str | None
    attempt: int | None
    pool: str | None
    answer: str
    policy_version: str
    facts_hash: str
    body: str


class PolicyRow(Row, table=True):
    """One activation of a policy set; the highest number is active. Append-only."""

    __tablename__: ClassVar[str] = "policy_set"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    activated_at: int = Field(sa_type=BigInteger)
    activated_by: str
    sha256: str
    files: str
    note: str


class SettingRow(Row, table=True):
    """Settings of this store."""

    __tablename__: ClassVar[str] = "setting"

    key: str = Field(primary_key=True)
    value: str


class PollRow(Row, table=True):
    """One poll of one provider. ``status``: a `broker.store.records.PollStatus`; ``gone``: the number of offers it
    ended; ``samples``: details of skipped rows, as JSON by reason."""

    __tablename__: ClassVar[str] = "poll_run"
    __table_args__ = (
        Index("poll_run_provider", "provider", "finished"),
        Index("poll_run_started", "provider", "started"),
        Index("poll_run_newest", "provider", "id"),
    )

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=True))
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

    __tablename__: ClassVar[str] = "price_acceptance"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    accepted_by: str
    provider: str
    ended: int
    what: str
    note: str


class PoolRow(Row, table=True):
    """One pool. ``accelerator`` is empty for machines without one; ``key`` is `Offer.pool`."""

    __tablename__: ClassVar[str] = "pool"
    __table_args__ = (
        UniqueConstraint("key", name="pool_key"),
        Index("pool_machine", "accelerator", "count"),
        Index("pool_place", "provider", "region", "instance_type"),
    )

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=False))
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
    ``trusted``: while the price is in doubt, the last one that was not."""

    __tablename__: ClassVar[str] = "offer"
    __table_args__ = (
        UniqueConstraint("pool_id", "source", name="offer_source"),
        Index("offer_polled_by", "polled_by"),
    )

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=False))
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


class PriceRow(Row, table=True):
    """One change of an offer's price or availability, in force from ``at`` until the next of its series. ``learned``:
    when it became known, if after ``at``. ``availability``: a code of `broker.store.market.polls.CODES`. Few columns: a
    year of a large market has some thirty million rows."""

    __tablename__: ClassVar[str] = "price_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    micros: int | None = Field(sa_type=BigInteger)
    availability: int = Field(sa_type=SmallInteger)
    learned: int | None = Field(sa_type=BigInteger)


class SignalRow(Row, table=True):
    """One change of the provider's score and interruptions per hour of an offer."""

    __tablename__: ClassVar[str] = "signal_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    score: float | None
    interruption_rate: float | None


class HoldingRow(Row, table=True):
    """Paid or committed capacity: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly`` per hour.
    ``removed_at``: when the record was removed."""

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
    added_at: int = Field(sa_type=BigInteger)
    added_by: str
    removed_at: int | None = Field(sa_type=BigInteger)
    removed_by: str


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
        Index(
            "notice_waiting",
            "next_try",
            sqlite_where=text("next_try IS NOT NULL"),
        ),
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


class StandingGrantRow(Row, table=True):
    """One standing grant. ``whom``: its rules, users, teams and projects as JSON; ``total``: micro-dollars;
    ``closed_use``: the spend of closed jobs under it, in micro-dollars."""

    __tablename__: ClassVar[str] = "standing_grant"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    granted_by: str
    at: int = Field(sa_type=BigInteger)
    until: int = Field(sa_type=BigInteger)
    total: int = Field(sa_type=BigInteger)
    whom: str
    note: str
    revoked_at: int | None = Field(sa_type=BigInteger)
    revoked_by: str
    closed_use: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})


class StandingUseRow(Row, table=True):
    """One job approved by a standing grant, which counts its money. ``closed``: it is included in the grant's
    ``closed_use``."""

    __tablename__: ClassVar[str] = "standing_use"
    __table_args__ = (
        Index("standing_use_job", "job_id"),
        Index("standing_use_open", "number", sqlite_where=text("NOT closed")),
    )

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    job_id: str = Field(primary_key=True)
    closed: bool = Field(default=False, sa_column_kwargs={"server_default": false()})


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


class PersonRow(Row, table=True):
    """A person who may sign in. ``roles`` and ``teams`` (team → role) as JSON."""

    __tablename__: ClassVar[str] = "person"

    name: str = Field(primary_key=True)
    service: bool
    roles: str
    teams: str
    added_at: int = Field(sa_type=BigInteger)
    disabled_at: int | None = Field(sa_type=BigInteger)


class ApiTokenRow(Row, table=True):
    """An API token, without its text. ``scopes`` as JSON."""

    __tablename__: ClassVar[str] = "api_token"
    __table_args__ = (Index("api_token_person", "person", "made_at"),)

    id: str = Field(primary_key=True)
    person: str
    label: str
    scopes: str
    digest: str
    made_at: int = Field(sa_type=BigInteger)
    made_by: str
    expires_at: int = Field(sa_type=BigInteger)
    revoked_at: int | None = Field(sa_type=BigInteger)
    revoked_by: str
    used_at: int | None = Field(sa_type=BigInteger)


class ApiRequestRow(Row, table=True):
    """A change requested over the network. ``status``: None until it is answered; ``body``: the answer."""

    __tablename__: ClassVar[str] = "api_request"
    __table_args__ = (Index("api_request_at", "at"),)

    person: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    digest: str
    at: int = Field(sa_type=BigInteger)
    status: int | None
    body: str


class PageSessionRow(Row, table=True):
    """A session of the page, without its id. ``token``: the API token that started it."""

    __tablename__: ClassVar[str] = "page_session"
    __table_args__ = (Index("page_session_person", "person"), Index("page_session_ends", "ends_at"))

    digest: str = Field(primary_key=True)
    person: str
    token: str
    made_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    ends_at: int = Field(sa_type=BigInteger)


class AuditRow(Row, table=True):
    """One line of the audit log. Append-only."""

    __tablename__: ClassVar[str] = "audit_log"
    __table_args__ = (
        Index("audit_log_person", "person", "number"),
        Index("audit_log_subject", "subject", "number"),
    )

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    person: str
    origin: str
    token: str
    action: str
    subject: str
    outcome: str
    before: str
    after: str
    reason: str


# The end of machine time that continues: greater than any time in microseconds.
STILL_THERE = 2**62


def table_of(row: type[SQLModel]) -> Table:
    """The Core table of a row class: bulk operations bypass the ORM."""
    table = SQLModel.metadata.tables[str(row.__tablename__)]
    assert isinstance(table, Table)
    return table


JOB = table_of(JobRow)
EVENT = table_of(EventRow)
MACHINE_TIME = table_of(MachineTimeRow)
ENTRY = table_of(EntryRow)
BALANCE = table_of(BalanceRow)
DECISION = table_of(DecisionRow)
POLICY = table_of(PolicyRow)
SETTING = table_of(SettingRow)
POLL = table_of(PollRow)
POOL = table_of(PoolRow)
ACCEPTANCE = table_of(PriceAcceptanceRow)
OFFER = table_of(OfferRow)
PRICE = table_of(PriceRow)
SIGNAL = table_of(SignalRow)
HOLDING = table_of(HoldingRow)
WATCH = table_of(WatchRow)
NOTICE = table_of(NoticeRow)
STANDING_GRANT = table_of(StandingGrantRow)
STANDING_USE = table_of(StandingUseRow)
PURCHASE = table_of(PurchaseRow)
PURCHASE_EVENT = table_of(PurchaseEventRow)
QUOTE = table_of(PurchaseQuoteRow)
PERSON = table_of(PersonRow)
API_TOKEN = table_of(ApiTokenRow)
API_REQUEST = table_of(ApiRequestRow)
PAGE_SESSION = table_of(PageSessionRow)
AUDIT = table_of(AuditRow)
# Literally the conditions of the indexes ``job_unclosed`` and ``ledger_balance_open``. SQLite uses a partial index only
# for a query that repeats its condition without parameters; SQLAlchemy would render ``job.closed = 0`` and ``held !=
# ?``.
UNCLOSED = text("NOT job.closed")
STILL_HELD = BALANCE.c.held != literal_column("0")
