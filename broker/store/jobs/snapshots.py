"""Which jobs have their files in a pool of snapshots. Reads the text of views, so that jobs that this version cannot
read count, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, or_, select

from broker.store.engine.times import to_micros
from broker.store.tables.jobs import JOB, UNCLOSED

_TREE = re.compile(r'"tree":\s*"([0-9a-f]{64})"')


def of_pool(
    connection: Connection, pool: str, since: datetime | None = None
) -> Iterator[tuple[str, bool, frozenset[str]]]:
    """For each job whose view names the pool, oldest first, streamed: its id, whether it is closed, and the ids of
    trees. ``since`` (UTC): only jobs that are open or were submitted since; without it every job of the store is
    read."""
    query = select(JOB.c.id, JOB.c.closed, JOB.c.view).where(JOB.c.view.contains(pool, autoescape=True))
    if since is not None:
        query = query.where(or_(UNCLOSED, JOB.c.submitted_at >= to_micros(since)))
    query = query.order_by(JOB.c.submitted_at, JOB.c.id)
    for rows in connection.execute(query, execution_options={"yield_per": 500}).partitions():
        for row in rows:
            yield row.id, bool(row.closed), frozenset(_TREE.findall(row.view))
