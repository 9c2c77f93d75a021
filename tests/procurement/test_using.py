"""Bought capacity as offers, and when work leaves it."""

from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.policy import LiveAttempt
from broker.core.purchases.purchase_events import OrderPaid, OrderSent, OrderTaken, PurchaseEnded, UndoAsked, Undone
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote, OrderState, PurchaseProduct, UndoTerms
from broker.core.values.money import Money
from broker.procurement.bought_offers import (
    LEAVE_BEFORE,
    add_bought_offers,
    available_purchases,
    leave_at,
    orders_of,
    upcoming_offers,
)
from broker.reconciler.admission.admission import subtract_occupied
from tests.core.purchases.test_purchase_steps import BOB, CHARGED, OLGA, PAID, QUOTE, bought

DURING = QUOTE.starts + timedelta(hours=1)
RESERVED = {"product": PurchaseProduct.CAPACITY_RESERVATION}


def held(quote: CapacityQuote = QUOTE) -> Purchase:
    paid = OrderPaid(order=PAID, charged=quote.paid_upfront, holding=7)
    return bought(BOB, OLGA, OrderSent(quote=quote), OrderTaken(order=PAID), paid)


def live(pool: str, nodes: int = 1) -> LiveAttempt:
    return LiveAttempt(
        "j", "ann", None, None, "training", None, 8, "H100", "aws", MoneyKind.AMORTISED, pool=pool, nodes=nodes
    )


def only(purchase: Purchase, at: datetime = DURING) -> Offer:
    [offer] = add_bought_offers([], [purchase], at)
    return offer


def test_a_bought_machine_costs_nothing_more_and_has_the_value_of_its_hours() -> None:
    offer = only(held())
    assert (offer.price, offer.amortised, offer.money) == (Money.ZERO, QUOTE.per_machine_hour, MoneyKind.AMORTISED)
    assert (offer.capacity_type, offer.slots, offer.availability) == (
        CapacityType.RESERVED,
        2,
        Availability.AVAILABLE,
    )
    assert offer.engine == "skypilot"
    assert only(held(QUOTE.model_copy(update=RESERVED))).engine == "skypilot"
    assert only(held(QUOTE.model_copy(update={"provider": "oci"}))).engine is None, "nobody names it there"


def test_a_launch_is_told_the_orders_of_its_offer() -> None:
    purchases = [held(), held()]
    assert orders_of(only(held()), purchases, DURING) == (PAID.id,)
    assert orders_of(only(held()), purchases, QUOTE.ends) == ()
    other = replace(only(held()), capacity_type=CapacityType.ON_DEMAND, money=MoneyKind.CASH)
    assert orders_of(other, purchases, DURING) == ()
    paid_again = replace(only(held()), money=MoneyKind.CASH)
    assert orders_of(paid_again, purchases, DURING) == (), "a reservation that nobody has bought yet"


def test_a_purchase_is_available_in_its_period_only_and_a_savings_plan_never() -> None:
    purchase = held()
    times = (QUOTE.starts - timedelta(seconds=1), QUOTE.starts, QUOTE.ends)
    assert [len(available_purchases([purchase], at)) for at in times] == [0, 1, 0]
    plan = held(QUOTE.model_copy(update={"product": PurchaseProduct.SAVINGS_PLAN}))
    assert available_purchases([plan], DURING) == []


def test_an_order_by_the_month_is_there_once_the_provider_holds_it() -> None:
    quote = QUOTE.model_copy(update={"upfront": Money.usd(900)})
    for state, available in ((OrderState.HELD, 1), (OrderState.PENDING, 0)):
        purchase = held(quote).model_copy(update={"order": PAID.model_copy(update={"state": state})})
        assert len(available_purchases([purchase], DURING)) == available


def test_machines_in_use_are_not_free() -> None:
    offer = only(held())

    def free(nodes: int) -> int | None:
        return subtract_occupied([offer], [live(offer.pool, nodes)])[0].slots

    assert [free(nodes) for nodes in (0, 1, 2, 3)] == [2, 1, 0, 0], "each machine counts once"


def test_work_leaves_35_minutes_before_the_end() -> None:
    purchase, leaves = held(), QUOTE.ends - timedelta(minutes=35)
    assert leave_at(only(purchase), [purchase], DURING) == leaves == QUOTE.ends - LEAVE_BEFORE
    assert only(purchase, leaves - timedelta(seconds=1)).availability is Availability.AVAILABLE
    late = only(purchase, leaves)
    assert (late.availability, "before it ends" in late.unavailable_because) == (Availability.UNAVAILABLE, True)


def test_work_leaves_at_once_what_was_undone_or_ended_under_it() -> None:
    """An open reservation that is cancelled ends no machine: each runs on at the price on demand."""
    offer = only(held())
    for last in (Undone(order=PAID, charge=Money.ZERO, refund=Money.ZERO), PurchaseEnded()):
        asked = [UndoAsked(by="ann", terms=UndoTerms(way="cancel"))] if isinstance(last, Undone) else []
        over = bought(BOB, OLGA, OrderSent(quote=QUOTE), OrderTaken(order=PAID), CHARGED, *asked, last)
        assert leave_at(offer, [over], DURING) == DURING
        assert leave_at(offer, [over, held()], DURING) == QUOTE.ends - LEAVE_BEFORE, "another is there"
        assert leave_at(replace(offer, as_of=QUOTE.ends), [over], QUOTE.ends) is None, "it is of something newer"
    ahead = held(QUOTE.model_copy(update={"starts": QUOTE.ends, "ends": QUOTE.ends + timedelta(days=1)}))
    assert leave_at(offer, [over, ahead], DURING) == DURING, "what has not begun holds no machine"


def test_what_the_provider_lists_is_not_offered_twice() -> None:
    listed = replace(only(held()), source="aws-capacity-reservations:targeted", amortised=None, slots=1, engine=None)
    [offer] = add_bought_offers([listed], [held()], DURING)
    assert offer.engine == "skypilot", "its reservation can be named, since it is known here"
    assert (offer.source, offer.amortised, offer.slots) == (listed.source, QUOTE.per_machine_hour, 1)
    [offer] = add_bought_offers([replace(listed, engine="slurm")], [held()], DURING)
    assert offer.engine == "slurm", "an engine that is known stays"


def test_other_offers_stay_as_they_are() -> None:
    other = replace(only(held()), capacity_type=CapacityType.ON_DEMAND, money=MoneyKind.CASH, price=Money.usd(90))
    assert add_bought_offers([other], [held()], DURING)[0] == other
    assert leave_at(other, [held()], DURING) is None
    assert add_bought_offers([other], [], DURING) == [other]


def test_what_a_quote_does_not_say_is_taken_from_offers_of_the_same_machine() -> None:
    rented = replace(
        only(held()), capacity_type=CapacityType.ON_DEMAND, money=MoneyKind.CASH, cpus=96.0, memory_gib=1152.0
    )
    own = add_bought_offers([rented], [held()], DURING)[-1]
    assert (own.capacity_type, own.cpus, own.memory_gib) == (CapacityType.RESERVED, 96.0, 1152.0)


def test_machines_that_are_still_to_come() -> None:
    early, before = QUOTE.starts - timedelta(hours=3), timedelta(hours=3)
    [(offer, begins)] = upcoming_offers([], [held()], early, before)
    assert (begins, offer.slots, offer.engine, offer.price) == (QUOTE.starts, 2, "skypilot", Money.ZERO)
    assert upcoming_offers([], [held()], early - timedelta(seconds=1), before) == [], "not within that time"
    assert upcoming_offers([], [held()], QUOTE.starts, before) == [], "it is there"
    assert upcoming_offers([offer], [held()], early, before) == [], "others of its pool are there"
    assert upcoming_offers([], [bought(BOB, OLGA)], early, before) == [], "it is not bought yet"
