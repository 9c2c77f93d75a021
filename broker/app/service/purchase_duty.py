"""Duties of `broker.app.service.serve` about bought capacity: `Purchasing` places approved orders, confirms them and
resolves orders without an answer; `CheckingCapacity` compares what providers list with what was bought."""

from __future__ import annotations

from broker.app.alerts.routes import recipients
from broker.app.capacity.check import CapacityCheck, check
from broker.app.capacity.purchases import buyer
from broker.app.service.periodic_duty import PeriodicDuty
from broker.core.errors import BrokerError
from broker.store.engine.leader import LeaderRole


class Purchasing(PeriodicDuty):
    """``say``: receives each error once."""

    name = "purchases"
    first_after, every = 20.0, 20.0  # so that an order without an answer is reported within a minute
    role = LeaderRole.PURCHASES

    def once(self) -> int:
        """Advance every open purchase, also after an error in another; returns their number."""
        carried_out, said = buyer(self._broker), set()
        found = self._broker.store.purchases()
        for purchase in found:
            try:
                carried_out.advance(purchase.id)
            except BrokerError as error:
                said.add(f"{purchase.id}: {error}")
        self._tell(said)
        return len(found)


class CheckingCapacity(PeriodicDuty):
    """Sends a notice of each difference, once. ``say``: receives each difference and error once."""

    name = "capacity check"
    first_after, every = 120.0, 3600.0  # each check asks every region of every provider
    role = LeaderRole.CAPACITY

    def once(self) -> CapacityCheck:
        """One check. Raises `StoreProblem`."""
        broker = self._broker
        found = check(broker)
        said = {f"{name} could not be asked what it holds: {why}" for name, why in found.problems}
        for one in found.differences:
            broker.store.outbox.add(one.notice, recipients(broker.settings, one.notice), broker.clock.now())
            said.add(f"{one.notice.title}: {one.told}")
        self._tell(said)
        return found
