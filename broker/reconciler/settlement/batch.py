"""Settles running machines of several jobs in one transaction, in turn, so that every job is settled.

Entries are computed from a snapshot of the store before the transaction that posts them, because the transaction blocks
all other writers and the first settlement after an upgrade reads all entries of a job. It posts only for jobs that have
no newer records. Jobs that were not settled, for example because the process was killed, are due again in the next
tick.

A job with an amount due joins the end of a queue and leaves it when settled; jobs beyond the limit per tick wait for
the next ticks. So each job waits only for those before it.
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
from broker.reconciler.settlement.outside import charged_outside, uncharged
from broker.reconciler.settlement.settlement import LATE, Settled, is_due, is_metered, release, settle

# The number of jobs settled in one transaction, which blocks all other writers, and in one tick.
AT_ONCE, AT_MOST = 10, 300


def post_due(
    tx: Writing, views: Sequence[JobView], now: datetime, every: timedelta = timedelta(0), late: timedelta = LATE
) -> None:
    """Settle these jobs in this transaction. Call `catch_up` before it."""
    views = [view for view in views if any(one.up_since is not None or one.outside for one in view.attempts)]
    if not views:
        return  # no machine was ever up
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
    for view in views:
        if left := uncharged(view, sums.get(view.id, ())):
            tx.post(charged_outside(view, tx.sums([view.id]).get(view.id, ()), left, tx.offers, now))


def release_all(tx: Writing, views: Sequence[JobView], now: datetime) -> None:
    """Settle all attempts of these jobs at the prices known now and release what the jobs still hold."""
    post_due(tx, views, now, late=timedelta.max)
    sums = tx.sums([view.id for view in views]) if views else {}
    tx.post([entry for view in views for entry in release(view, sums.get(view.id, ()), now)])


@dataclass(frozen=True, slots=True)
class _Reckoned:
    """The settlement of a job, and the records from which it was computed."""

    view: JobView
    sums: Sequence[Sum]
    meters: Mapping[int, Meter]
    settled: Settled


def _reckon(look: Reading, views: Sequence[JobView], now: datetime, every: timedelta) -> list[_Reckoned]:
    """The settlements of these jobs, from a snapshot of the store.

    Omits jobs that changed since their view was read, and empty settlements.
    """
    ids = [view.id for view in views]
    last, sums, meters = look.last_events(ids), look.sums(ids), look.meters(ids)
    found = []
    for view in views:
        if last.get(view.id) != view.seq:
            continue
        known = sums.get(view.id, ()), meters.get(view.id, {})
        settled = settle(view, *known, look.price_series, look.posted, now, every)
        if settled.meters:  # every settlement that posts entries has a meter
            found.append(_Reckoned(view, *known, settled))
    return found


def _post(tx: Writing, reckoned: Sequence[_Reckoned], now: datetime) -> None:
    """Post the settlements of jobs that have not changed since."""
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
    """Settle a job whose attempts have no meters, as after an upgrade: this reads all its entries, which `post_due`
    would do while it blocks all other writers. Raises `StoreProblem`."""
    with journal.reading() as look:
        sums, meters = look.sums([view.id]).get(view.id, ()), look.meters([view.id]).get(view.id, {})
        reckoned = [] if is_metered(view, sums, meters) else _reckon(look, [view], now, timedelta(0))
    if reckoned:
        with journal.writing() as tx:
            _post(tx, reckoned, now)


class Settling:
    """The settlement queue of one reconciler. ``every``: the interval between settlements of a running machine, in
    broker time."""

    def __init__(self, journal: Journal, every: timedelta, at_once: int = AT_ONCE, at_most: int = AT_MOST) -> None:
        self._journal, self._every = journal, every
        self._at_once, self._at_most = at_once, at_most
        self._line: dict[str, JobView] = {}

    def note(self, view: JobView, sums: Sequence[Sum], meters: Mapping[int, Meter], now: datetime) -> None:
        """Queue the job if anything is due; a queued job keeps its place and is settled with this view."""
        if view.id in self._line or is_due(view, sums, meters, now, self._every):
            self._line[view.id] = view

    def settle(self, now: datetime) -> None:
        """Settle the jobs whose turn it is. Jobs that change meanwhile are queued again by the next tick. Raises
        `StoreProblem`."""
        turn = list(islice(self._line.values(), self._at_most))
        for view in turn:
            del self._line[view.id]
        for first in range(0, len(turn), self._at_once):
            some = turn[first : first + self._at_once]
            with self._journal.reading() as look:
                reckoned = _reckon(look, some, now, self._every)
            if reckoned:
                with self._journal.writing() as tx:
                    _post(tx, reckoned, now)

    def forget(self, job_id: str) -> None:
        """Remove a closed job from the queue."""
        self._line.pop(job_id, None)
