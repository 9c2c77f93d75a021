"""Compares the capacity that providers list with purchases and recorded holdings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.capacity.capacity import capacity
from broker.app.capacity.purchases import seller_of
from broker.app.results.purchases import by_name
from broker.core.errors import BrokerError
from broker.core.purchases.quotes import OrderState
from broker.procurement.comparing import CapacityDifference, charge_differences, differences, unseen

if TYPE_CHECKING:
    from broker.app.wiring import Broker


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """`capacity check`. ``listed``: the number of reservations and commitments that the providers list; ``asked``: the
    providers that answered; ``problems``: the errors of the others, by name."""

    as_of: datetime
    differences: tuple[CapacityDifference, ...]
    listed: int
    asked: tuple[str, ...]
    problems: Mapping[str, str]


def check(broker: Broker) -> CapacityCheck:
    """Query every provider with a login for the account's capacity, and compare. Changes nothing."""
    bought = broker.store.purchases(closed=True)  # read first: an order placed meanwhile is not a difference
    inventory = capacity(broker)
    missing, problems = [], list(inventory.problems)
    for one in unseen(bought, inventory.reported, inventory.now):
        provider = one.quote.provider
        if provider not in inventory.asked:
            continue  # not asked, or failed: reported in ``problems``
        try:  # it may be in a region that was not asked
            orders = seller_of(broker, one.quote).find_orders(one.quote, one.id)
        except BrokerError as error:
            problems.append((provider, str(error)))
            continue
        if not any(order.state is OrderState.HELD for order in orders):
            missing.append(one)
    found = differences(bought, inventory.recorded, inventory.reported, missing)
    with broker.store.reading() as look:
        found += charge_differences(bought, look.charges(), inventory.now)
    return CapacityCheck(inventory.now, tuple(found), len(inventory.reported), inventory.asked, by_name(problems))
