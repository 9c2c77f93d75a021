"""What each node is granted, as its ``lease.json`` should say; written when it changes, and renewed in time where the
node counts how long nobody looked after it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.funds import funds_of, lease_of
from broker.reconciler.worklist import Worklist
from broker.runfolder.mailbox import LeaseGrant, Mailbox

log = logging.getLogger(__name__)

# Far less than the time to stop in that is paid for after ``paid_until``.
_ROUNDING = timedelta(seconds=5)
# So many are written with one look for what can wait a few looks: nobody observes anything meanwhile.
_A_LOOK = 100


class NodeLimits(Protocol):
    """What the policies limit on nodes that no broker looks after for the moment."""

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        """What of idleness ends a job, as far as its node can see that alone."""
        ...

    def max_unattended(self, job: Job) -> timedelta | None:
        """For how long a job's rented machines may go on when no broker looks after them; None: while they are paid."""
        ...

    def edges_ahead(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        """Where the present periods of the budgets end under which a job's money of that kind counts (UTC)."""
        ...


class NoNodeLimits:
    """No policy limits anything."""

    def idle_limits(self, view: JobView) -> Sequence[IdleLimit]:
        return ()

    def max_unattended(self, job: Job) -> timedelta | None:
        return None

    def edges_ahead(self, view: JobView, kind: MoneyKind) -> Sequence[datetime]:
        return ()


class Leases:
    """``mailbox``: where they are written. ``worklist``: what the jobs hold and spent."""

    def __init__(self, mailbox: Mailbox, worklist: Worklist, limits: NodeLimits) -> None:
        self._mailbox = mailbox
        self._worklist = worklist
        self._limits = limits
        self._granted: dict[str, tuple[tuple[object, ...], LeaseGrant, datetime | None]] = {}
        self._written: dict[str, tuple[LeaseGrant, datetime]] = {}
        self._found: dict[str, LeaseGrant | None] = {}
        self._turns = _Turns()

    def begin_look(self) -> None:
        """All that is open is looked at from here on."""
        self._turns.begin()

    def granted(self, view: JobView, attempt: AttemptView, now: datetime) -> LeaseGrant:
        """What the attempt's node is granted now."""
        return self._grant(view, attempt, now)[0]

    def _grant(self, view: JobView, attempt: AttemptView, now: datetime) -> tuple[LeaseGrant, datetime | None]:
        """What the attempt's node is granted, and until when its machines are paid."""
        sums, longest = self._worklist.sums(view.id), self._limits.max_unattended(view.job)
        idle = tuple(self._limits.idle_limits(view))
        # Once a machine is up at a fixed price, and no other is, time alone changes nothing.
        fixed = attempt.up_since is not None and attempt.placement.offer.capacity_type is not CapacityType.SPOT
        steady = fixed and all(other.over for other in view.attempts if other is not attempt)
        meter = self._worklist.meters(view.id).get(attempt.number)
        judged = self._worklist.burn(view.id, attempt.placement.money)
        made_of = (view.seq, sums, meter, judged, longest, idle)
        known = self._granted.get(attempt.key) if steady else None
        if known is not None and known[0] == made_of:
            return known[1:]
        kind = attempt.placement.money
        funds = funds_of(
            view,
            attempt,
            sums,
            self._worklist.price_series,
            now,
            meter,
            judged,
            lambda: self._limits.edges_ahead(view, kind),
        )
        lease = lease_of(view, attempt, funds, billed_time(view, now), now)
        # What is not billed may be left alone; idle it shall not be.
        lease = replace(lease, idle=idle, max_unattended=longest if lease.paid_until is not None else None)
        paid = funds.paid_until if lease.paid_until is not None else None
        self._granted[attempt.key] = made_of, lease, paid
        return lease, paid

    def paid_until(self, view: JobView, now: datetime) -> datetime | None:
        """When the money of the running attempt ends. One that uses it up faster than was judged is granted less
        (`granted`), until the budgets have judged that."""
        latest = view.latest
        return self._grant(view, latest, now)[1] if latest and not latest.state.final else None

    def find(self, view: JobView, attempt: AttemptView) -> None:
        """Read beforehand what an earlier process wrote, where that will be asked for; from any thread."""
        if attempt.key not in self._written:
            with suppress(BrokerError):  # then `keep` asks again, and says so
                self._found[attempt.key] = self._mailbox.lease(view, attempt)

    def keep(self, view: JobView, attempt: AttemptView, now: datetime) -> None:
        """Keep the node's lease as it should be; one of an attempt that has ended tells its machine to stop. What
        cannot be written is logged, and tried again with the next look."""
        if attempt.state.final:
            self.withdraw(view, attempt, now)
        else:
            self._write(view, attempt, self.granted(view, attempt, now), now)

    def withdraw(self, view: JobView, attempt: AttemptView, now: datetime, cause: Cause | None = None) -> None:
        """Tell whatever machine the attempt may have to stop. ``cause``: why, where the attempt has not ended."""
        self._write(view, attempt, LeaseGrant(stop=attempt.cause or cause or Cause.FENCED), now)

    def _write(self, view: JobView, attempt: AttemptView, lease: LeaseGrant, now: datetime) -> None:
        try:
            # Reading what an earlier process wrote is a fraction of writing it once more; but for its age.
            if attempt.key not in self._written and not lease.max_unattended:
                there = self._found.pop(attempt.key, None) or self._mailbox.lease(view, attempt)
                if there is not None and not there.max_unattended:
                    self._written[attempt.key] = there, now
            if self._is_to_be_written(attempt.key, lease, now):
                self._mailbox.write_lease(view, attempt, lease)
                self._written[attempt.key] = lease, now
        except BrokerError as error:
            log.warning("job %s, attempt %s: the lease cannot be written: %s", view.id, attempt.number, error)

    def _is_to_be_written(self, key: str, lease: LeaseGrant, now: datetime) -> bool:
        """Now: money, time and the word to stop do not wait, nor does a node that would soon stop by itself."""
        if key not in self._written:
            return True
        known, renewed_at = self._written[key]
        if not _alike(known, lease) or _is_due(known, renewed_at, now, 1 / 2):
            return True
        news = _limits(known) != _limits(lease) or _is_due(lease, renewed_at, now, 1 / 4)
        return news and self._turns.take(key)

    def forget(self, key: str) -> None:
        """The attempt's job is closed."""
        self._granted.pop(key, None)
        self._written.pop(key, None)
        self._found.pop(key, None)


class _Turns:
    """Who of the many may be written with this look: first those who had to wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}  # a set with an order
        self._called: set[str] = set()
        self._free = 0

    def begin(self) -> None:
        # Whoever is called and does not come needs nothing any more.
        self._called = set(islice(self._waiting, _A_LOOK))
        for key in self._called:
            del self._waiting[key]
        self._free = _A_LOOK - len(self._called)

    def take(self, key: str) -> bool:
        if key in self._called:
            self._called.remove(key)
            return True
        if self._free > 0:  # then nobody waits but those that were called
            self._free -= 1
            return True
        self._waiting.setdefault(key)
        return False


def _alike(one: LeaseGrant, other: LeaseGrant) -> bool:
    """Whether money, time and the word to stop are the same: each settlement rounds the end of the money a little
    differently."""
    if (one.ends_at, one.stop) != (other.ends_at, other.stop):
        return False
    if one.paid_until is None or other.paid_until is None:
        return one.paid_until == other.paid_until
    return abs(one.paid_until - other.paid_until) <= _ROUNDING


def _limits(lease: LeaseGrant) -> object:
    """What else makes a difference to the node. Where a rule stands does not, and moves with each edit above it."""
    return lease.max_unattended, [(one.below, one.stretch) for one in lease.idle]


def _is_due(lease: LeaseGrant, renewed_at: datetime, now: datetime, part: float) -> bool:
    """Whether the node must hear again that somebody looks after it: well before it would stop, whatever the clock.
    ``part``: of the time that it waits for that."""
    return lease.max_unattended is not None and abs(now - renewed_at) >= lease.max_unattended * part
