"""The spend of each attempt paid in cash whose machines are gone, summed by the database.

Inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, and_, case, func, select

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Account, Movement
from broker.ledger.journal import PaidAttempt
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.jobs import JOB, MACHINE_TIME, STILL_THERE
from broker.store.tables.ledger import ENTRY

_T, _C = MACHINE_TIME.c, ENTRY.c
_TYPES = {kind.value: kind for kind in CapacityType}


def paid_attempts(
    connection: Connection, since: datetime | None, until: datetime | None, billed: str
) -> Iterator[PaidAttempt]:
    """The spend of attempts paid in cash with machines in the half-open period (UTC; None: no limit) that are gone, in
    any order. ``billed``: the part of the ids of movements that adjust to a charge.
    """
    adjusts = and_(_C.movement == Movement.ADJUST.value, _C.movement_id.like(f"%/{billed}/%"))
    mine = and_(_C.job_id == _T.job_id, _C.attempt == _T.attempt, _C.account == Account.SPENT.value)
    query = (
        select(
            _T.job_id, _T.attempt, _T.provider, _T.capacity_type, _T.since, _T.until, _T.micros, _T.nodes, JOB.c.closed,
            func.coalesce(func.sum(_C.micros), 0),
            func.sum(case((adjusts, _C.micros), else_=0)),
            func.sum(case((_C.movement_id.like(f"%/{EGRESS}/%"), 1), else_=0)),
        )
        .select_from(MACHINE_TIME.join(JOB, JOB.c.id == _T.job_id).outerjoin(ENTRY, mine))
        .where(_T.money == MoneyKind.CASH.value, _T.micros.is_not(None), _T.until < STILL_THERE)
        # Cash for reserved machines goes to the team that lends them: no provider charges it.
        .where(_T.capacity_type != CapacityType.RESERVED.value)
        .group_by(_T.until, _T.job_id, _T.attempt, JOB.c.closed)  # in the order of the index that finds them
    )  # fmt: skip
    if since is not None:
        query = query.where(_T.until >= to_micros(since))
    if until is not None:
        query = query.where(_T.since < to_micros(until))
    for (
        job_id,
        attempt,
        provider,
        kind,
        first,
        last,
        price,
        nodes,
        closed,
        spent,
        adjusted,
        moved,
    ) in connection.execute(query):
        yield PaidAttempt(
            job_id, attempt, provider, _TYPES[kind], from_micros(first), from_micros(last), Money(price), nodes,
            bool(closed), Money(int(spent)), Money(int(adjusted)), bool(moved),
        )  # fmt: skip
