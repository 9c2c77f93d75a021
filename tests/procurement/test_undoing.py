"""Undoing purchases, every way and every refusal; and what falls due of those that are paid over their period."""

from contextlib import suppress
from datetime import timedelta

import pytest

from broker.app.capacity import purchases
from broker.core.errors import BrokerError, Conflict, InvalidInput, NotAllowed, Refused
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import PurchaseState
from broker.core.values.money import Money
from tests.actors import ANN, BOB, person
from tests.fakes.aws_cloud import AwsFault
from tests.procurement.conftest import NOW, REGION, Shop
from tests.procurement.crashes import BuyerKilled, Reaper, mortal
from tests.procurement.kinds import LATER, NOW_ON, PLAN, Kind, open_shop

NOTHING = Money.ZERO
DAY = timedelta(days=1)
THREE_DAYS = Money.usd(1440)  # two machines at $10 an hour


@pytest.fixture(autouse=True)
def _open(shop: Shop) -> None:
    open_shop(shop)
    PLAN.stock(shop)


def test_a_reservation_costs_what_its_hours_cost_until_it_ends(shop: Shop) -> None:
    held = NOW_ON.held(shop)
    assert (held.state, held.quote.total, shop.money(held)) == (PurchaseState.HELD, THREE_DAYS, (THREE_DAYS, NOTHING))
    shop.clock.advance(timedelta(hours=11, minutes=59))
    assert shop.advance(held).charged == NOTHING, "it is booked at midnight"
    shop.clock.advance(timedelta(minutes=1))
    assert shop.money(shop.advance(held)) == (Money.usd(1200), Money.usd(240))
    shop.clock.advance(DAY)
    assert shop.advance(held).charged == Money.usd(720)
    shop.clock.time = held.quote.ends
    for row in shop.cloud.reservations[REGION]:
        row["State"] = "expired"
    over = shop.advance(held)
    assert (over.state, over.evidence, shop.money(held)) == (PurchaseState.ENDED, "", (NOTHING, THREE_DAYS))


def test_days_that_nobody_looked_are_booked_each_in_its_own_time(shop: Shop) -> None:
    held = NOW_ON.held(shop)
    shop.clock.advance(3 * DAY)
    assert shop.advance(held).charged == THREE_DAYS
    with shop.broker.store.reading() as look:
        spent = [one for one in look.entries() if one.account == "spent"]
    assert [(one.covers_to - one.covers_from, one.amount) for one in spent] == [
        (timedelta(hours=12), Money.usd(240)),
        (DAY, Money.usd(480)),
        (DAY, Money.usd(480)),
        (timedelta(hours=12), Money.usd(240)),
    ]


def test_a_reservation_is_cancelled_at_any_time(shop: Shop) -> None:
    held = NOW_ON.held(shop)
    shop.clock.advance(timedelta(hours=30))
    terms = purchases.undo_terms(shop.broker, held.id)
    assert (terms.way, terms.charge) == ("cancel", NOTHING)
    gone = purchases.undo(shop.broker, held.id, by=ANN)
    assert (gone.state, gone.undone_by, shop.money(held)) == (PurchaseState.UNDONE, "ann", (NOTHING, Money.usd(600)))
    assert shop.broker.store.holdings() == []
    assert [row["State"] for row in shop.cloud.reservations[REGION]] == ["cancelled"]
    assert f"purchase/{held.id}/undone" in shop.notices()


def test_what_was_cancelled_at_the_console_ends_and_gives_back_the_rest(shop: Shop) -> None:
    held = NOW_ON.held(shop)
    shop.clock.advance(timedelta(hours=12))
    shop.cloud.reservations[REGION][0]["State"] = "cancelled"
    over = shop.advance(held)
    assert (over.state, over.evidence, shop.money(held)) == (
        PurchaseState.ENDED,
        "cancelled",
        (NOTHING, Money.usd(240)),
    )
    assert f"purchase/{held.id}/ended" in shop.notices()


@pytest.mark.parametrize("word", ["failed", "unavailable", "unsupported"])
def test_a_request_that_aws_cannot_serve_gives_the_money_back(shop: Shop, word: str) -> None:
    asked = LATER.approved(shop)
    assert shop.advance(asked).state is PurchaseState.ORDERED
    shop.cloud.reservations[REGION][0]["State"] = word
    over = shop.advance(asked)
    assert (over.reason, over.evidence, shop.money(asked)) == (NotBought.PROVIDER_REFUSED, word, (NOTHING, NOTHING))


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", PurchaseState.ORDERED),
        ("assessing", PurchaseState.ORDERED),
        ("payment-pending", PurchaseState.ORDERED),
        ("a-new-word", PurchaseState.ORDERED),
        ("scheduled", PurchaseState.HELD),
        ("active", PurchaseState.HELD),
        ("delayed", PurchaseState.HELD),
        ("cancelling", PurchaseState.ORDERED),
        ("cancelled", PurchaseState.ENDED),
        ("payment-failed", PurchaseState.NOT_BOUGHT),
        ("failed", PurchaseState.NOT_BOUGHT),
        ("unsupported", PurchaseState.NOT_BOUGHT),
        ("unavailable", PurchaseState.NOT_BOUGHT),
    ],
)
def test_every_state_of_a_reservation_that_was_ordered(shop: Shop, word: str, state: PurchaseState) -> None:
    asked = LATER.approved(shop)
    shop.advance(asked)
    shop.cloud.mangle["DescribeCapacityReservations"] = lambda body: body.replace(b"assessing", word.encode())
    found = shop.advance(asked)
    held = NOTHING if state.closed else asked.ceiling
    assert (found.state, shop.money(asked)) == (state, (held, NOTHING))


def test_a_future_reservation_is_billed_from_its_delivery(shop: Shop) -> None:
    held = LATER.held(shop)
    shop.clock.time = NOW + 11 * DAY
    assert shop.advance(held).charged == NOTHING
    assert f"purchase/{held.id}/late" in shop.notices(), "it should have begun yesterday"
    row = shop.cloud.reservations[REGION][0]
    row.update(State="active", StartDate=NOW + 11 * DAY)
    shop.clock.time = NOW + 12 * DAY
    assert shop.advance(held).charged == Money.usd(240)
    shop.clock.time = held.quote.ends
    row["State"] = "expired"
    over = shop.advance(held)
    assert (over.state, shop.money(held)) == (PurchaseState.ENDED, (NOTHING, Money.usd(20 * 24 * 13)))


def test_cancelling_a_scheduled_reservation_costs_what_aws_quotes(shop: Shop) -> None:
    held = LATER.held(shop)
    terms = purchases.undo_terms(shop.broker, held.id)
    assert (terms.charge, terms.until) == (Money.usd(960), NOW + DAY)
    with pytest.raises(InvalidInput, match=r"costs \$960.00"):
        purchases.undo(shop.broker, held.id, by=ANN)
    with pytest.raises(InvalidInput, match=r"costs \$960.00"):
        purchases.undo(shop.broker, held.id, by=ANN, max_charge=Money.usd("959.99"))
    gone = purchases.undo(shop.broker, held.id, by=ANN, max_charge=Money.usd(960))
    assert (gone.state, shop.money(held)) == (PurchaseState.UNDONE, (NOTHING, Money.usd(960)))


def test_a_wind_down_is_charged_once(shop: Shop) -> None:
    """While AWS winds a cancelled reservation down it lists it as cancelling, and charges what it quoted."""
    held = LATER.held(shop)
    row = shop.cloud.reservations[REGION][0]
    row["State"] = "active"
    shop.clock.time = held.quote.starts + DAY
    shop.advance(held)
    spent = shop.money(held)[1]
    shop.cloud.mangle["DescribeCapacityReservations"] = lambda body: body.replace(b"cancelled", b"cancelling")
    assert purchases.undo(shop.broker, held.id, by=ANN, max_charge=Money.usd(2000)).state is PurchaseState.UNDOING
    shop.clock.advance(2 * DAY)
    assert shop.advance(held).state is PurchaseState.UNDOING
    shop.cloud.mangle.clear()
    gone = shop.advance(held)
    assert gone.state is PurchaseState.UNDONE
    until_asked = Money.usd(10) * 2 * 24
    assert (spent, shop.money(held)) == (Money.usd(240), (NOTHING, until_asked + Money.usd(960)))


@pytest.mark.parametrize("word", ["assessing", "delayed"])
def test_what_is_assessed_or_late_is_cancelled_for_nothing(shop: Shop, word: str) -> None:
    asked = LATER.approved(shop)
    shop.advance(asked)
    shop.cloud.reservations[REGION][0]["State"] = word
    shop.advance(asked)
    gone = purchases.undo(shop.broker, asked.id, by=ANN)
    assert (gone.state, shop.money(asked)) == (PurchaseState.UNDONE, (NOTHING, NOTHING))


def test_an_expired_cancellation_quote_leaves_it_as_it_was(shop: Shop) -> None:
    held = LATER.held(shop)
    shop.cloud.faults["CancelCapacityReservation"] = [AwsFault("CancellationQuoteExpired", 400, "ask again")]
    still = purchases.undo(shop.broker, held.id, by=ANN, max_charge=Money.usd(960))
    assert (still.state, shop.money(held)) == (PurchaseState.HELD, (held.ceiling, NOTHING))
    assert "CancellationQuoteExpired" in still.evidence
    assert f"purchase/{held.id}/not-undone" in shop.notices()


def test_a_quote_that_aws_has_not_computed_yet_can_be_asked_for_again(shop: Shop) -> None:
    held = LATER.held(shop)
    shop.cloud.shop.quote_state = "pending"
    with pytest.raises(BrokerError, match="not computed"):
        purchases.undo_terms(shop.broker, held.id)


def test_a_plan_is_returned_and_what_was_paid_upfront_comes_back(shop: Shop) -> None:
    held = PLAN.held(shop)
    assert shop.money(held) == (held.quote.recurring, PLAN.upfront)
    shop.clock.advance(timedelta(hours=12))
    due = shop.advance(held).charged - PLAN.upfront
    assert due > NOTHING
    terms = purchases.undo_terms(shop.broker, held.id)
    assert (terms.way, terms.refund, terms.until) == ("return", PLAN.upfront, NOW + 7 * DAY)
    gone = purchases.undo(shop.broker, held.id, by=ANN)
    assert (gone.state, gone.charged, shop.money(held)) == (PurchaseState.UNDONE, due, (NOTHING, due))
    assert [row["state"] for row in shop.cloud.savings_plans] == ["returned"]
    with shop.broker.store.reading() as look:
        (back,) = [one for one in look.entries() if one.account == "spent" and one.amount == -PLAN.upfront]
    assert back.covers_from == back.covers_to == held.paid_at, "it counts in the period of the payment"


def test_a_plan_that_aws_does_not_take_back_any_more_stays(shop: Shop) -> None:
    held = PLAN.held(shop)
    shop.clock.advance(7 * DAY)
    with pytest.raises(Refused, match="since 2026-11-30 12:00 UTC"):
        purchases.undo(shop.broker, held.id, by=ANN)


def test_a_queued_plan_is_deleted_before_it_begins(shop: Shop) -> None:
    request = PLAN.request.model_copy(update={"earliest": NOW + 30 * DAY})
    later = Kind(PLAN.product, request, PLAN.call, PLAN.stock, PLAN.bought, PLAN.paid, PLAN.upfront)
    asked = later.approved(shop)
    assert shop.advance(asked).state is PurchaseState.ORDERED
    terms = purchases.undo_terms(shop.broker, asked.id)
    assert (terms.way, terms.until) == ("delete_queued", NOW + 30 * DAY)
    gone = purchases.undo(shop.broker, asked.id, by=ANN)
    assert (gone.state, shop.money(asked)) == (PurchaseState.UNDONE, (NOTHING, NOTHING))


def test_what_cannot_be_undone_says_so(shop: Shop) -> None:
    asked = shop.approved()
    shop.advance(asked)
    shop.paid()
    held = shop.advance(asked)
    with pytest.raises(Refused, match="cannot be undone"):
        purchases.undo(shop.broker, held.id, by=ANN)
    assert shop.broker.store.purchase(held.id).state is PurchaseState.HELD


def test_a_payment_that_fails_gives_the_money_back(shop: Shop) -> None:
    asked = PLAN.approved(shop)
    shop.advance(asked)
    for row in PLAN.bought(shop):
        row["state"] = "payment-failed"
    over = shop.advance(asked)
    assert (over.reason, shop.money(asked)) == (NotBought.NOT_PAID, (NOTHING, NOTHING))


def test_who_may_undo(shop: Shop) -> None:
    held = NOW_ON.held(shop)
    with pytest.raises(NotAllowed, match="purchase of ann"):
        purchases.undo(shop.broker, held.id, by=person("carl"))
    assert purchases.undo(shop.broker, held.id, by=BOB).undone_by == "bob", "he approves such purchases"


def test_what_was_not_ordered_is_withdrawn_instead(shop: Shop) -> None:
    asked = NOW_ON.approved(shop)
    with pytest.raises(Conflict, match="approved"):
        purchases.undo(shop.broker, asked.id, by=ANN)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=() if at % 8 == 1 else pytest.mark.system) for at in range(1, 14)]
)
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_buyer_killed_while_it_undoes(shop: Shop, at: int, lost: bool) -> None:
    held = LATER.held(shop)
    terms = purchases.undo_terms(shop.broker, held.id)
    if lost:
        shop.cloud.late_faults["CancelCapacityReservation"] = [AwsFault("InternalError", 500)]
    with suppress(BuyerKilled):
        mortal(shop.broker, Reaper(at)).ask_undo(held, terms, "ann")
    for _ in range(3):
        shop.clock.advance(timedelta(seconds=30))
        found = shop.advance(held)
    if found.state is PurchaseState.HELD:  # it was killed before it wrote the request down
        assert [row["State"] for row in shop.cloud.reservations[REGION]] == ["scheduled"]
        found = purchases.undo(shop.broker, held.id, by=ANN, max_charge=terms.charge)
    assert (found.state, shop.money(held)) == (PurchaseState.UNDONE, (NOTHING, Money.usd(960)))
