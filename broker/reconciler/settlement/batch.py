"""Settles running machines of several jobs in one transaction, in turn, so that every job is settled.

Entries are computed from a snapshot of the store before the transaction that posts them, because the transaction blocks
all other writers and the first settlement after an upgrade reads all entries of a job. It posts only for jobs that have
no newer records. Jobs that were not settled, for example because the process was killed, are due again in the next
tick.

A job with an amount due joins the end of a queue and leaves it when settled; jobs beyond the limit per tick wait for
the next ticks. So each job waits only for those before it.

The placement of an attempt that an engine started outside the bought capacity named for it is in prepaid money, but the
provider bills its machines at the on-demand price, in cash, until they are gone. That amount is posted once, when their
end is recorded: from the job's hold in cash, and the rest as an adjustment, since it is spent whatever the budgets
allow.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.values.money import Money
from broker.ledger.entries import OUTSIDE, Account, Balance, Entry, Sum, balances
from broker.ledger.holds import Metering, cost_of
from broker.ledger.meter import Meter
from broker.reconciler.settlement.settlement import (
    LATE,
    Settled,
    charge,
    is_due,
    is_metered,
    pending_hold,
    release,
    settle,
    tags_of,
)
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.store import Store

log = logging.getLogger(__name__)


def uncharged_attempts(view: JobView, sums: Sequence[Sum]) -> list[AttemptView]:
    """The attempts whose machines outside bought capacity are gone and not in the ledger yet."""
    spent = {entry.tags.attempt for entry in sums if entry.money is MoneyKind.CASH and entry.account is Account.SPENT}
    return [
        attempt
        for attempt in view.attempts
        if attempt.outside
        and attempt.gone_at is not None
        and attempt.placement.money is MoneyKind.AMORTISED
        and attempt.number not in spent
    ]


def charged_outside(
    view: JobView,
    sums: Sequence[Sum],
    attempts: Sequence[AttemptView],
    offers_of: Callable[[OfferQuery], Sequence[Offer]],
    now: datetime,
) -> list[Entry]:
    """The entries for ``attempts``, which are `uncharged_attempts`.

    ``sums``: of the job's entries so far; ``offers_of``: returns the market's current offers. Machines of a type
    without an on-demand price are left for later, with a warning.
    """
    entries: list[Entry] = []
    held = balances(sums).get(MoneyKind.CASH, Balance()).held
    left = max(held - pending_hold(view, MoneyKind.CASH), Money.ZERO)
    for attempt in attempts:
        on_demand = _on_demand(attempt.placement.offer, offers_of)
        if on_demand is None or on_demand.price is None or attempt.gone_at is None:
            log.warning(
                "%s: machines ran outside bought capacity, and the on-demand price of %s is unknown: "
                "their cost is not in the ledger yet",
                attempt.key,
                attempt.placement.offer.instance_type,
            )
            continue
        end, amount = attempt.gone_at, Money.ZERO
        for machine in attempt.outside:
            amount += cost_of(
                on_demand.price, 1, min(machine.since, end), end, on_demand.billing, metering=Metering.ENDED
            )
        ids = ", ".join(machine.id for machine in attempt.outside)
        gpus = attempt.placement.offer.count * len(attempt.outside)
        entries += charge(
            amount,
            left,
            f"{view.id}/{attempt.number}/{OUTSIDE}",
            money=MoneyKind.CASH,
            at=now,
            covers=(min(end, *(machine.since for machine in attempt.outside)), end),
            tags=replace(tags_of(view, attempt), capacity_type=CapacityType.ON_DEMAND, gpus=gpus),
            note=f"outside of the bought capacity, at {on_demand.price} an hour on demand: {ids}",
        )
        left -= min(amount, left)
    return entries


def _on_demand(offer: Offer, offers_of: Callable[[OfferQuery], Sequence[Offer]]) -> Offer | None:
    """The on-demand offer of the same machine type: in its zone if there is one, else in its region, else anywhere at
    the provider. If there are several, the one with the highest price.
    """
    query = OfferQuery(providers=(offer.provider,), capacity_types=(CapacityType.ON_DEMAND,))
    candidates = [
        candidate
        for candidate in offers_of(query)
        if candidate.instance_type == offer.instance_type
        and candidate.money is MoneyKind.CASH
        and candidate.has_valid_price()
    ]

    def nearness(candidate: Offer) -> tuple[bool, bool, bool, Money]:
        same_region = candidate.region == offer.region
        return (
            same_region,
            same_region and candidate.zone in (offer.zone, None),
            not candidate.reference,
            candidate.price or Money.ZERO,
        )

    return max(candidates, key=nearness, default=None)


# The number of jobs settled in one transaction, which blocks all other writers, and in one tick.
AT_ONCE, AT_MOST = 10, 300


def post_due(
    tx: StoreWriter,
    views: Sequence[JobView],
    now: datetime,
    interval: timedelta = timedelta(0),
    late: timedelta = LATE,
) -> None:
    """Settle these jobs in this transaction. Call `catch_up` before it."""
    views = [
        view for view in views if any(attempt.up_since is not None or attempt.outside for attempt in view.attempts)
    ]
    if not views:
        return  # no machine was ever up
    ids = [view.id for view in views]
    sums, meters = tx.sums(ids), tx.meters(ids)
    entries: list[Entry] = []
    new_meters: dict[str, Mapping[int, Meter]] = {}
    for view in views:
        settled = settle(
            view, sums.get(view.id, ()), meters.get(view.id, {}), tx.price_series, tx.posted, now, interval, late
        )
        entries += settled.entries
        new_meters[view.id] = settled.meters
    tx.post(entries)
    tx.keep_meters(new_meters)
    for view in views:
        if left := uncharged_attempts(view, sums.get(view.id, ())):
            tx.post(charged_outside(view, tx.sums([view.id]).get(view.id, ()), left, tx.offers, now))


def release_all(tx: StoreWriter, views: Sequence[JobView], now: datetime) -> None:
    """Settle all attempts of these jobs at the prices known now and release what the jobs still hold."""
    post_due(tx, views, now, late=timedelta.max)
    sums = tx.sums([view.id for view in views]) if views else {}
    tx.post([entry for view in views for entry in release(view, sums.get(view.id, ()), now)])


@dataclass(frozen=True, slots=True)
class _JobSettlement:
    """The settlement of a job, and the records from which it was computed."""

    view: JobView
    sums: Sequence[Sum]
    meters: Mapping[int, Meter]
    settled: Settled


def _compute_settlements(
    snapshot: StoreReader, views: Sequence[JobView], now: datetime, interval: timedelta
) -> list[_JobSettlement]:
    """The settlements of these jobs, from a snapshot of the store.

    Omits jobs that changed since their view was read, and empty settlements.
    """
    ids = [view.id for view in views]
    last, sums, meters = snapshot.last_events(ids), snapshot.sums(ids), snapshot.meters(ids)
    settlements = []
    for view in views:
        if last.get(view.id) != view.seq:
            continue
        records = sums.get(view.id, ()), meters.get(view.id, {})
        settled = settle(view, *records, snapshot.price_series, snapshot.posted, now, interval)
        if settled.meters:  # every settlement that posts entries has a meter
            settlements.append(_JobSettlement(view, *records, settled))
    return settlements


def _post(tx: StoreWriter, settlements: Sequence[_JobSettlement], now: datetime) -> None:
    """Post the settlements of jobs that have not changed since."""
    ids = [item.view.id for item in settlements]
    last, sums, meters = tx.last_events(ids), tx.sums(ids), tx.meters(ids)
    valid = [
        item
        for item in settlements
        if last.get(item.view.id) == item.view.seq
        and sums.get(item.view.id, ()) == item.sums
        and meters.get(item.view.id, {}) == item.meters
    ]
    tx.post([entry for item in valid for entry in item.settled.entries])
    tx.keep_meters({item.view.id: item.settled.meters for item in valid})


def catch_up(journal: Store, view: JobView, now: datetime) -> None:
    """Settle a job whose attempts have no meters, as after an upgrade: this reads all its entries, which `post_due`
    would do while it blocks all other writers. Raises `StoreProblem`."""
    with journal.reading() as snapshot:
        sums, meters = snapshot.sums([view.id]).get(view.id, ()), snapshot.meters([view.id]).get(view.id, {})
        settlements = (
            [] if is_metered(view, sums, meters) else _compute_settlements(snapshot, [view], now, timedelta(0))
        )
    if settlements:
        with journal.writing() as tx:
            _post(tx, settlements, now)


class Settling:
    """The settlement queue of one reconciler. ``every``: the interval between settlements of a running machine, in
    broker time."""

    def __init__(self, journal: Store, every: timedelta, at_once: int = AT_ONCE, at_most: int = AT_MOST) -> None:
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
        due = list(islice(self._line.values(), self._at_most))
        for view in due:
            del self._line[view.id]
        for first in range(0, len(due), self._at_once):
            batch = due[first : first + self._at_once]
            with self._journal.reading() as snapshot:
                settlements = _compute_settlements(snapshot, batch, now, self._every)
            if settlements:
                with self._journal.writing() as tx:
                    _post(tx, settlements, now)

    def forget(self, job_id: str) -> None:
        """Remove a closed job from the queue."""
        self._line.pop(job_id, None)
