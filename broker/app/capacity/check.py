"""What providers list against what was bought and recorded here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.capacity.capacity import capacity
from broker.core.errors import BrokerError
from broker.core.ports import SellsCapacity
from broker.core.purchases.quotes import OrderState
from broker.procurement.comparing import CapacityDifference, differences, unseen

if TYPE_CHECKING:
    from broker.app.wiring import Broker


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """``asked``: the providers that answered; ``problems``: what the others said, by name. ``listed``: how much they
    hold for the account."""

    now: datetime
    differences: tuple[CapacityDifference, ...]
    listed: int
    asked: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]


def check(broker: Broker) -> CapacityCheck:
    """Ask every provider with a login what it holds for the account, and compare. Changes nothing."""
    bought = broker.store.purchases(closed=True)  # before the question: what is ordered meanwhile is no difference
    inventory = capacity(broker)
    missing, problems = [], list(inventory.problems)
    for one in unseen(bought, inventory.reported, inventory.now):
        provider = one.quote.provider
        if provider not in inventory.asked:
            continue  # it was not asked, or failed: that is told
        try:  # it may lie in a region that is not among those asked
            seller = broker.provider(provider)
            orders = seller.find_orders(one.quote, one.id) if isinstance(seller, SellsCapacity) else ()
        except BrokerError as error:
            problems.append((provider, str(error)))
            continue
        if not any(order.state is OrderState.HELD for order in orders):
            missing.append(one)
    found = differences(bought, inventory.recorded, inventory.reported, missing)
    return CapacityCheck(inventory.now, tuple(found), len(inventory.reported), inventory.asked, tuple(problems))
