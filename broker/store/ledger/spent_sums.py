"""Sums of spend per group of tags and slot of time (a day, a quarter of an hour, UTC), updated in the transaction of
the entries. Every function works inside the caller's transaction.

Entries over more than a day (a commitment, a month's charge) are few and are added one by one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    TextClause,
    and_,
    bindparam,
    delete,
    func,
    insert,
    not_,
    select,
    text,
)

from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.budgets import matches
from broker.ledger.entries import DAY, QUARTER, SIZES, Account, Entry, Tags, amount_within, slots, spans
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import cached_statement, one_of
from broker.store.schema.ledger import ON_OWN, LedgerEntryRow, SpendGroupRow, SpendSumRow
from broker.store.schema.row import Row

# Ordered, so that PostgreSQL, too, uses the index of the few long entries instead of reading the whole ledger.
_ANY_LONG = (
    "(SELECT 1 FROM ledger_entry WHERE account = 'spent' AND covers_to - covers_from > 86400000000"
    " AND covers_to > :left AND covers_from < :right ORDER BY covers_to LIMIT 1)"
)
_LAST_LONG = text(
    "SELECT covers_to FROM ledger_entry WHERE account = 'spent' AND covers_to - covers_from > 86400000000"
    " ORDER BY covers_to DESC LIMIT 1"
)
_MONTH = 32 * DAY
_SUMS_WITHIN = select(SpendSumRow).where(
    SpendSumRow.size == bindparam("size"),
    SpendSumRow.group_id.in_(select(SpendGroupRow.id)),
    SpendSumRow.slot >= bindparam("first"),
    SpendSumRow.slot < bindparam("after"),
    SpendSumRow.micros != 0,
)
_SPENT = LedgerEntryRow.account == Account.SPENT.value
_SPENT_WITHIN = select(
    *(getattr(LedgerEntryRow, name) for name in ("micros", "covers_from", "covers_to")),
    *(getattr(LedgerEntryRow, name) for name in ("money", "user_name", "team", "project", "workload", "environment")),
).where(
    _SPENT,
    LedgerEntryRow.covers_to - LedgerEntryRow.covers_from <= DAY,
    LedgerEntryRow.covers_to >= bindparam("start"),
    LedgerEntryRow.covers_to <= bindparam("end") + DAY,
)
_FIRST_AND_LAST = select(
    select(func.min(LedgerEntryRow.covers_to) - DAY).where(_SPENT).scalar_subquery(),
    select(func.max(LedgerEntryRow.covers_to)).where(_SPENT).scalar_subquery(),
    select(func.min(SpendSumRow.slot * SpendSumRow.size)).scalar_subquery(),
    select(func.max(SpendSumRow.slot * SpendSumRow.size)).scalar_subquery(),
)
Condition = ColumnElement[bool] | TextClause
_PATTERN_SIGNS = "*?["
_ADD = text(
    "INSERT INTO spend_sum (size, group_id, slot, micros) VALUES (:size, :group_id, :slot, :micros)"
    " ON CONFLICT (size, group_id, slot) DO UPDATE SET micros = spend_sum.micros + excluded.micros"
)

_NAME = text(
    "INSERT INTO spend_group (key, money, user_name, team, project, workload, environment)"
    " VALUES (:key, :money, :user_name, :team, :project, :workload, :environment) ON CONFLICT (key) DO NOTHING"
)


def keep(connection: Connection, entries: Iterable[Entry]) -> None:
    """Add entries to the sums. A group is created with its first entry, even if nothing was spent."""
    tags_by_key: dict[str, Mapping[str, str | None]] = {}
    groups: dict[str, int] = {}
    sums: dict[tuple[int, int, int], int] = defaultdict(int)
    for entry in entries:
        tags = _tags(entry)
        key = _tags_key(tags.values())
        tags_by_key.setdefault(key, tags)
        start, end = to_micros(entry.covers_from), to_micros(entry.covers_to)
        if entry.account is not Account.SPENT or end - start > DAY:
            continue
        if key not in groups:
            groups[key] = _group(connection, key, tags)
        for size in SIZES:
            for slot, micros in slots(entry.amount.micros, start, end, size):
                sums[size, groups[key], slot] += micros
    # Always in the same order, to avoid deadlocks.
    rows = [
        {"size": size, "group_id": group, "slot": slot, "micros": m} for (size, group, slot), m in sorted(sums.items())
    ]
    if rows:
        connection.execute(_ADD, rows)
    for key, tags in sorted(tags_by_key.items()):
        if key not in groups:
            connection.execute(_NAME, {"key": key, **tags})


def forget(connection: Connection) -> None:
    connection.execute(delete(SpendSumRow))
    connection.execute(delete(SpendGroupRow))


def spent(connection: Connection, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
    """The spend under the budget in [start, end) (UTC), entries across an edge in part.

    Read from the sums, and from entries where these are too coarse.
    """
    left, right = to_micros(start), to_micros(end)
    whole_slots, remaining = spans(left, right)
    parameters: dict[str, object] = {"left": left, "right": right}
    for n, (size, first, after) in enumerate(whole_slots):
        parameters |= {f"size_{n}": size, f"first_{n}": first, f"after_{n}": after}
    key = (budget, len(whole_slots), connection.dialect.name)
    query = cached_statement(_slots_query, connection, key, looks_up=has_patterns(budget))
    *sums, any_long = connection.execute(query, parameters).one()
    total = sum(map(int, sums))
    if any_long:
        total += _entries_total(
            connection, budget, left, right, LedgerEntryRow.covers_to - LedgerEntryRow.covers_from > DAY
        )
    for piece in remaining:
        short = and_(
            LedgerEntryRow.covers_to - LedgerEntryRow.covers_from <= DAY, LedgerEntryRow.covers_to <= piece[1] + DAY
        )
        total += _entries_total(connection, budget, *piece, short)
    return Money(total)


def spent_on_own(connection: Connection, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
    """The part of `spent` that was for owned and reserved capacity, including payments in advance.

    Summed from the entries, so the time for this grows with their number in the period.
    """
    left, right = to_micros(start), to_micros(end)

    is_within = and_(
        LedgerEntryRow.covers_from >= left, LedgerEntryRow.covers_to >= left, LedgerEntryRow.covers_to < right
    )
    in_budget = (one_of(LedgerEntryRow.money, budget.counts), *in_scope(connection, LedgerEntryRow, budget))
    inside_total = (
        connection.scalar(
            select(func.coalesce(func.sum(LedgerEntryRow.micros), 0)).where(ON_OWN, *in_budget, is_within)
        )
        or 0
    )
    return Money(int(inside_total) + _entries_total(connection, budget, left, right, ON_OWN, not_(is_within)))


def daily(connection: Connection, budget: BudgetSpec, since: datetime, until: datetime) -> list[Money]:
    """The spend under the budget on each day between two midnights (UTC), oldest first.

    Without spend that has no workload, such as purchases, and without entries over more than a day.
    """
    first, after = to_micros(since) // DAY, to_micros(until) // DAY
    query = cached_statement(_daily_query, connection, budget, looks_up=has_patterns(budget))
    micros_by_day = {row.slot: int(row.micros) for row in connection.execute(query, {"first": first, "after": after})}
    return [Money(micros_by_day.get(slot, 0)) for slot in range(first, after)]


def _daily_query(connection: Connection | None, budget: BudgetSpec) -> Select[*tuple[Any, ...]]:
    groups = select(SpendGroupRow.id).where(
        SpendGroupRow.workload.is_not(None),
        one_of(SpendGroupRow.money, budget.counts),
        *in_scope(connection, SpendGroupRow, budget),
    )
    within = (
        SpendSumRow.size == DAY,
        SpendSumRow.slot >= bindparam("first"),
        SpendSumRow.slot < bindparam("after"),
        SpendSumRow.group_id.in_(groups),
    )
    return (
        select(SpendSumRow.slot, func.sum(SpendSumRow.micros).label("micros")).where(*within).group_by(SpendSumRow.slot)
    )


def spent_until(connection: Connection, budget: BudgetSpec) -> datetime:
    """A time (UTC) after which nothing was spent under the budget: the later of the end of its last slot and of the
    last long entry of any budget.
    """
    query = cached_statement(_last_slot_query, connection, budget, looks_up=has_patterns(budget))
    slot, long = connection.scalar(query), connection.scalar(_LAST_LONG)
    return from_micros(max(0 if slot is None else (slot + 1) * QUARTER, long or 0))


def _last_slot_query(connection: Connection | None, budget: BudgetSpec) -> Select[*tuple[Any, ...]]:
    """The last slot of any group that counts under a budget. One index lookup per group."""
    last = (
        select(func.max(SpendSumRow.slot))
        .where(SpendSumRow.size == QUARTER, SpendSumRow.group_id == SpendGroupRow.id)
        .correlate(SpendGroupRow)
    )
    last_slots = select(last.scalar_subquery().label("slot"))
    groups = last_slots.where(
        one_of(SpendGroupRow.money, budget.counts), *in_scope(connection, SpendGroupRow, budget)
    ).subquery()
    return select(func.max(groups.c.slot))


def _slots_query(connection: Connection | None, key: tuple[BudgetSpec, int, str]) -> Select[*tuple[Any, ...]]:
    """The query for the spend under a budget in a number of ranges of whole slots, and whether there are entries over
    more than a day. One query, as writers execute it while others wait.
    """
    budget, ranges, dialect = key
    groups = select(SpendGroupRow.id).where(
        one_of(SpendGroupRow.money, budget.counts), *in_scope(connection, SpendGroupRow, budget)
    )
    # PostgreSQL finds the groups first and uses the index for each only if they are an array.
    numbers = func.any(func.array(groups.scalar_subquery())) if dialect == "postgresql" else None
    is_counted = SpendSumRow.group_id.in_(groups) if numbers is None else SpendSumRow.group_id == numbers
    sums = [
        select(func.coalesce(func.sum(SpendSumRow.micros), 0))
        .where(
            SpendSumRow.size == bindparam(f"size_{n}"),
            SpendSumRow.slot >= bindparam(f"first_{n}"),
            SpendSumRow.slot < bindparam(f"after_{n}"),
            is_counted,
        )
        .scalar_subquery()
        for n in range(ranges)
    ]
    return select(*sums, text(_ANY_LONG))


def nonzero_sums(connection: Connection) -> dict[tuple[str, int, int], int]:
    """Every stored sum that is not zero, by tags (JSON), size of the slot, and slot."""
    groups = {row.id: row.key for row in connection.execute(select(SpendGroupRow.id, SpendGroupRow.key))}
    rows = connection.execute(select(SpendSumRow).where(SpendSumRow.micros != 0))
    return {(groups[row.group_id], row.size, row.slot): row.micros for row in rows}


def compare(connection: Connection) -> tuple[int, int]:
    """The number of sums that are not zero, and of those that differ from the entries; compared one month of slots at a
    time.
    """
    groups = {row.id: row.key for row in connection.execute(select(SpendGroupRow.id, SpendGroupRow.key))}
    edges = [time for time in connection.execute(_FIRST_AND_LAST).one() if time is not None]
    total = differing = 0
    for start in range(min(edges) // DAY * DAY, max(edges) + DAY, _MONTH) if edges else ():
        sums = {
            (groups[row.group_id], row.size, row.slot): row.micros
            for size in SIZES
            for row in connection.execute(
                _SUMS_WITHIN, {"size": size, "first": start // size, "after": (start + _MONTH) // size}
            )
        }
        total += len(sums)
        differing += len({key for key, _ in sums.items() ^ _sums_of_entries(connection, start, start + _MONTH).items()})
    return total, differing


def _sums_of_entries(connection: Connection, start: int, end: int) -> dict[tuple[str, int, int], int]:
    """The sums of the entries in the slots that begin in the half-open period, without zeros."""
    sums: dict[tuple[str, int, int], int] = defaultdict(int)
    parameters = {"start": start, "end": end}
    for amount, since, until, *tags in connection.execute(
        _SPENT_WITHIN, parameters, execution_options={"yield_per": 5_000}
    ):
        key = _tags_key(tags)
        for size in SIZES:
            for slot, micros in slots(amount, since, until, size):
                if start <= slot * size < end:
                    sums[key, size, slot] += micros
    return {key: micros for key, micros in sums.items() if micros}


def _entries_total(connection: Connection, budget: BudgetSpec, left: int, right: int, *conditions: Condition) -> int:
    query = select(LedgerEntryRow.micros, LedgerEntryRow.covers_from, LedgerEntryRow.covers_to).where(
        LedgerEntryRow.account == Account.SPENT.value,
        one_of(LedgerEntryRow.money, budget.counts),
        *in_scope(connection, LedgerEntryRow, budget),
        *conditions,
        LedgerEntryRow.covers_to >= left,
        LedgerEntryRow.covers_from < right,
    )
    return sum(amount_within(*row, left, right) for row in connection.execute(query))


def names(connection: Connection, word: str) -> frozenset[str]:
    """The names of every ``user``, ``team`` or ``project`` (``word``) with money in the ledger."""
    column = getattr(SpendGroupRow, "user_name" if word == "user" else word)
    return frozenset(filter(None, connection.scalars(select(column).distinct())))


def has_patterns(budget: BudgetSpec) -> bool:
    """Whether some names are patterns, which have to be looked up."""
    return any(_is_pattern(names) for names in _scope(budget).values())


def _scope(budget: BudgetSpec) -> Mapping[str, tuple[str, ...]]:
    """The budget's names by column."""
    return {
        "team": budget.teams,
        "project": budget.projects,
        "workload": budget.workloads,
        "user_name": budget.users,
        "environment": budget.environments,
    }


def _is_pattern(names: tuple[str, ...]) -> bool:
    return any(sign in name for name in names for sign in _PATTERN_SIGNS)


def in_scope(connection: Connection | None, row: type[Row], budget: BudgetSpec) -> list[ColumnElement[bool]]:
    """The conditions on rows that count.

    Patterns are replaced by the matching names in the store, as databases match patterns differently from rules.
    ``connection``: needed only for patterns.
    """
    conditions: list[ColumnElement[bool]] = []
    for column, names in _scope(budget).items():
        if _is_pattern(names):
            assert connection is not None
            names_in_store = connection.scalars(select(getattr(SpendGroupRow, column)).distinct())
            conditions.append(getattr(row, column).in_([name for name in names_in_store if matches(names, name)]))
        elif names:
            conditions.append(one_of(getattr(row, column), names))
    return conditions


def _tags(entry: Entry) -> Mapping[str, str | None]:
    """The columns by which entries are grouped."""
    return {"money": entry.money.value, **owner_row(entry.tags)}


def owner_row(tags: Tags) -> dict[str, str | None]:
    """The columns of whom an entry is for."""
    return {
        "user_name": tags.user,
        "team": tags.team,
        "project": tags.project,
        "workload": tags.workload,
        "environment": tags.environment,
    }


def _tags_key(tags: Iterable[str | None]) -> str:
    return json.dumps([*tags], separators=(",", ":"))


_BY_KEY = select(SpendGroupRow.id).where(SpendGroupRow.key == bindparam("key"))


def _group(connection: Connection, key: str, tags: Mapping[str, str | None]) -> int:
    existing = connection.scalar(_BY_KEY, {"key": key})
    if existing is not None:
        return int(existing)
    inserted = connection.execute(insert(SpendGroupRow).values(key=key, **tags))
    assert inserted.inserted_primary_key is not None
    return int(inserted.inserted_primary_key[0])
