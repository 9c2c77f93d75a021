"""Forgetting old market history, but never what a moment after the cut-off or a launched attempt needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, Table, and_, case, delete, func, not_, select

from broker.core.events.views import JobView
from broker.store.engine.times import to_micros
from broker.store.records import PollStatus, Pruned
from broker.store.tables import OFFER, POLL, POOL, PRICE, SIGNAL

BATCH = 500  # series a transaction: nobody who writes meanwhile waits for long


@dataclass(frozen=True, slots=True)
class Use:
    """A launched attempt's need of a series (microseconds): from its decision until its machine was gone; ``end`` is
    None while it lives."""

    start: int
    end: int | None


@dataclass(slots=True)
class Cut:
    """One pruning. ``at``: the cut-off (microseconds). With ``dry``, everything is only counted."""

    at: int
    uses: Mapping[int, Sequence[Use]]
    dry: bool
    dropped: dict[str, int] = field(default_factory=lambda: {"prices": 0, "signals": 0, "polls": 0, "protected": 0})

    def result(self) -> Pruned:
        return Pruned(**self.dropped)


def uses(connection: Connection, views: Sequence[JobView]) -> dict[int, list[Use]]:
    """What the attempts of these jobs refer to, by series."""
    wanted: dict[tuple[str, str], list[Use]] = defaultdict(list)
    for view in views:
        for attempt in view.attempts:
            offer = attempt.placement.offer
            # Where no machine ever was, nobody saw one go.
            gone = (attempt.gone_at or attempt.ended_at or attempt.requested_at) if attempt.over else None
            # The price that was decided on may have been dated before the decision.
            start = min(to_micros(attempt.requested_at), to_micros(offer.as_of))
            wanted[offer.pool, offer.source].append(Use(start, None if gone is None else to_micros(gone)))
    if not wanted:
        return {}
    rows = connection.execute(
        select(POOL.c.key, OFFER.c.source, OFFER.c.id).join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)
    )
    return {row.id: wanted[row.key, row.source] for row in rows if (row.key, row.source) in wanted}


def all_series(connection: Connection) -> list[int]:
    """The ids of every series there is."""
    return list(connection.scalars(select(OFFER.c.id).order_by(OFFER.c.id)))


def cut_series(connection: Connection, cut: Cut, batch: Sequence[int]) -> None:
    """Drop the changes of these series (ids in a row) that nothing needs any more."""
    for series, at in _in_force(connection, PRICE, cut.at, batch, priced=True):
        old = and_(PRICE.c.series == series, PRICE.c.at < at)
        needs = [_needed(connection, series, use) for use in cut.uses.get(series, ())]
        dropped = _drop(connection, PRICE, and_(old, *(not_(need) for need in needs)), dry=cut.dry)
        cut.dropped["prices"] += dropped
        if needs:
            left = _count(connection, PRICE, old)
            cut.dropped["protected"] += left - dropped if cut.dry else left
    for series, at in _in_force(connection, SIGNAL, cut.at, batch, priced=False):
        old = and_(SIGNAL.c.series == series, SIGNAL.c.at < at)
        cut.dropped["signals"] += _drop(connection, SIGNAL, old, dry=cut.dry)


def _in_force(
    connection: Connection, table: Table, at: int, batch: Sequence[int], *, priced: bool
) -> list[tuple[int, int]]:
    """The series of the batch that have something before it, each with the change in force at that moment. Where that
    has no price, the last one that had: bills go on with it."""
    c = table.c
    newest = func.max(c.at)
    last_priced = func.max(case((c.micros.is_not(None), c.at))) if priced else newest
    rows = connection.execute(
        select(c.series, newest, last_priced, func.min(c.at))
        .where(c.series.between(batch[0], batch[-1]), c.at <= at)
        .group_by(c.series)
    )
    found = [(series, min(newest, newest if other is None else other), first) for series, newest, other, first in rows]
    return [(series, kept_from) for series, kept_from, first in found if first < kept_from]


def _needed(connection: Connection, series: int, use: Use) -> ColumnElement[bool]:
    """The changes that an attempt refers to: the one in force at its decision, and all until it was gone."""
    at = PRICE.c.at
    before = select(func.max(at)).where(PRICE.c.series == series, at <= use.start)
    moments = (connection.scalar(before), connection.scalar(before.where(PRICE.c.micros.is_not(None))))
    start = min((moment for moment in moments if moment is not None), default=use.start)
    return at >= start if use.end is None else at.between(start, use.end)


def cut_polls(connection: Connection, cut: Cut) -> None:
    """Drop old poll runs, but each provider's newest, and its newest that went well or told everything by the
    cut-off."""
    kept: set[int] = set()
    by_then = POLL.c.finished < cut.at
    for wanted in (True, POLL.c.status == PollStatus.OK.value, POLL.c.complete & by_then):
        query = select(func.max(POLL.c.id)).group_by(POLL.c.provider)
        kept |= set(connection.scalars(query if wanted is True else query.where(wanted)))
    cut.dropped["polls"] += _drop(connection, POLL, and_(by_then, POLL.c.id.not_in(kept)), dry=cut.dry)


def _drop(connection: Connection, table: Table, which: ColumnElement[bool], *, dry: bool) -> int:
    if dry:
        return _count(connection, table, which)
    return connection.execute(delete(table).where(which)).rowcount


def _count(connection: Connection, table: Table, which: ColumnElement[bool]) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(which)) or 0
