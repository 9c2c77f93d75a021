"""Duties of `broker.app.service.serve` about bought capacity: `Purchasing` places approved orders, confirms them and
resolves orders without an answer; `CheckingCapacity` compares what providers list with what was bought."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.app.alerts.routes import recipients
from broker.app.capacity.check import CapacityCheck, check
from broker.app.capacity.purchases import buyer
from broker.app.service.periodic_duty import Rounds
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.store.engine.leader import LeaderRole

CHECKED_EVERY = 3600.0  # seconds of the wall clock; each check asks every region of every provider
EVERY = 20.0  # seconds of the wall clock, so that an order without an answer is reported within a minute
_FIRST_CHECK_AFTER = 120.0


class Purchasing:
    """``say``: receives each error once."""

    name = "purchases"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = EVERY) -> None:
        self._broker = Broker(broker.settings, broker.registries, broker.account)  # its own providers for this thread
        self._rounds = Rounds(say, every, every, LeaderRole.PURCHASES)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again in the next round."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> int:
        """Advance every open purchase, also after an error in another; returns their number."""
        carried_out, said = buyer(self._broker), set()
        found = self._broker.store.purchases()
        for purchase in found:
            try:
                carried_out.advance(purchase.id)
            except BrokerError as error:
                said.add(f"{purchase.id}: {error}")
        self._rounds.tell(said)
        return len(found)


class CheckingCapacity:
    """Sends a notice of each difference, once. ``say``: receives each difference and error once."""

    name = "capacity check"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = CHECKED_EVERY) -> None:
        self._broker = Broker(broker.settings, broker.registries, broker.account)
        self._rounds = Rounds(say, _FIRST_CHECK_AFTER, every, LeaderRole.CAPACITY)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again in the next round."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> CapacityCheck:
        """One check. Raises `StoreProblem`."""
        broker = self._broker
        found = check(broker)
        said = {f"{name} could not be asked what it holds: {why}" for name, why in found.problems}
        for one in found.differences:
            broker.store.outbox.add(one.notice, recipients(broker.settings, one.notice), broker.clock.now())
            said.add(f"{one.notice.title}: {one.told}")
        self._rounds.tell(said)
        return found
