"""The frame of periodic duties: one process of a store at a time runs them and reports each problem once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.core.errors import BrokerError
from broker.store import Store
from broker.store.engine.leader import LeaderRole


class Rounds:
    """The runs of a periodic duty. ``first_after``, ``every``: seconds of the wall clock before the first run (at most
    ``every``) and between two. ``say``: receives each message once until it no longer applies. ``duty``: the leader
    role that only one process of a store has at a time."""

    def __init__(
        self, say: Callable[[str], None], first_after: float, every: float, duty: LeaderRole = LeaderRole.SWEEP
    ) -> None:
        self._say = say
        self._duty = duty
        self._pauses = min(first_after, every), every
        self._said: set[str] = set()

    def run(self, store: Store, once: Callable[[], object], stop: threading.Event) -> None:
        """Call ``once`` in each round in which no other process has the role, until ``stop`` is set. Errors are
        reported, and the next round tries again."""
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
        """Report the messages that were not in the last round."""
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said
