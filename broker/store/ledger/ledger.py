"""Ledger rows: posting, and each job's balance. Every function works inside the caller's transaction."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    literal,
    or_,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Account, Balance, Dates, Entry, Movement, Tags, dates_after
from broker.ledger.journal import OpenHold
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import (
    batches,
    cached_statement,
    for_jobs,
    in_jobs,
    in_pipeline,
    insert_rows,
    one_of,
)
from broker.store.ledger import movement_sums, spent_sums
from broker.store.ledger.spent_sums import has_patterns, in_scope
from broker.store.policy import approvals
from broker.store.schema.jobs import JobRow
from broker.store.schema.ledger import STILL_HELD, LedgerBalanceRow, LedgerEntryRow, MeteringRow, MovementSumRow
from broker.store.schema.row import columns_of, table_of

_BATCH_SIZE = 5_000  # entries read at once
_JOBS_PER_READ = 500  # the maximum number of jobs whose entries are in memory at once
_NAMES = table_of(LedgerBalanceRow).columns.keys()
# Looked up in a dictionary: reports read a million rows.
_MOVEMENTS = {movement.value: movement for movement in Movement}
_ACCOUNTS = {account.value: account for account in Account}
_KINDS = {kind.value: kind for kind in MoneyKind}
# One statement instead of a query and an insert: while one process posts, all others wait.
_OPEN = text(
    f"INSERT INTO ledger_balance ({', '.join(_NAMES)}) VALUES (:{', :'.join(_NAMES)}) ON CONFLICT DO NOTHING"  # noqa: S608  # our own names
).execution_options(preserve_rowcount=True)
_KEY = ("job_id", "money")
_DATES = ("holds_from", "holds_to", "burns")
_CHANGES = (*(account.value for account in Account), *_DATES)
_STORED = select(*(getattr(LedgerBalanceRow, name) for name in (*_KEY, "held", *_DATES))).where(
    in_jobs(LedgerBalanceRow.job_id)
)
_CHANGE = (
    update(LedgerBalanceRow)
    .where(*(getattr(LedgerBalanceRow, name) == bindparam(f"new_{name}") for name in _KEY))
    .values(
        {
            account.value: getattr(LedgerBalanceRow, account.value) + bindparam(f"new_{account.value}")
            for account in Account
        }
        | {name: bindparam(f"new_{name}") for name in _DATES}
    )
)


def post(connection: Connection, entries: Sequence[Entry]) -> None:
    """Insert entries and update the balances.

    Raises ValueError for a movement that was posted before; the transaction is unusable afterwards.
    """
    if not entries:
        return
    try:
        insert_rows(connection, LedgerEntryRow, [_to_row(entry) for entry in entries])
    except IntegrityError as error:
        ids = ", ".join(dict.fromkeys(entry.movement_id for entry in entries))
        raise ValueError(f"one of the movements {ids} was posted before") from error
    spent_sums.keep(connection, entries)
    movement_sums.keep(connection, entries)
    _update_balances(connection, entries)
    approvals.keep(connection, entries)


def _update_balances(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add entries to the balances of their jobs and kinds of money."""
    by_job: dict[tuple[str, MoneyKind], list[Entry]] = {}
    for entry in entries:
        by_job.setdefault((entry.tags.job_id, entry.money), []).append(entry)
    if in_pipeline(connection):  # the holds of new jobs: the statement fails if they are not the first entries
        insert_rows(connection, LedgerBalanceRow, [_balance_row(group, None) for group in by_job.values()])
        return
    existing = []
    for key, group in by_job.items():
        has_hold = any(entry.movement is Movement.HOLD for entry in group)
        if not (has_hold and connection.execute(_OPEN, _balance_row(group, None)).rowcount):
            existing.append(key)
    jobs = sorted({job_id for job_id, _ in existing})
    stored = {(row.job_id, row.money): row for row in for_jobs(connection, _STORED, jobs)}
    changed = []
    for job_id, kind in existing:
        row = stored.get((job_id, kind.value))
        new_row = _balance_row(by_job[job_id, kind], row)
        if row is None:
            connection.execute(_OPEN, new_row)
        else:
            changed.append({f"new_{name}": new_row[name] for name in (*_KEY, *_CHANGES)})
    if changed:
        connection.execute(_CHANGE, changed)


def first_holds(entries: Sequence[Entry]) -> list[tuple[Entry, Burn]]:
    """The holds that result from the first entries of jobs, as `held` returns them, each with its first entry."""
    by_job: dict[tuple[str, MoneyKind], list[Entry]] = {}
    for entry in entries:
        by_job.setdefault((entry.tags.job_id, entry.money), []).append(entry)
    rows = [(group[0], _balance_row(group, None)) for group in by_job.values()]
    return [(first, _burn(*(row[name] for name in ("held", *_DATES)))) for first, row in rows if row["held"]]


def _balance_row(entries: Sequence[Entry], previous: Any) -> dict[str, Any]:
    """The amounts that entries of one job and kind of money add to its balance, and the resulting dates of its hold.

    ``previous``: the previous row; None if there is none.
    """
    tags, sums = entries[0].tags, dict.fromkeys(Account, 0)
    for entry in entries:
        sums[entry.account] += entry.amount.micros
    dates = (
        _dates(entries, Money.ZERO, None)
        if previous is None
        else _dates(entries, Money(previous.held), dates_of(previous))
    )
    return {
        **{account.value: micros for account, micros in sums.items()},
        "job_id": tags.job_id,
        "money": entries[0].money.value,
        **_dates_row(dates),
        **spent_sums.owner_row(tags),
    }


def _dates(entries: Sequence[Entry], held: Money, dates: Dates | None) -> Dates | None:
    """The dates of a hold after these entries. ``held``, ``dates``: the hold and its dates before them."""
    for entry in entries:
        if entry.account is Account.HELD:
            held += entry.amount
            dates = dates_after(dates, held, entry)
    return dates


def _dates_row(dates: Dates | None) -> dict[str, int]:
    if dates is None:
        return {"holds_from": 0, "holds_to": 0, "burns": 0}
    return {"holds_from": to_micros(dates.start), "holds_to": to_micros(dates.end), "burns": dates.rate.micros}


def dates_of(row: Any) -> Dates | None:
    """The dates of the hold in a balance row; None if nothing is held."""
    return _dates_from(row.held, row.holds_from, row.holds_to, row.burns)


def _dates_from(held: int, holds_from: int, holds_to: int, burns: int) -> Dates | None:
    return Dates(from_micros(holds_from), from_micros(holds_to), Money(burns)) if held else None


def balance_of(row: Any) -> Balance:
    return balance_from(row.available, row.held, row.spent, row.holds_from, row.holds_to, row.burns)


BALANCE_COLUMNS = tuple(
    getattr(LedgerBalanceRow, name) for name in ("available", "held", "spent", "holds_from", "holds_to", "burns")
)
"""The columns of a balance, in the order of the arguments of `balance_from`."""


@lru_cache(maxsize=65_536)  # each tick of a reconciler reads those of all open jobs, and few have changed
def balance_from(available: int, held: int, spent: int, holds_from: int, holds_to: int, burns: int) -> Balance:
    """A balance as a value. Cached: equal figures give the same object, unless many others were read in between."""
    return Balance(Money(available), Money(held), Money(spent), _dates_from(held, holds_from, holds_to, burns))


def rebuild(connection: Connection, job_ids: Sequence[str] | None = None) -> None:
    """Rebuild balances and sums from the entries, and delete the meters: the next settlement of an attempt recreates
    its meter. With ``job_ids``, only for those jobs, and without the sums of spend, which are not kept by job."""
    for table in (LedgerBalanceRow, MovementSumRow, MeteringRow):
        deletion = delete(table)
        connection.execute(deletion if job_ids is None else deletion.where(table.job_id.in_(job_ids)))
    if job_ids is None:
        spent_sums.forget(connection)
    for batch in _entry_batches(connection, job_ids):
        if job_ids is None:
            spent_sums.keep(connection, batch)
        movement_sums.keep(connection, batch)
        _update_balances(connection, batch)


def _entry_batches(connection: Connection, job_ids: Sequence[str] | None) -> Iterator[list[Entry]]:
    """All entries in posting order, or those of some jobs, in batches."""
    query, last = select(LedgerEntryRow).order_by(LedgerEntryRow.id).limit(_BATCH_SIZE), 0
    if job_ids is not None:
        query = query.where(LedgerEntryRow.job_id.in_(job_ids))
    while rows := connection.execute(query.where(LedgerEntryRow.id > last)).all():
        yield [entry_of(row) for row in rows]
        last = rows[-1].id


def rebuild_spent(connection: Connection) -> None:
    """Rebuild the sums of spend from the entries."""
    spent_sums.forget(connection)
    for batch in _entry_batches(connection, None):
        spent_sums.keep(connection, batch)


def all_entries(connection: Connection) -> Iterator[Entry]:
    """The whole ledger in posting order, streamed."""
    for batch in _entry_batches(connection, None):
        yield from batch


def read(connection: Connection, job_id: str | None = None) -> list[Entry]:
    """The ledger, or one job's part of it, in posting order."""
    query = select(LedgerEntryRow).order_by(LedgerEntryRow.id)
    if job_id is not None:
        query = query.where(LedgerEntryRow.job_id == job_id)
    return [entry_of(row) for row in connection.execute(query)]


def read_each(connection: Connection, job_ids: Sequence[str]) -> Iterator[tuple[str, list[Entry]]]:
    """The entries of each of those jobs in posting order, job by job."""
    for batch in batches(job_ids, _JOBS_PER_READ):
        entries_by_job: dict[str, list[Entry]] = {job_id: [] for job_id in batch}
        query = (
            select(LedgerEntryRow).where(LedgerEntryRow.job_id.in_(list(entries_by_job))).order_by(LedgerEntryRow.id)
        )
        for row in connection.execute(query):
            entries_by_job[row.job_id].append(entry_of(row))
        yield from entries_by_job.items()


def balance(connection: Connection, job_id: str) -> dict[MoneyKind, Balance]:
    """The balance of a job's entries, by kind of money."""
    rows = connection.execute(select(LedgerBalanceRow).where(LedgerBalanceRow.job_id == job_id))
    return {MoneyKind(row.money): balance_of(row) for row in rows}


def balances(connection: Connection, job_ids: Sequence[str]) -> dict[str, dict[MoneyKind, Balance]]:
    """The balances of those jobs, without jobs that have no entries."""
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for row in for_jobs(connection, select(LedgerBalanceRow).where(in_jobs(LedgerBalanceRow.job_id)), job_ids):
        result.setdefault(row.job_id, {})[MoneyKind(row.money)] = balance_of(row)
    return result


def open_holds(connection: Connection, budget: BudgetSpec) -> list[OpenHold]:
    """The holds not yet settled or released that count under that budget."""
    conditions = (
        STILL_HELD,
        one_of(LedgerBalanceRow.money, budget.counts),
        *in_scope(connection, LedgerBalanceRow, budget),
    )
    columns = columns_of(LedgerBalanceRow, "job_id", "money", "held", "holds_from", "holds_to", "burns")
    # Sorted here: with ORDER BY, SQLite would read the balances of all jobs in the order of the primary key.
    rows = sorted(connection.execute(select(*columns).where(*conditions)).all())
    return [OpenHold(job_id, MoneyKind(kind), _burn(held, *dates)) for job_id, kind, held, *dates in rows]


def holds_behind(
    connection: Connection, budget: BudgetSpec, job_id: str, submitted_at: datetime, until: datetime
) -> Sequence[Burn]:
    """The part of `held` of jobs without spend and without machines that were submitted after ``submitted_at`` (UTC).

    Of those submitted at exactly that time, jobs with a later id.
    """
    statement = cached_statement(_holds_behind_query, connection, budget, looks_up=has_patterns(budget))
    parameters = {"edge": to_micros(until), "since": to_micros(submitted_at), "job": job_id}
    return [_burn(int(micros), *dates) for micros, *dates in connection.execute(statement, parameters).all() if micros]


def holding_jobs(connection: Connection, prefix: str) -> list[str]:
    """The ids beginning with ``prefix`` of jobs that still hold money, in order."""
    ids_query = select(LedgerBalanceRow.job_id).where(
        STILL_HELD, LedgerBalanceRow.job_id.startswith(prefix, autoescape=True)
    )
    # Sorted here: with DISTINCT or ORDER BY, SQLite would read the balances of all jobs in the order of the primary
    # key.
    return sorted(set(connection.scalars(ids_query)))


def held(connection: Connection, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
    """The open holds under the budget: those that end by ``until`` (UTC) as one sum, the others individually."""
    edge = to_micros(until)
    rows = connection.execute(
        cached_statement(_held_query, connection, budget, looks_up=has_patterns(budget)), {"edge": edge}
    ).all()
    return [_burn(int(micros), *dates) for micros, *dates in rows if micros]


def _burn(held: int, holds_from: int, holds_to: int, burns: int) -> Burn:
    return Burn(Money(held), from_micros(holds_from), from_micros(holds_to), Money(burns))


def _held_query(connection: Connection | None, budget: BudgetSpec) -> CompoundSelect[Any]:
    return _sum_and_rest(connection, budget)


def _holds_behind_query(connection: Connection | None, budget: BudgetSpec) -> CompoundSelect[Any]:
    since = bindparam("since", type_=BigInteger)
    later = or_(JobRow.submitted_at > since, and_(JobRow.submitted_at == since, JobRow.id > bindparam("job")))
    return _sum_and_rest(
        connection, budget, JobRow.id == LedgerBalanceRow.job_id, LedgerBalanceRow.spent == 0, JobRow.live == "", later
    )


def _sum_and_rest(
    connection: Connection | None, budget: BudgetSpec, *conditions: ColumnElement[bool]
) -> CompoundSelect[Any]:
    edge = bindparam("edge", type_=BigInteger)
    common = (
        STILL_HELD,
        one_of(LedgerBalanceRow.money, budget.counts),
        *in_scope(connection, LedgerBalanceRow, budget),
        *conditions,
    )
    sum_of_short = select(func.sum(LedgerBalanceRow.held), edge, edge, literal(0)).where(
        *common, LedgerBalanceRow.holds_to <= edge
    )
    return union_all(
        sum_of_short,
        select(
            LedgerBalanceRow.held, LedgerBalanceRow.holds_from, LedgerBalanceRow.holds_to, LedgerBalanceRow.burns
        ).where(*common, LedgerBalanceRow.holds_to > edge),
    )


def _to_row(entry: Entry) -> dict[str, object]:
    tags = entry.tags
    return {
        "movement_id": entry.movement_id,
        "movement": entry.movement.value,
        "account": entry.account.value,
        "micros": entry.amount.micros,
        "money": entry.money.value,
        "at": to_micros(entry.at),
        "covers_from": to_micros(entry.covers_from),
        "covers_to": to_micros(entry.covers_to),
        "job_id": tags.job_id,
        **spent_sums.owner_row(tags),
        "attempt": tags.attempt,
        "provider": tags.provider,
        "region": tags.region,
        "capacity_type": tags.capacity_type.value if tags.capacity_type else None,
        "accelerator": tags.accelerator,
        "gpus": tags.gpus,
        "note": entry.note,
        "rate": None if entry.rate is None else entry.rate.micros,
    }


TAG_COLUMNS = columns_of(
    LedgerEntryRow,
    "job_id",
    "user_name",
    "team",
    "project",
    "workload",
    "environment",
    "attempt",
    "provider",
    "region",
    "capacity_type",
    "accelerator",
    "gpus",
)
"""The columns of `Tags`, in the order of its fields."""


def entry_of(row: Any) -> Entry:
    return Entry(
        movement_id=row.movement_id,
        movement=_MOVEMENTS[row.movement],
        account=_ACCOUNTS[row.account],
        amount=Money(row.micros),
        money=_KINDS[row.money],
        at=from_micros(row.at),
        covers_from=from_micros(row.covers_from),
        covers_to=from_micros(row.covers_to),
        tags=tags_of(_TAGS(row)),
        note=row.note,
        rate=None if row.rate is None else Money(row.rate),
    )


_TAGS = attrgetter(*(column.name for column in TAG_COLUMNS))


@lru_cache(maxsize=1024)  # the entries of an attempt have the same tags
def tags_of(columns: tuple[Any, ...]) -> Tags:
    """The tags of a row's `TAG_COLUMNS`."""
    *leading, kind, accelerator, gpus = columns
    fields = (*leading, CapacityType(kind) if kind else None, accelerator, gpus)
    return Tags(*fields)
