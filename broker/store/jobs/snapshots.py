"""Which jobs have files in which pool of snapshots.

Reads the text of views, so that jobs that this version cannot read are included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import CompoundSelect, Connection, Select, select, union_all

from broker.store.engine.times import to_micros
from broker.store.schema.jobs import UNCLOSED, JobRow

_TREE = re.compile(r'"tree":\s*"([0-9a-f]{64})"')
_COLUMNS = (JobRow.id, JobRow.closed, JobRow.view)
_POOL = re.compile(r'"pool":\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class SnapshotUse:
    """A job with the trees of its files, and the pools named in its view. A tree may be in any of these."""

    job: str
    closed: bool
    pools: frozenset[str]
    trees: frozenset[str]


def uses(connection: Connection) -> Iterator[SnapshotUse]:
    """Every job of the store with a snapshot, including unreadable ones; oldest first, streamed."""
    query = select(*_COLUMNS).where(JobRow.view.contains('"tree"'))
    return _uses(connection, query.order_by(JobRow.submitted_at, JobRow.id))


def trees_since(connection: Connection, pool: str, since: datetime) -> frozenset[str]:
    """The ids of trees in that pool of snapshots, of jobs that are open or were submitted since that time (UTC)."""
    in_pool = select(*_COLUMNS).where(JobRow.view.contains(pool, autoescape=True))
    # Two queries: for a single one with `or`, SQLite would read all jobs.
    query = union_all(in_pool.where(UNCLOSED), in_pool.where(JobRow.submitted_at >= to_micros(since)))
    return frozenset(tree for use in _uses(connection, query) for tree in use.trees)


def _uses(
    connection: Connection, query: Select[str, bool, str] | CompoundSelect[str, bool, str]
) -> Iterator[SnapshotUse]:
    for rows in connection.execute(query, execution_options={"yield_per": 500}).partitions():
        for id, closed, view in rows:
            yield SnapshotUse(id, bool(closed), frozenset(_POOL.findall(view)), frozenset(_TREE.findall(view)))
