"""The ledger: entries and balances, and their sums for frequent queries; of closed months and spending alerts: marks of
budgets, charges, statements, answers to anomalies.
"""

from sqlalchemy import BigInteger, Index, UniqueConstraint, literal_column, text
from sqlmodel import Field

from broker.store.schema.row import (
    ID,
    WITHOUT_ROWID,
    BigInt,
    Column,
    OptionalBigInt,
    Row,
    append_only,
    partial_index,
)


class LedgerEntryRow(Row, table=True):
    """One ledger entry; ``id`` is the posting order. Append-only."""

    __table_args__ = (
        UniqueConstraint("movement_id", "account", name="ledger_entry_movement"),
        Index("ledger_entry_job", "job_id"),
    )

    id: Column[int] = Field(primary_key=True, sa_type=ID)
    movement_id: Column[str]
    movement: Column[str]
    account: Column[str]
    micros: BigInt
    money: Column[str]
    at: BigInt
    covers_from: BigInt
    covers_to: BigInt
    job_id: Column[str]
    user_name: Column[str]
    team: Column[str | None]
    project: Column[str | None]
    workload: Column[str | None]
    environment: Column[str | None]
    attempt: Column[int | None]
    provider: Column[str | None]
    region: Column[str | None]
    capacity_type: Column[str | None]
    accelerator: Column[str | None]
    gpus: Column[int]
    note: Column[str]
    rate: OptionalBigInt


# Entries over more than a day, added one by one: see `broker.store.ledger.spent_sums`.
LONG_ENTRIES = text("account = 'spent' AND covers_to - covers_from > 86400000000")
# Spend on owned and reserved machines, and spend without an attempt: a small part of all spend.
ON_OWN = text("account = 'spent' AND capacity_type IN ('owned', 'reserved')")
WITHOUT_ATTEMPT = text("account = 'spent' AND attempt IS NULL")
partial_index("ledger_entry_spent", LedgerEntryRow.covers_to, where=text("account = 'spent'"))
# With the account, which tells it from the index above: SQLite takes either of two alike.
partial_index("ledger_entry_long", LedgerEntryRow.account, LedgerEntryRow.covers_to, where=LONG_ENTRIES)
partial_index("ledger_entry_own", LedgerEntryRow.capacity_type, LedgerEntryRow.covers_to, where=ON_OWN)
partial_index("ledger_entry_unattempted", LedgerEntryRow.attempt, LedgerEntryRow.covers_to, where=WITHOUT_ATTEMPT)
append_only(LedgerEntryRow)


class LedgerBalanceRow(Row, table=True):
    """Sums of a job's entries per kind of money, and the tags and dates that count its hold under a budget."""

    job_id: Column[str] = Field(primary_key=True)
    money: Column[str] = Field(primary_key=True)
    available: BigInt
    held: BigInt
    spent: BigInt
    holds_to: BigInt
    user_name: Column[str]
    team: Column[str | None]
    project: Column[str | None]
    workload: Column[str | None]
    environment: Column[str | None]
    holds_from: BigInt
    burns: BigInt


STILL_HELD = LedgerBalanceRow.held != literal_column("0")
partial_index("ledger_balance_open", LedgerBalanceRow.held, where=STILL_HELD)


class SpendGroupRow(Row, table=True):
    """One set of tags by which budgets count. ``key``: the tags as JSON."""

    __table_args__ = (UniqueConstraint("key", name="spend_group_key"),)

    id: Column[int] = Field(primary_key=True, sa_type=ID)
    key: Column[str]
    money: Column[str]
    user_name: Column[str]
    team: Column[str | None]
    project: Column[str | None]
    workload: Column[str | None]
    environment: Column[str | None]


class SpendSumRow(Row, table=True):
    """The spend of a group in one slot of time: ``size`` microseconds, the ``slot``-th since 1970."""

    __table_args__ = (WITHOUT_ROWID,)

    size: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    group_id: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    slot: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    micros: BigInt


class MovementSumRow(Row, table=True):
    """The sum of a job's movements with the same attempt (0: none), kind of money and kind of movement: ``micros`` went
    from the movement's first account to the second, in ``movements`` movements. ``covers_from`` and ``covers_to``
    enclose the times they cover; ``at``: the latest posting."""

    __table_args__ = (Index("movement_sum_covers_to", "covers_to"), WITHOUT_ROWID)

    job_id: Column[str] = Field(primary_key=True)
    attempt: Column[int] = Field(primary_key=True)
    money: Column[str] = Field(primary_key=True)
    movement: Column[str] = Field(primary_key=True)
    micros: BigInt
    movements: BigInt
    covers_from: BigInt
    covers_to: BigInt
    at: BigInt
    user_name: Column[str]


class MeteringRow(Row, table=True):
    """How far the machine time of an attempt is settled: a `broker.ledger.meter.Meter`. ``cost`` (micro-dollars) and
    ``cost_rest`` (the part of a micro-dollar, times an hour in microseconds) are one exact number."""

    __table_args__ = (WITHOUT_ROWID,)

    job_id: Column[str] = Field(primary_key=True)
    attempt: Column[int] = Field(primary_key=True)
    settled: BigInt
    settled_to: BigInt
    since: BigInt
    rate: BigInt
    cost: BigInt
    cost_rest: BigInt
    moved: BigInt
    ended: Column[bool]


class BudgetMarkRow(Row, table=True):
    """When (``at``) a budget of that ``amount`` was first seen past a ``mark`` (``80%``) in a period."""

    budget: Column[str] = Field(primary_key=True)
    period_start: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    amount: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    mark: Column[str] = Field(primary_key=True)
    at: BigInt


class ChargeRow(Row, table=True):
    """A provider's charge for a time, by attempt's ``key`` (empty: for no known attempt). ``line`` distinguishes
    several for the same time. ``account``: empty where not known. ``source``: ``api``, or the name of the imported
    file, with the rate by which its amounts became dollars."""

    __table_args__ = (Index("charge_period", "provider", "ends"), Index("charge_ends", "ends"))

    provider: Column[str] = Field(primary_key=True)
    key: Column[str] = Field(primary_key=True)
    starts: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    ends: Column[int] = Field(primary_key=True, sa_type=BigInteger)
    line: Column[str] = Field(primary_key=True)
    account: Column[str] = Field(primary_key=True)
    micros: BigInt
    estimated: Column[bool]
    source: Column[str]
    read_at: BigInt


class StatementRow(Row, table=True):
    """The charge of each team for a closed month (``2026-10``), as a `broker.ledger.finops.showback.Statement` in JSON.
    Append-only."""

    month: Column[str] = Field(primary_key=True)
    frozen_at: BigInt
    frozen_by: Column[str]
    body: Column[str]


append_only(StatementRow)


class AdviceAnswerRow(Row, table=True):
    """A person's answer to an advice of a review (``2026-11``, ``2026-Q4``). The last word counts."""

    month: Column[str] = Field(primary_key=True)
    advice: Column[str] = Field(primary_key=True)
    verdict: Column[str]
    answered_at: BigInt
    answered_by: Column[str]
    reason: Column[str]


class AnomalyAnswerRow(Row, table=True):
    """A person's answer to an incident of a team (empty: of jobs without one), which began on a ``day``
    (``2026-11-20``). The last word counts."""

    team: Column[str] = Field(primary_key=True)
    day: Column[str] = Field(primary_key=True)
    answer: Column[str]
    answered_at: BigInt
    answered_by: Column[str]
    reason: Column[str]
