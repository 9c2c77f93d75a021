"""The lease that an agent holds, and whether it is over."""

from __future__ import annotations

import time
from typing import Callable

from broker.launch.agent.clock import NodeClock
from broker.launch.agent.formats import Lease


class Held:
    """The last lease that could be read; one that is torn or missing does not undo it.

    How long the broker has said nothing new goes by this machine's own running time (``running``, seconds), whatever
    the clocks of the two show: they may be hours apart. ``clock``: what a second is on the clock of the spec.
    """

    def __init__(self, lease: Lease, clock: NodeClock, running: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._running = clock, running
        self._lease, self._heard = lease, running()

    @property
    def lease(self) -> Lease:
        return self._lease

    def read(self, lease: Lease) -> None:
        """The same one, read once more, or a newer word of the broker."""
        if lease != self._lease:
            self._lease, self._heard = lease, self._running()

    def over(self) -> tuple[str, str] | None:
        """The cause and the sentence for it, once the attempt must stop; None while it may go on."""
        silent = (self._running() - self._heard) * self._clock.scale
        return self._lease.over(self._clock.now(), silent)
