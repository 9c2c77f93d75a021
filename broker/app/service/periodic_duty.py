"""The frame of periodic duties: one process of a store at a time runs them and reports each problem once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.store.engine.leader import LeaderRole


class PeriodicDuty(ABC):
    """A duty of `broker.app.service.serve` that does its work `once` in each round.

    ``first_after``, ``every``: seconds of the wall clock before the first round (at most ``every``) and between two.
    ``role``: the leader role that only one process of a store has at a time. ``say``: receives each message once until
    it no longer applies.
    """

    name: ClassVar[str]
    first_after: ClassVar[float]
    every: ClassVar[float]
    role: ClassVar[LeaderRole] = LeaderRole.SWEEP

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float | None = None) -> None:
        """``every``: instead of the duty's own."""
        # A broker with its own providers and engines, for the thread of the duty.
        self._broker = Broker(broker.settings, broker.registries, broker.account, clock=broker.clock)
        self._say = say
        self._every = self.every if every is None else every
        self._said: set[str] = set()

    @abstractmethod
    def once(self) -> object:
        """One round."""

    def run(self, stop: threading.Event) -> None:
        """A round whenever no other process has the role, until ``stop`` is set. Errors are reported, and the next
        round tries again."""
        pause = min(self.first_after, self._every)
        while not stop.wait(pause):
            pause = self._every
            try:
                with self._broker.store.lead(self.role) as leading:
                    if leading is not None:
                        self.once()
            except BrokerError as error:
                self._tell({str(error)})

    def _tell(self, said: set[str]) -> None:
        """Report the messages that the last round did not have."""
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said
