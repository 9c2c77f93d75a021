"""The entries of spend that are billed in a month, with their machines, streamed."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, and_, or_, select

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.finops.focus.charges import SpentEntry
from broker.finops.focus.months import BillingMonth
from broker.ledger.entries import Account, Entry, Movement
from broker.store.engine.times import from_micros, to_micros
from broker.store.ledger.ledger import TAG_COLUMNS, tags_of
from broker.store.tables.jobs import MACHINE_TIME
from broker.store.tables.ledger import ENTRY

_AT_ONCE = 5_000  # entries read at once
_MOVEMENTS = {movement.value: movement for movement in Movement}
_KINDS = {kind.value: kind for kind in MoneyKind}


def billed_in(connection: Connection, month: BillingMonth) -> Iterator[SpentEntry]:
    """The entries that may be billed in the month, in whole or in part (see `broker.finops.focus.months`), in posting
    order, streamed. Without simulated money.
    """
    c, machine = ENTRY.c, MACHINE_TIME.c
    start, end = to_micros(month.start), to_micros(month.end)
    closed, closes = to_micros(month.before.closes), to_micros(month.closes)
    of_it = and_(c.covers_from < end, or_(c.covers_to > start, c.covers_from >= start))
    late = and_(c.at >= closed, c.covers_from < start)
    of_machines = and_(machine.job_id == c.job_id, machine.attempt == c.attempt)
    query = (
        select(
            c.movement_id, c.movement, c.micros, c.money, c.at, c.covers_from, c.covers_to, c.note, *TAG_COLUMNS,
            machine.instance_type, machine.nodes, c.id,
        )
        .select_from(ENTRY.outerjoin(MACHINE_TIME, of_machines))
        .where(c.account == Account.SPENT.value, c.money != MoneyKind.SANDBOX.value, c.at < closes, or_(of_it, late))
        .order_by(c.id)
        .limit(_AT_ONCE)
    )  # fmt: skip
    last = 0
    while rows := connection.execute(query.where(c.id > last)).all():
        for row in rows:
            id, movement, micros, money, at, since, until, note, *tags, instance_type, nodes, _ = row
            entry = Entry(
                id, _MOVEMENTS[movement], Account.SPENT, Money(micros), _KINDS[money], from_micros(at),
                from_micros(since), from_micros(until), tags_of(tuple(tags)), note,
            )  # fmt: skip
            yield SpentEntry(entry, instance_type, nodes)
        last = rows[-1].id
