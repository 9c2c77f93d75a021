"""Changes of availability, and ends of attempts: the data for risk estimates, aggregated in SQL."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Select, and_, bindparam, func, or_, select, union_all
from sqlalchemy.orm import aliased

from broker.core.events.outcomes import Cause
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import MAX_PARAMETERS, batches, cached_statement, values_of
from broker.store.market.doubts import ENDED
from broker.store.market.market import conditions, has_patterns
from broker.store.market.offer_rows import OFFER_QUERY, to_offers
from broker.store.market.polls import CODES
from broker.store.schema.jobs import AttemptEventRow, JobRow
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceChangeRow
from broker.store.schema.row import columns_of

_IS_AVAILABLE = {CODES[Availability.AVAILABLE]: True, CODES[Availability.UNAVAILABLE]: False, ENDED: False}
_ATTEMPT = ("launch_requested", "machine_up", "attempt_ended")
_OFFER_FIELDS = (
    *("provider", "region", "zone", "instance_type", "accelerator", "count"),
    *("source", "term_months", "score", "interruption_rate"),
)
_MAX_JOBS = 1_000
_OFFERS = OFFER_QUERY.add_columns(OfferRow.id, OfferRow.polled_by).where(
    OfferRow.id.in_(bindparam("series", expanding=True))
)


class SourceReport(NamedTuple):
    """The availability history of a pool by one source.

    ``offer``: the newest. ``changes``: the times (microseconds since 1970 UTC) from which it was available (True), sold
    out or no longer reported (False), or unknown (None). ``looked``: the provider's last successful poll.
    """

    offer: Offer
    changes: tuple[tuple[int, bool | None], ...]
    looked: int


class AttemptRecord(NamedTuple):
    """One attempt whose machines came up, or that was refused for lack of capacity (``since`` is its end then).

    Times are microseconds since 1970 UTC. ``ended``: None while it continues; ``cause``: the
    `broker.core.events.outcomes.Cause` of its end.
    """

    offer: Offer
    nodes: int
    since: int
    ended: int | None
    cause: str


def source_reports(connection: Connection, query: OfferQuery, since: datetime) -> list[SourceReport]:
    """The changes of availability from ``since`` on, beginning with the state in force then, of the matching series
    that were ever available. Without mere price changes.
    """
    changes: dict[int, list[tuple[int, bool | None]]] = {}
    statement = cached_statement(_changes_query, connection, query, looks_up=has_patterns(query))
    for series, at, code in connection.execute(statement, {"since": to_micros(since)}):
        changes.setdefault(series, []).append((at, _IS_AVAILABLE.get(code)))
    ever_available = [series for series, points in changes.items() if any(state for _, state in points)]
    last_polls = _last_polls(connection)
    reports = []
    for batch in batches(ever_available, MAX_PARAMETERS):
        offers = connection.execute(_OFFERS, {"series": batch}).all()
        for offer, row in zip(to_offers([row[:-2] for row in offers]), offers, strict=True):
            points = changes[row.id]
            reports.append(SourceReport(offer, tuple(points), last_polls.get(row.polled_by, points[-1][0])))
    return reports


def _changes_query(connection: Connection | None, query: OfferQuery) -> Select[Any]:
    """The query for each change of availability of the matching series, and the state of each at ``:since``."""
    since = bindparam("since", type_=BigInteger)
    matching_ids = select(OfferRow.id).join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
    filters = [condition for _, condition in conditions(connection, query)]
    earlier_change = aliased(PriceChangeRow, name="before")
    newest = select(earlier_change.at).where(earlier_change.series == OfferRow.id, earlier_change.at < since)
    in_force = (
        select(PriceChangeRow.series, PriceChangeRow.at, PriceChangeRow.availability)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .join(
            PriceChangeRow,
            and_(
                PriceChangeRow.series == OfferRow.id,
                PriceChangeRow.at == newest.order_by(earlier_change.at.desc()).limit(1).scalar_subquery(),
            ),
        )
        .where(*filters)
    )
    later = select(PriceChangeRow.series, PriceChangeRow.at, PriceChangeRow.availability).where(
        PriceChangeRow.series.in_(matching_ids.where(*filters)), PriceChangeRow.at >= since
    )
    c = union_all(in_force, later).subquery().c
    previous = func.lag(c.availability).over(partition_by=c.series, order_by=c.at).label("previous")
    changed = select(c.series, c.at, c.availability, previous).subquery().c
    return (
        select(changed.series, changed.at, changed.availability)
        .where(or_(changed.previous.is_(None), changed.previous != changed.availability))
        .order_by(changed.series, changed.at)
    )


def _last_polls_query() -> Select[Any]:
    providers = values_of(PollRunRow.provider)
    successful = select(PollRunRow.finished).where(PollRunRow.provider == providers.c.value, PollRunRow.error == "")
    return select(providers.c.value, successful.order_by(PollRunRow.finished.desc()).limit(1).scalar_subquery())


_LAST_POLLS = _last_polls_query()


def _last_polls(connection: Connection) -> dict[str, int]:
    """The last successful poll of each provider (microseconds)."""
    return {row[0]: row[1] for row in connection.execute(_LAST_POLLS) if row[1] is not None}


def attempts(connection: Connection, since: datetime) -> list[AttemptRecord]:
    """The attempts of the newest jobs submitted from ``since`` on, in order of job and number: those
    whose machines came up, and those that ended without machines for lack of capacity.
    """
    jobs = (
        select(JobRow.id)
        .where(and_(JobRow.submitted_at >= to_micros(since), JobRow.state != "queued"))
        .order_by(JobRow.submitted_at.desc())
        .limit(_MAX_JOBS)
    )
    rows = connection.execute(
        select(*columns_of(AttemptEventRow, "job_id", "attempt", "at", "kind", "body"))
        .where(AttemptEventRow.job_id.in_(jobs), AttemptEventRow.kind.in_(_ATTEMPT))
        .order_by(AttemptEventRow.job_id, AttemptEventRow.seq)
    )
    events_by_attempt: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        events_by_attempt.setdefault((row.job_id, row.attempt), {})[row.kind] = row
    records = (_attempt(events) for events in events_by_attempt.values() if "launch_requested" in events)
    return [record for record in records if record is not None]


def _attempt(events: Mapping[str, Any]) -> AttemptRecord | None:
    """Converts a row; None for an attempt that neither ran nor was refused."""
    placement = json.loads(events["launch_requested"].body)["placement"]
    end_event, offer_fields = events.get("attempt_ended"), placement["offer"]
    cause = "" if end_event is None else json.loads(end_event.body)["cause"]
    if "machine_up" in events:
        since = events["machine_up"].at
    elif end_event is not None and cause == Cause.NO_CAPACITY.value:
        since = end_event.at
    else:
        return None
    kind = CapacityType(offer_fields["capacity_type"])
    same_fields = {name: offer_fields.get(name) for name in _OFFER_FIELDS}
    offer = Offer(**same_fields, capacity_type=kind, price=None, as_of=from_micros(since))
    return AttemptRecord(
        offer=offer,
        nodes=placement["nodes"],
        since=since,
        ended=None if end_event is None else end_event.at,
        cause=cause,
    )
