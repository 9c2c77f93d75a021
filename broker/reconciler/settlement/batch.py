"""What machines that run have cost, settled for many jobs in one transaction; in turn, so that nobody is starved.

What is to be posted is reckoned from one look at the store, before the transaction that posts it: that one keeps every
other writer waiting, and the first settlement after an upgrade reads all entries of a job. It posts only for jobs of
which nothing else was recorded meanwhile. Jobs that were not settled, also because the process was killed, are due
again with the next look.

A job for which something is due joins the end of the line and leaves it when it was settled; more than a look settles
wait for the next looks. So however many jobs run, each one's turn comes after no more than those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from broker.core.events.views import JobView
from broker.ledger.entries import Entry, Sum
from broker.ledger.journal import Journal, Reading, Writing
from broker.ledger.meter import Meter
from broker.reconciler.settlement.settlement import LATE, Settled, is_due, is_metered, settle

# So many jobs are settled in one transaction, which keeps every other writer waiting, and so many in one look.
AT_ONCE, AT_MOST = 10, 300


def post_due(
    tx: Writing, views: Sequence[JobView], now: datetime, every: timedelta = timedelta(0), late: timedelta = LATE
) -> None:
    """Post what `settle` finds for these jobs, as they are on record in this transaction. Call `catch_up` before it."""
    ids = [view.id for view in views]
    sums, meters = tx.sums(ids), tx.meters(ids)
    entries: list[Entry] = []
    kept: dict[str, Mapping[int, Meter]] = {}
    for view in views:
        settled = settle(
            view, sums.get(view.id, ()), meters.get(view.id, {}), tx.price_series, tx.posted, now, every, late
        )
        entries += settled.entries
        kept[view.id] = settled.meters
    tx.post(entries)
    tx.keep_meters(kept)


@dataclass(frozen=True, slots=True)
class _Reckoned:
    """What settles a job, and what was on record of it when that was reckoned."""

    view: JobView
    sums: Sequence[Sum]
    meters: Mapping[int, Meter]
    settled: Settled


def _reckon(look: Reading, views: Sequence[JobView], now: datetime, every: timedelta) -> list[_Reckoned]:
    """What settles these jobs as a look at the store has them; those of which something was recorded since their view
    was read, and those with nothing to be posted, are left out."""
    ids = [view.id for view in views]
    last, sums, meters = look.last_events(ids), look.sums(ids), look.meters(ids)
    found = []
    for view in views:
        if last.get(view.id) != view.seq:
            continue
        known = sums.get(view.id, ()), meters.get(view.id, {})
        settled = settle(view, *known, look.price_series, look.posted, now, every)
        if settled.meters:  # whatever posts anything leaves one
            found.append(_Reckoned(view, *known, settled))
    return found


def _post(tx: Writing, reckoned: Sequence[_Reckoned]) -> None:
    """Post what was reckoned for the jobs of which nothing was recorded since."""
    ids = [one.view.id for one in reckoned]
    last, sums, meters = tx.last_events(ids), tx.sums(ids), tx.meters(ids)
    valid = [
        one
        for one in reckoned
        if last.get(one.view.id) == one.view.seq
        and sums.get(one.view.id, ()) == one.sums
        and meters.get(one.view.id, {}) == one.meters
    ]
    tx.post([entry for one in valid for entry in one.settled.entries])
    tx.keep_meters({one.view.id: one.settled.meters for one in valid})


def catch_up(journal: Journal, view: JobView, now: datetime) -> None:
    """Settle the job where nobody remembers how far its attempts are settled, as after an upgrade: that takes all its
    entries, which `post_due` would read while every other writer waits. Raises `StoreProblem`."""
    with journal.reading() as look:
        sums, meters = look.sums([view.id]).get(view.id, ()), look.meters([view.id]).get(view.id, {})
        reckoned = [] if is_metered(view, sums, meters) else _reckon(look, [view], now, timedelta(0))
    if reckoned:
        with journal.writing() as tx:
            _post(tx, reckoned)


class Settling:
    """The line of one reconciler. ``every``: how long a machine may run between two settlements."""

    def __init__(self, journal: Journal, every: timedelta, at_once: int = AT_ONCE, at_most: int = AT_MOST) -> None:
        self._journal, self._every = journal, every
        self._at_once, self._at_most = at_once, at_most
        self._line: dict[str, JobView] = {}

    def note(self, view: JobView, sums: Sequence[Sum], meters: Mapping[int, Meter], now: datetime) -> None:
        """Let the job join the line if anything is due; who waits keeps the place, and is settled as it is now."""
        if view.id in self._line or is_due(view, sums, meters, now, self._every):
            self._line[view.id] = view

    def settle(self, now: datetime) -> None:
        """Those whose turn it is. Of whom there is news meanwhile the next look notes again. Raises `StoreProblem`."""
        turn = list(islice(self._line.values(), self._at_most))
        for view in turn:
            del self._line[view.id]
        for first in range(0, len(turn), self._at_once):
            some = turn[first : first + self._at_once]
            with self._journal.reading() as look:
                reckoned = _reckon(look, some, now, self._every)
            if reckoned:
                with self._journal.writing() as tx:
                    _post(tx, reckoned)

    def forget(self, job_id: str) -> None:
        """The job is closed."""
        self._line.pop(job_id, None)
