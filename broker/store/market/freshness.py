"""The freshness of each provider's offers, from offers and polls."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, case, func, select

from broker.store.engine.statement_cache import values_of
from broker.store.engine.times import from_micros, to_micros
from broker.store.market.polls import last_polls
from broker.store.records import Freshness, PollStatus
from broker.store.tables.market import OFFER, POLL


def freshness(connection: Connection, now: datetime) -> dict[str, Freshness]:
    """See `MarketHistory.freshness`."""
    runs = last_polls(connection)
    # Ordered by number, not by date: a clock may have been set back.
    providers = values_of(POLL.c.provider)
    well = (POLL.c.provider == providers.c.value, POLL.c.status.in_((PollStatus.OK.value, PollStatus.ACCEPTED.value)))
    newest = select(POLL.c.id).where(*well).order_by(POLL.c.id.desc()).limit(1).scalar_subquery()
    ids = select(newest).select_from(providers)
    rows = connection.execute(select(POLL.c.provider, POLL.c.finished).where(POLL.c.id.in_(ids)))
    successes = {provider: from_micros(finished) for provider, finished in rows}
    c = OFFER.c
    dated = c.reference.is_(False)  # reference prices have no age limit
    too_old = and_(dated, c.max_age.is_not(None), c.as_of + c.max_age < to_micros(now))
    told = connection.execute(
        select(
            c.polled_by,
            func.count(),
            func.sum(case((too_old, 1), else_=0)),
            func.min(c.as_of),
            func.max(c.as_of),
            func.min(case((dated, c.max_age))),
            func.count(c.doubt),
        )
        .where(c.ended_at.is_(None), ~c.superseded)
        .group_by(c.polled_by)
    )
    offers = {row[0]: tuple(row[1:]) for row in told}
    found = {}
    for name in sorted({*runs, *offers}):
        count, stale, oldest, newest, limit, doubted = offers.get(name, (0, 0, None, None, None, 0))
        found[name] = Freshness(
            provider=name,
            offers=count,
            stale=int(stale),
            oldest=None if oldest is None else from_micros(oldest),
            newest=None if newest is None else from_micros(newest),
            limit=None if limit is None else timedelta(microseconds=limit),
            last=runs.get(name),
            last_success=successes.get(name),
            doubted=doubted,
        )
    return found
