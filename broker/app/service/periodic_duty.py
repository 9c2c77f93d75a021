"""What a service does now and then, one process of a store at a time, and tells of once: the frame of such duties."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.core.errors import BrokerError
from broker.store import Store
from broker.store.engine.leader import LeaderRole


class Rounds:
    """``first_after``, ``every``: seconds of the wall clock to the first round and between two; a service that is often
    started anew makes its rounds all the same. ``say``: told each sentence once, until it is no longer true. ``duty``:
    what one process of a store does at a time."""

    def __init__(
        self, say: Callable[[str], None], first_after: float, every: float, duty: LeaderRole = LeaderRole.SWEEP
    ) -> None:
        self._say = say
        self._duty = duty
        self._pauses = min(first_after, every), every
        self._said: set[str] = set()

    def run(self, store: Store, once: Callable[[], object], stop: threading.Event) -> None:
        """``once`` in each round that no other process makes, until ``stop`` is set. What goes wrong is said, and tried
        again in the next one."""
        pause, every = self._pauses
        while not stop.wait(pause):
            pause = every
            try:
                with store.lead(self._duty) as leading:
                    if leading is not None:
                        once()
            except BrokerError as error:
                self.tell({str(error)})

    def tell(self, said: set[str]) -> None:
        """Say what is new of it."""
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said
