"""The lease that an agent holds, and whether it is over."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Callable

from broker.agent.clock import NodeClock
from broker.agent.formats import Lease

_DATE_EVERY = 60.0  # seconds of running time until the store is asked anew what time it is
_SLOW = 5.0  # seconds; what took the store longer to write tells its time less well than what it said before


class Held:
    """The last lease that could be read; one that is torn or missing does not undo it.

    The lease counts in the broker's time, and this machine's clock may be hours off, or be set while the job runs. So
    it is not asked: the object store dates what both write. How old the lease is follows from the store's date of it
    and from that of something which this machine wrote itself; from then on it goes by this machine's own running time
    (``running``, seconds). What is not known counts as time that has passed: whole seconds that stores cut off, and how
    long they took. So a lease ends too early by a few seconds; too late only by the time that the broker took to write
    it. On a simulated clock, which broker and node share, and as long as the store has dated nothing, it is ``clock``.

    How long the broker has said nothing new goes by the running time, too.
    """

    def __init__(self, lease: Lease, clock: NodeClock, running: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._running = clock, running
        self._lease, self._heard = lease, running()
        self._dated: tuple[datetime, float] | None = None

    @property
    def lease(self) -> Lease:
        return self._lease

    def read(self, lease: Lease) -> None:
        """The same one, read once more, or a newer word of the broker."""
        if lease != self._lease:
            self._lease, self._heard = lease, self._running()

    @property
    def wants_date(self) -> bool:
        """Whether it is time to have the store date something."""
        return self._dated is None or self._running() - self._dated[1] >= _DATE_EVERY

    def dated(self, at: datetime, asked: float) -> None:
        """``at``: the store's date of what it was asked to write at ``asked`` (running seconds)."""
        if self._dated is None or self._running() - asked <= _SLOW:
            self._dated = at if at.microsecond else at + timedelta(seconds=1), asked

    def now(self) -> datetime:
        """What the broker's clock shows, at the latest."""
        lease, dated = self._lease, self._dated
        if self._clock.origin is not None or lease.renewed_at is None or lease.stored_at is None or dated is None:
            return self._clock.now()
        at, asked = dated
        age = at + timedelta(seconds=self._running() - asked) - lease.stored_at
        return lease.renewed_at + max(age, timedelta(0))

    def seconds_until(self, at: datetime) -> float:
        """How long to wait, by the wall, until the broker's clock shows ``at``; negative when it is past."""
        return (at - self.now()) / timedelta(seconds=1) / self._clock.scale

    def over(self) -> tuple[str, str] | None:
        """The cause and the sentence for it, once the attempt must stop; None while it may go on."""
        silent = (self._running() - self._heard) * self._clock.scale
        return self._lease.over(self.now(), silent)
