"""Deletes old market history, except changes needed for moments after the cut-off or for launched attempts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, delete, func, select

from broker.core.events.views import JobView
from broker.store.engine.times import to_micros
from broker.store.records import SUCCESSES, PrunedPrices
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceChangeRow, SignalChangeRow
from broker.store.schema.row import Row

BATCH = 500  # series per transaction, so that other writers do not wait long


_STILL_USED = 2**62  # microseconds; the end of the time for which a running attempt needs a series


class Uses:
    """Time ranges (microseconds) during which attempts need a series, each from a decision until a machine was gone.

    Overlapping and adjacent times are merged.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first = bisect_right(self._starts, start)
        if first and self._ends[first - 1] >= start:
            first -= 1
        after = bisect_right(self._starts, end)
        if first < after:
            start, end = min(start, self._starts[first]), max(end, self._ends[after - 1])
        self._starts[first:after], self._ends[first:after] = [start], [end]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)


@dataclass(slots=True)
class Cut:
    """One pruning.

    ``at``: the cut-off (microseconds). With ``dry``, rows are only counted.
    """

    at: int
    uses: Mapping[int, Uses]
    dry: bool
    dropped: dict[str, int] = field(default_factory=lambda: {"prices": 0, "signals": 0, "polls": 0, "protected": 0})

    def result(self) -> PrunedPrices:
        return PrunedPrices(**self.dropped)


def uses(connection: Connection, views: Iterable[JobView]) -> dict[int, Uses]:
    """The times for which the attempts of these jobs need each series."""
    wanted: dict[tuple[str, str], Uses] = defaultdict(Uses)
    for view in views:
        for attempt in view.attempts:
            offer = attempt.placement.offer
            # An attempt that is over may never have had a machine; then the time ends with the attempt.
            gone = (attempt.gone_at or attempt.ended_at or attempt.requested_at) if attempt.over else None
            # The price of the decision may be dated before it.
            start = min(to_micros(attempt.requested_at), to_micros(offer.as_of))
            wanted[offer.pool, offer.source].add(start, _STILL_USED if gone is None else max(start, to_micros(gone)))
    if not wanted:
        return {}
    rows = connection.execute(
        select(PoolRow.key, OfferRow.source, OfferRow.id).join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
    )
    return {row.id: wanted[row.key, row.source] for row in rows if (row.key, row.source) in wanted}


def all_series(connection: Connection) -> list[int]:
    """The ids of all series."""
    return list(connection.scalars(select(OfferRow.id).order_by(OfferRow.id)))


def cut_series(connection: Connection, cut: Cut, batch: Sequence[int]) -> None:
    """Delete the changes of these series (consecutive ids) that are not needed."""
    for series, at in _in_force(connection, PriceChangeRow, cut.at, batch):
        if series in cut.uses:
            known, unused = _unused(connection, series, at, cut.uses[series])
            cut.dropped["prices"] += len(unused)
            cut.dropped["protected"] += known - len(unused)
            if unused and not cut.dry:
                connection.execute(_DROP_ONE, [{"of": series, "when": moment} for moment in unused])
            continue
        cut.dropped["prices"] += _drop(
            connection, PriceChangeRow, and_(PriceChangeRow.series == series, PriceChangeRow.at < at), dry=cut.dry
        )
    for series, at in _in_force(connection, SignalChangeRow, cut.at, batch):
        old = and_(SignalChangeRow.series == series, SignalChangeRow.at < at)
        cut.dropped["signals"] += _drop(connection, SignalChangeRow, old, dry=cut.dry)


def _in_force(
    connection: Connection, row: type[PriceChangeRow] | type[SignalChangeRow], at: int, batch: Sequence[int]
) -> list[tuple[int, int]]:
    """The series of the batch with changes before ``at`` that may be deleted, each with the time of the first change to
    keep: the one in force at ``at`` or, if that has no price, the last one with a price, which bills use.
    """
    newest = func.max(row.at)
    last_priced = func.max(case((PriceChangeRow.micros.is_not(None), row.at))) if row is PriceChangeRow else newest
    rows = connection.execute(
        select(row.series, newest, last_priced, func.min(row.at))
        .where(row.series.between(batch[0], batch[-1]), row.at <= at)
        .group_by(row.series)
    )
    found = [(series, min(newest, newest if other is None else other), first) for series, newest, other, first in rows]
    return [(series, kept_from) for series, kept_from, first in found if first < kept_from]


_DROP_ONE = delete(PriceChangeRow).where(
    PriceChangeRow.series == bindparam("of"), PriceChangeRow.at == bindparam("when")
)


def _unused(connection: Connection, series: int, before: int, uses: Uses) -> tuple[int, list[int]]:
    """The number of changes of a series before ``before``, and the times of those that no attempt needs.

    An attempt needs the change in force at its decision, the last one with a price by then, and all until its machine
    was gone. Decisions at ``before`` or later need none of these.
    """
    query = select(PriceChangeRow.at, PriceChangeRow.micros.is_not(None)).where(
        PriceChangeRow.series == series, PriceChangeRow.at < before
    )
    changes = [(at, priced) for at, priced in connection.execute(query.order_by(PriceChangeRow.at))]
    moments, priced = [at for at, _ in changes], [at for at, has_price in changes if has_price]
    unused: list[int] = []
    judged = 0  # number of changes processed
    for start, end in uses:
        if start >= before:
            break
        known_price = bisect_right(priced, start)
        first = bisect_left(moments, priced[known_price - 1]) if known_price else bisect_right(moments, start) - 1
        unused += moments[judged : max(first, 0)]
        judged = max(judged, first, bisect_right(moments, end))
    return len(moments), unused + moments[judged:]


def cut_polls(connection: Connection, cut: Cut) -> None:
    """Delete old poll runs, except each provider's newest, its newest successful one, and its newest complete one
    before the cut-off."""
    kept: set[int] = set()
    by_then = PollRunRow.finished < cut.at
    for wanted in (True, PollRunRow.status.in_(SUCCESSES), PollRunRow.complete & by_then):
        query = select(func.max(PollRunRow.id)).group_by(PollRunRow.provider)
        kept |= set(connection.scalars(query if wanted is True else query.where(wanted)))
    cut.dropped["polls"] += _drop(connection, PollRunRow, and_(by_then, PollRunRow.id.not_in(kept)), dry=cut.dry)


def _drop(connection: Connection, table: type[Row], which: ColumnElement[bool], *, dry: bool) -> int:
    if dry:
        return connection.scalar(select(func.count()).select_from(table).where(which)) or 0
    return connection.execute(delete(table).where(which)).rowcount
