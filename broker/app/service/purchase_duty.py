"""The duty of buying, for `broker.app.service.serve`: orders what was approved, confirms what was ordered, looks for
orders without an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.app.capacity.purchases import buyer
from broker.app.service.periodic_duty import Rounds
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.store.engine.leader import LeaderRole

EVERY = 20.0  # seconds of the wall clock: a person hears of an order without an answer within a minute


class Purchasing:
    """``say``: told what goes wrong, once each time it changes."""

    name = "purchases"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = EVERY) -> None:
        # A broker belongs to one thread; the store itself may be shared, but not the providers made from it.
        self._broker = Broker(broker.settings, broker.registries, broker.account)
        self._rounds = Rounds(say, every, every, LeaderRole.PURCHASES)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again in the next round."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> int:
        """Advance every open purchase; their number. One that cannot be advanced does not hold up the others."""
        carried_out, said = buyer(self._broker), set()
        found = self._broker.store.purchases()
        for purchase in found:
            try:
                carried_out.advance(purchase.id)
            except BrokerError as error:
                said.add(f"{purchase.id}: {error}")
        self._rounds.tell(said)
        return len(found)
