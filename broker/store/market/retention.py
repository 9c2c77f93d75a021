"""Deletes old market history, except changes needed for moments after the cut-off or for launched attempts."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, delete, func, select

from broker.core.events.views import JobView
from broker.store.engine.fields import to_micros
from broker.store.records import SUCCESSES
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceChangeRow, SignalChangeRow
from broker.store.schema.row import Row

BATCH = 500  # series per transaction, so that other writers do not wait long


_STILL_USED = 2**62  # microseconds; the end of the time for which a running attempt needs a series


class NeededTimes:
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


PRUNED = ("price_changes", "signal_changes", "poll_runs", "protected")


@dataclass(slots=True)
class Pruning:
    """One pruning.

    ``at``: the cut-off (microseconds). With ``dry``, rows are only counted.
    """

    at: int
    uses: Mapping[int, NeededTimes]
    dry: bool
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PRUNED, 0))


def uses(connection: Connection, views: Iterable[JobView]) -> dict[int, NeededTimes]:
    """The times for which the attempts of these jobs need each series."""
    needed: dict[tuple[str, str], NeededTimes] = defaultdict(NeededTimes)
    for view in views:
        for attempt in view.attempts:
            offer = attempt.placement.offer
            # An attempt that is over may never have had a machine; then the time ends with the attempt.
            ended = (attempt.gone_at or attempt.ended_at or attempt.requested_at) if attempt.over else None
            # The price of the decision may be dated before it.
            start = min(to_micros(attempt.requested_at), to_micros(offer.as_of))
            needed[offer.pool, offer.source].add(start, _STILL_USED if ended is None else max(start, to_micros(ended)))
    if not needed:
        return {}
    rows = connection.execute(
        select(PoolRow.key, OfferRow.source, OfferRow.id).join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
    )
    return {row.id: needed[row.key, row.source] for row in rows if (row.key, row.source) in needed}


def all_series(connection: Connection) -> list[int]:
    return list(connection.scalars(select(OfferRow.id).order_by(OfferRow.id)))


def prune_series(connection: Connection, pruning: Pruning, batch: Sequence[int]) -> None:
    """Delete the changes of these series (consecutive ids) that are not needed."""
    for series, at in _in_force(connection, PriceChangeRow, pruning.at, batch):
        if series in pruning.uses:
            known, unused = _unused_changes(connection, series, at, pruning.uses[series])
            pruning.dropped["price_changes"] += len(unused)
            pruning.dropped["protected"] += known - len(unused)
            if unused and not pruning.dry:
                connection.execute(_DROP_ONE, [{"of": series, "when": moment} for moment in unused])
            continue
        pruning.dropped["price_changes"] += _drop(
            connection, PriceChangeRow, and_(PriceChangeRow.series == series, PriceChangeRow.at < at), dry=pruning.dry
        )
    for series, at in _in_force(connection, SignalChangeRow, pruning.at, batch):
        old = and_(SignalChangeRow.series == series, SignalChangeRow.at < at)
        pruning.dropped["signal_changes"] += _drop(connection, SignalChangeRow, old, dry=pruning.dry)


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
    bounds = [
        (series, min(newest, newest if priced_at is None else priced_at), first)
        for series, newest, priced_at, first in rows
    ]
    return [(series, kept_from) for series, kept_from, first in bounds if first < kept_from]


_DROP_ONE = delete(PriceChangeRow).where(
    PriceChangeRow.series == bindparam("of"), PriceChangeRow.at == bindparam("when")
)


def _unused_changes(connection: Connection, series: int, before: int, uses: NeededTimes) -> tuple[int, list[int]]:
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
    processed = 0  # number of changes processed
    for start, end in uses:
        if start >= before:
            break
        known_price = bisect_right(priced, start)
        first = bisect_left(moments, priced[known_price - 1]) if known_price else bisect_right(moments, start) - 1
        unused += moments[processed : max(first, 0)]
        processed = max(processed, first, bisect_right(moments, end))
    return len(moments), unused + moments[processed:]


def prune_polls(connection: Connection, pruning: Pruning) -> None:
    """Delete old poll runs, except each provider's newest, its newest successful one, and its newest complete one
    before the cut-off."""
    kept_ids: set[int] = set()
    before_cutoff = PollRunRow.finished < pruning.at
    for condition in (True, PollRunRow.status.in_(SUCCESSES), PollRunRow.complete & before_cutoff):
        query = select(func.max(PollRunRow.id)).group_by(PollRunRow.provider)
        kept_ids |= set(connection.scalars(query if condition is True else query.where(condition)))
    pruning.dropped["poll_runs"] += _drop(
        connection, PollRunRow, and_(before_cutoff, PollRunRow.id.not_in(kept_ids)), dry=pruning.dry
    )


def _drop(connection: Connection, table: type[Row], condition: ColumnElement[bool], *, dry: bool) -> int:
    if dry:
        return connection.scalar(select(func.count()).select_from(table).where(condition)) or 0
    return connection.execute(delete(table).where(condition)).rowcount
