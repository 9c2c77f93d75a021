"""What each node is granted, as its ``lease.json`` should say; written when it changes, and renewed in time where the
node counts how long nobody looked after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.jobs import Job
from broker.core.offers import CapacityType
from broker.core.outcomes import Cause
from broker.core.policy import IdleLimit
from broker.core.views import AttemptView, JobView
from broker.launch.mailbox import Lease, Mailbox
from broker.launch.progress import billed_time
from broker.launch.settlement import lease_of
from broker.launch.worklist import Worklist

log = logging.getLogger(__name__)

# Far less than the time to stop in that is paid for after ``paid_until``.
_ROUNDING = timedelta(seconds=5)

IdleLimits = Callable[[JobView], Sequence[IdleLimit]]
"""What of idleness ends a job, as far as its node can see that alone."""

MaxUnattended = Callable[[Job], timedelta | None]
"""For how long a job's rented machines may go on when no broker looks after them; None: while they are paid."""


class Leases:
    """``mailbox``: where they are written. ``worklist``: what the jobs hold and spent."""

    def __init__(
        self,
        mailbox: Mailbox,
        worklist: Worklist,
        max_unattended: MaxUnattended,
        idle_limits: IdleLimits = lambda view: (),
    ) -> None:
        self._mailbox = mailbox
        self._worklist = worklist
        self._max_unattended = max_unattended
        self._idle_limits = idle_limits
        self._granted: dict[str, tuple[tuple[object, ...], Lease]] = {}
        self._written: dict[str, tuple[Lease, datetime]] = {}
        self._found: dict[str, Lease | None] = {}

    def granted(self, view: JobView, attempt: AttemptView, now: datetime) -> Lease:
        """What the attempt's node is granted now."""
        sums, longest = self._worklist.sums(view.id), self._max_unattended(view.job)
        idle = tuple(self._idle_limits(view))
        # Once a machine is up at a fixed price, and no other is, time alone changes nothing.
        fixed = attempt.up_since is not None and attempt.placement.offer.capacity_type is not CapacityType.SPOT
        steady = fixed and all(other.over for other in view.attempts if other is not attempt)
        made_of = (view.seq, sums, longest, idle)
        known = self._granted.get(attempt.key) if steady else None
        if known is not None and known[0] == made_of:
            return known[1]
        lease = lease_of(view, attempt, sums, self._worklist.price_series, billed_time(view, now), now)
        # What is not billed may be left alone; idle it shall not be.
        lease = replace(lease, idle=idle, max_unattended=longest if lease.paid_until is not None else None)
        self._granted[attempt.key] = made_of, lease
        return lease

    def paid_until(self, view: JobView, now: datetime) -> datetime | None:
        """When the money of the running attempt ends."""
        latest = view.latest
        return self.granted(view, latest, now).paid_until if latest and not latest.state.final else None

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

    def withdraw(self, view: JobView, attempt: AttemptView, now: datetime) -> None:
        """Tell whatever machine the attempt may still have to stop."""
        self._write(view, attempt, Lease(stop=attempt.cause or Cause.FENCED), now)

    def _write(self, view: JobView, attempt: AttemptView, lease: Lease, now: datetime) -> None:
        known, renewed_at = self._written.get(attempt.key, (None, now))
        if known and _alike(known, lease) and not _is_due(lease, renewed_at, now):
            return
        try:
            # Reading what an earlier process wrote is a fraction of writing it once more; but for its age.
            if known or lease.max_unattended or not self._stands(view, attempt, lease):
                self._mailbox.write_lease(view, attempt, lease)
        except BrokerError as error:
            log.warning("job %s, attempt %s: the lease cannot be written: %s", view.id, attempt.number, error)
        else:
            self._written[attempt.key] = lease, now

    def _stands(self, view: JobView, attempt: AttemptView, lease: Lease) -> bool:
        there = self._found.pop(attempt.key, None) or self._mailbox.lease(view, attempt)
        return there is not None and _alike(there, lease)

    def forget(self, key: str) -> None:
        """The attempt's job is closed."""
        self._granted.pop(key, None)
        self._written.pop(key, None)
        self._found.pop(key, None)


def _alike(one: Lease, other: Lease) -> bool:
    """Whether it makes no difference to the node: each settlement rounds the end of the money a little differently."""
    if one.paid_until is None or other.paid_until is None:
        return one == other
    return abs(one.paid_until - other.paid_until) <= _ROUNDING and replace(one, paid_until=other.paid_until) == other


def _is_due(lease: Lease, renewed_at: datetime, now: datetime) -> bool:
    """Whether the node must hear again that somebody looks after it: well before it would stop, whatever the clock."""
    return lease.max_unattended is not None and abs(now - renewed_at) >= lease.max_unattended / 4
