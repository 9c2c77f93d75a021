"""Compares the capacity that providers list with purchases and recorded holdings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from broker.app.capacity.capacity import capacity_inventory
from broker.app.capacity.purchase_documents import join_by_name
from broker.app.capacity.purchases import find_seller
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.purchases.quotes import OrderState
from broker.procurement.comparison import CapacityDifference, charge_differences, differences, unlisted_purchases


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """`capacity list --check`. ``listed``: the number of reservations and commitments that the providers list;
    ``asked``: the providers that answered; ``problems``: the errors of the others, by name."""

    as_of: datetime
    differences: tuple[CapacityDifference, ...]
    listed: int
    asked: tuple[str, ...]
    problems: Mapping[str, str]


def check_capacity(broker: Broker) -> CapacityCheck:
    """Query every provider with a login for the account's capacity, and compare. Changes nothing."""
    purchases = broker.store.purchases(closed=True)  # read first: an order placed meanwhile is not a difference
    inventory = capacity_inventory(broker)
    missing_purchases, problems = [], list(inventory.problems)
    for purchase in unlisted_purchases(purchases, inventory.reported, inventory.now):
        provider = purchase.quote.provider
        if provider not in inventory.asked:
            continue  # not asked, or failed: reported in ``problems``
        try:  # it may be in a region that was not asked
            orders = find_seller(broker, purchase.quote).find_orders(purchase.quote, purchase.id)
        except BrokerError as error:
            problems.append((provider, str(error)))
            continue
        if not any(order.state is OrderState.HELD for order in orders):
            missing_purchases.append(purchase)
    capacity_differences = differences(purchases, inventory.recorded, inventory.reported, missing_purchases)
    with broker.store.reading() as reader:
        capacity_differences += charge_differences(purchases, reader.charges(), inventory.now)
    return CapacityCheck(
        inventory.now, tuple(capacity_differences), len(inventory.reported), inventory.asked, join_by_name(problems)
    )
