"""The lease of each node (``lease.json``): written when it changes, and renewed in time if the node limits its time
without a broker."""

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

from broker.core.errors import BrokerError
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import IdleLimit
from broker.engines.runfolder.mailbox import LeaseGrant, Mailbox
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.funds import funds_of, lease_of
from broker.reconciler.worklist import Worklist

log = logging.getLogger(__name__)

# Far less than the stop grace, for which money is held beyond ``paid_until``.
_ROUNDING = timedelta(seconds=5)
# The maximum number of leases per tick written for changes that can wait some ticks: writing delays observations.
_MAX_WRITES = 100


class NodeLimits(Protocol):
    """Limits of the policies that nodes enforce without a broker."""

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        """The idleness limits that the job's node can enforce alone."""

    def max_unattended(self, job: Job) -> timedelta | None:
        """The longest time that a job's rented machines may run without a broker; None: their funded time."""

    def future_period_edges(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        """The ends of the current periods (UTC) of the budgets that count this money of the job."""


class NoNodeLimits:
    """No policy limits anything."""

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        return ()

    def max_unattended(self, job: Job) -> timedelta | None:
        return None

    def future_period_edges(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        return ()


class Leases:
    """Computes and writes leases. ``mailbox``: writes them. ``worklist``: the jobs' holds and spend."""

    def __init__(self, mailbox: Mailbox, worklist: Worklist, limits: NodeLimits) -> None:
        self._mailbox = mailbox
        self._worklist = worklist
        self._limits = limits
        self._granted: dict[str, tuple[tuple[object, ...], LeaseGrant, datetime | None]] = {}
        self._written: dict[str, tuple[LeaseGrant, datetime]] = {}
        self._found: dict[str, LeaseGrant | None] = {}
        self._turns = _Turns()

    def begin_tick(self) -> Collection[str]:
        """Start a tick.

        Returns the keys of the attempts whose lease may be written in it; an attempt that is not visited in this tick
        loses its turn.
        """
        return self._turns.begin()

    def granted(self, view: JobView, attempt: AttemptView, now: datetime) -> LeaseGrant:
        return self._grant(view, attempt, now)[0]

    def _grant(self, view: JobView, attempt: AttemptView, now: datetime) -> tuple[LeaseGrant, datetime | None]:
        """The lease of the attempt's node, and until when its machines are paid (UTC)."""
        sums, longest = self._worklist.sums(view.id), self._limits.max_unattended(view.job)
        idle = tuple(self._limits.idle_limits(view))
        # If the only running machine has a fixed price, time alone changes nothing.
        has_fixed_price = (
            attempt.up_since is not None and attempt.placement.offer.capacity_type is not CapacityType.SPOT
        )
        is_constant = has_fixed_price and all(other.over for other in view.attempts if other is not attempt)
        meters = self._worklist.meters(view.id)
        judged = self._worklist.burn(view.id, attempt.placement.money)
        inputs = (view.seq, sums, meters.get(attempt.number), judged, longest, idle)
        cached = self._granted.get(attempt.key) if is_constant else None
        if cached is not None and cached[0] == inputs:
            return cached[1:]
        kind = attempt.placement.money
        funds = funds_of(
            view,
            attempt,
            sums,
            self._worklist.price_series,
            now,
            meters,
            judged,
            lambda: self._limits.future_period_edges(view, kind),
        )
        lease = lease_of(view, attempt, funds, billed_time(view, now), now)
        # Machines that cost nothing may run without a broker, but not idle.
        lease = replace(lease, idle=idle, max_unattended=longest if lease.paid_until is not None else None)
        paid = funds.paid_until if lease.paid_until is not None else None
        self._granted[attempt.key] = inputs, lease, paid
        return lease, paid

    def paid_until(self, view: JobView, now: datetime) -> datetime | None:
        """When the money of the running attempt ends (UTC).

        Its lease (`granted`) ends earlier if it uses money faster than was judged, until the budgets have judged the
        new rate.
        """
        latest = view.latest
        return self._grant(view, latest, now)[1] if latest and not latest.state.final else None

    def find(self, view: JobView, attempt: AttemptView) -> None:
        """Prefetch the lease that an earlier process wrote, if it will be needed. Thread-safe."""
        if attempt.key not in self._written:
            with suppress(BrokerError):  # `keep` reads it again and logs the error
                self._found[attempt.key] = self._mailbox.lease(view, attempt)

    def keep(self, view: JobView, attempt: AttemptView, now: datetime) -> None:
        """Update the node's lease; that of an ended attempt tells its machine to stop. A failed write is logged and
        repeated with the next tick."""
        if attempt.state.final:
            self.withdraw(view, attempt, now)
        else:
            self._write(view, attempt, self.granted(view, attempt, now), now)
            with suppress(BrokerError):  # logged by the called code; repeated later
                self._mailbox.renew_access(view, attempt)

    def withdraw(self, view: JobView, attempt: AttemptView, now: datetime, cause: Cause | None = None) -> None:
        """Tell any machine of the attempt to stop. ``cause``: the reason, if the attempt has not ended."""
        self._write(view, attempt, stop_lease(attempt, attempt.cause or cause or Cause.FENCED), now)

    def _write(self, view: JobView, attempt: AttemptView, lease: LeaseGrant, now: datetime) -> None:
        try:
            # Reading the lease of an earlier process is far cheaper than writing it again, but does not show when it
            # was written.
            if attempt.key not in self._written and not lease.max_unattended:
                stored = self._found.pop(attempt.key, None) or self._mailbox.lease(view, attempt)
                if stored is not None and not stored.max_unattended:
                    self._written[attempt.key] = stored, now
            if self._needs_write(attempt.key, lease, now):
                self._mailbox.write_lease(view, attempt, lease)
                self._written[attempt.key] = lease, now
        except BrokerError as error:
            log.warning("job %s, attempt %s: the lease cannot be written: %s", view.id, attempt.number, error)

    def _needs_write(self, key: str, lease: LeaseGrant, now: datetime) -> bool:
        """Whether to write the lease now.

        Changes of money, time and stop cause do not wait, nor do renewals that are due soon.
        """
        if key not in self._written:
            return True
        written, renewed_at = self._written[key]
        if not _is_equivalent(written, lease) or _is_due(written, renewed_at, now, 1 / 2):
            return True
        has_new_limits = _limits(written) != _limits(lease) or _is_due(lease, renewed_at, now, 1 / 4)
        return has_new_limits and self._turns.take(key)

    def forget(self, key: str) -> None:
        """Drop the state of an attempt: it is over."""
        self._granted.pop(key, None)
        self._written.pop(key, None)
        self._found.pop(key, None)


def stop_lease(attempt: AttemptView, cause: Cause) -> LeaseGrant:
    """Tells any machine of the attempt to stop. The lease of a standby keeps `standby`, so that it fences no
    other attempt."""
    return LeaseGrant(stop=cause, standby=attempt.standby_until is not None)


class _Turns:
    """Limits the writes per tick; leases that had to wait come first, in their order."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}  # an ordered set
        self._called: set[str] = set()
        self._free = 0

    def begin(self) -> Collection[str]:
        # A key whose turn it was and that was not written needs no write any more.
        self._called = set(islice(self._waiting, _MAX_WRITES))
        for key in self._called:
            del self._waiting[key]
        self._free = _MAX_WRITES - len(self._called)
        return frozenset(self._called)

    def take(self, key: str) -> bool:
        if key in self._called:
            self._called.remove(key)
            return True
        if self._free > 0:  # then no lease waits except those whose turn it is
            self._free -= 1
            return True
        self._waiting.setdefault(key)
        return False


def _is_equivalent(first: LeaseGrant, second: LeaseGrant) -> bool:
    """Whether money, time, stop cause and role are the same, apart from rounding: each settlement rounds the end of the
    money differently.
    """
    if (first.ends_at, first.stop, first.standby) != (second.ends_at, second.stop, second.standby):
        return False
    if first.paid_until is None or second.paid_until is None:
        return first.paid_until == second.paid_until
    return abs(first.paid_until - second.paid_until) <= _ROUNDING


def _limits(lease: LeaseGrant) -> object:
    """The other limits that matter to the node.

    The line of a rule in its file does not: it changes with each edit above it.
    """
    return lease.max_unattended, [(limit.below, limit.stretch) for limit in lease.idle]


def _is_due(lease: LeaseGrant, renewed_at: datetime, now: datetime, part: float) -> bool:
    """Whether the lease must be renewed before the node stops for lack of a broker, whatever the clock. ``part``: the
    fraction of ``max_unattended`` after which it is renewed."""
    return lease.max_unattended is not None and abs(now - renewed_at) >= lease.max_unattended * part
