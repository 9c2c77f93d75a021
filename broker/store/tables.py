"""The tables, as dumb rows. Nothing here validates or decides; domain types do.

Times are integer microseconds since 1970 UTC and money is integer micro-dollars, so SQLite and PostgreSQL keep exactly
the same. ``attempt_event``, ``ledger_entry``, ``decision``, ``policy_set`` and ``audit_log`` are append-only:
triggers in the migrations refuse UPDATE and DELETE. The migrations, not these classes, make the tables; a test holds
both together. Which rows an index of PostgreSQL covers is said in the migrations alone: to name it here would load that
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

# SQLite makes only INTEGER PRIMARY KEY the row id, which is as wide as BIGINT there.
_ID = BigInteger().with_variant(Integer, "sqlite")
# Longer than a day: counted one by one, see `broker.store.ledger.spent_sums`.
_LONG = text("account = 'spent' AND covers_to - covers_from > 86400000000")
_ABOUT_APPROVAL = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")


class Row(SQLModel):
    """What all rows have in common: nobody validates them, so what would validate them is not built."""

    model_config = {"defer_build": True}


class JobRow(Row, table=True):
    """Projection of one job's events: ``view`` is the whole `JobView` as JSON, the other columns are for finding.

    ``live``: its attempts that may still have machines, as JSON; empty without any, None where nobody looked yet."""

    __tablename__: ClassVar[str] = "job"
    __table_args__ = (
        Index("job_unclosed", "submitted_at", sqlite_where=text("NOT closed")),
        Index("job_submitted", "submitted_at"),
        Index("job_name", "name", "submitted_at"),
        Index("job_user", "user_name", "submitted_at"),
        Index("job_team", "team", "submitted_at"),
        Index("job_state", "state", "submitted_at"),
        Index("job_project", "project"),
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
    """When the machines of an attempt were there: a projection of events. ``until``: `STILL_THERE` until they are known
    to be gone. ``micros``: the price of one machine an hour when the attempt was placed, None where it was unknown;
    ``count``: accelerators of one machine. Attempts whose machines never came up have no row."""

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
    """Kept sums of a job's entries per kind of money, and what is needed to count its hold under a budget."""

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
    """One passage through the gate; ``body`` has the verdicts and what was seen. Append-only."""

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
    """Small facts about this store itself."""

    __tablename__: ClassVar[str] = "setting"

    key: str = Field(primary_key=True)
    value: str


class PollRow(Row, table=True):
    """One poll of one provider. ``status``: a `broker.store.records.PollStatus`; ``gone``: offers that it ended;
    ``samples``: details of rows that were skipped, as JSON by reason."""

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
    """One acceptance by a person of what was in doubt. ``what``: the offers, as JSON: their ids with the doubt and the
    price (micro-dollars) of each; ``ended``: how many of them were missing, and are taken for gone."""

    __tablename__: ClassVar[str] = "price_acceptance"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    accepted_by: str
    provider: str
    ended: int
    what: str
    note: str


class PoolRow(Row, table=True):
    """What identifies a pool. ``accelerator`` is empty for machines without one; ``key`` is `Offer.pool`."""

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
    """The current offer of one source for one pool, also the price series' id. ``polled_by``: the adapter that tells
    of it; ``run``: the last poll that saw it; ``changed_at``: of its newest ``price_change``; ``ended_at``: since when
    it is no longer told of; ``superseded``: a reference price for which a live one is known; ``signalled_at``: of its
    newest ``signal_change``; ``doubt``: a `Doubt`, with its figures in ``doubt_detail``; ``trusted``: while the price
    is in doubt, the last one that was not."""

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
    when it was learned, where that was after ``at``. ``availability``: a code of `broker.store.market.market`. Kept
    narrow: a year of a large market is some thirty million of these."""

    __tablename__: ClassVar[str] = "price_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    micros: int | None = Field(sa_type=BigInteger)
    availability: int = Field(sa_type=SmallInteger)
    learned: int | None = Field(sa_type=BigInteger)


class SignalRow(Row, table=True):
    """One change of what the provider says of an offer's chances: its score, and interruptions per hour."""

    __tablename__: ClassVar[str] = "signal_change"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    score: float | None
    interruption_rate: float | None


class HoldingRow(Row, table=True):
    """Capacity that was paid for or promised: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly``
    every hour. ``removed_at``: when it was taken off the record."""

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
    """One watch on prices. ``body``: a `broker.core.market.watches.Watch` as JSON; ``state``: its `WatchState`, which
    also tells whether somebody else has changed it since."""

    __tablename__: ClassVar[str] = "price_watch"

    name: str = Field(primary_key=True)
    body: str
    state: str


class NoticeRow(Row, table=True):
    """One notice to one target (the name of a setting, never an address). ``next_try`` is set while it is to be sent;
    ``tries`` counts the attempts, the one under way included."""

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


class StandingGrantRow(Row, table=True):
    """One approval ahead. ``whom``: its rules, users, teams and projects as JSON; ``total``: micro-dollars;
    ``revoked_at``: when it was taken back; ``closed_use``: what closed jobs under it have spent, in micro-dollars."""

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
    """One job that was let through by a standing grant: its money counts there. ``closed``: it is counted in the
    grant's ``closed_use``."""

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
    """One quote that somebody was shown: a `Quote` as JSON."""

    __tablename__: ClassVar[str] = "purchase_quote"

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    body: str


class PersonRow(Row, table=True):
    """Somebody who may sign in. ``roles`` and ``teams`` (team → role) as JSON."""

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
    """A change that was asked over the network. ``status``: None until it is answered; ``body``: the answer."""

    __tablename__: ClassVar[str] = "api_request"
    __table_args__ = (Index("api_request_at", "at"),)

    person: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    digest: str
    at: int = Field(sa_type=BigInteger)
    status: int | None
    body: str


class PageSessionRow(Row, table=True):
    """A session of the page, without its id. ``token``: that it was begun with."""

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


# The end of machine time that goes on, in microseconds: later than any time.
STILL_THERE = 2**62


def table_of(row: type[SQLModel]) -> Table:
    """The Core table of a row class: bulk work goes past the ORM."""
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
# The conditions of the indexes ``job_unclosed`` and ``ledger_balance_open``, in their very words. SQLite uses a partial
# index only for a query that repeats the condition of the index, without parameters; SQLAlchemy would write
# ``job.closed = 0`` and ``held != ?``.
UNCLOSED = text("NOT job.closed")
STILL_HELD = BALANCE.c.held != literal_column("0")
