"""The lease that an agent holds, and whether it has ended."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Callable

from broker.agent.clock import NodeClock
from broker.agent.formats import Lease

_DATE_EVERY = 60.0  # seconds of running time between reads of the store's clock
_SLOW = 5.0  # seconds; slower writes give a less precise time than earlier ones


class HeldLease:
    """The last readable lease; a torn or missing one does not replace it.

    The lease uses the broker's time, but this machine's clock may be wrong or may be set. So the object store's clock
    dates both: the lease's age is the difference between the store's dates of the lease and of a file that this machine
    wrote. From then on the machine's running time counts (``running``, seconds). Uncertainty counts as elapsed time:
    truncated seconds and the duration of calls. So a lease may end a few seconds early; it ends late only by the time
    that the broker took to write it. ``clock`` is used on a simulated clock, which broker and node share, and until the
    store has given a date.

    The silence of the broker is measured by running time, too.
    """

    def __init__(self, lease: Lease, clock: NodeClock, running: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._running = clock, running
        self._lease, self._heard = lease, running()
        self._dated: tuple[datetime, float] | None = None

    @property
    def lease(self) -> Lease:
        return self._lease

    def read(self, lease: Lease) -> None:
        """Store a lease that was read: the same one again, or a newer one."""
        if lease != self._lease:
            self._lease, self._heard = lease, self._running()

    @property
    def needs_date(self) -> bool:
        """Whether it is time to read the store's clock, by writing a file."""
        return self._dated is None or self._running() - self._dated[1] >= _DATE_EVERY

    def dated(self, at: datetime, asked: float) -> None:
        """``at``: the store's date of a write requested at ``asked`` (running seconds)."""
        if self._dated is None or self._running() - asked <= _SLOW:
            self._dated = at if at.microsecond else at + timedelta(seconds=1), asked

    def now(self) -> datetime:
        """The latest time that the broker's clock may show."""
        lease, store_date = self._lease, self._dated
        if self._clock.origin is not None or lease.renewed_at is None or lease.stored_at is None or store_date is None:
            return self._clock.now()
        at, requested_at = store_date
        age = at + timedelta(seconds=self._running() - requested_at) - lease.stored_at
        return lease.renewed_at + max(age, timedelta(0))

    def seconds_until(self, at: datetime) -> float:
        """Wall-clock seconds until the broker's clock shows ``at``; negative if past."""
        return (at - self.now()) / timedelta(seconds=1) / self._clock.scale

    def over(self) -> tuple[str, str] | None:
        """Cause and message once the attempt must stop; None while it may continue."""
        silent = (self._running() - self._heard) * self._clock.scale
        return self._lease.over(self.now(), silent)
