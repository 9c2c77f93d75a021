"""People are told before bought machines are gone."""

from __future__ import annotations

from datetime import timedelta

from broker.core.purchases.quotes import PurchaseProduct
from broker.procurement.notices import ending_notice
from tests.core.purchases.test_purchase_steps import PAID, QUOTE
from tests.procurement.test_using import held

SECOND = timedelta(seconds=1)
SHORT = QUOTE.model_copy(update={"ends": QUOTE.starts + timedelta(hours=20)})
LONG = QUOTE.model_copy(update={"ends": QUOTE.starts + timedelta(days=30)})


def test_it_is_a_day_before_the_end_or_in_the_last_tenth() -> None:
    for quote, before in ((LONG, timedelta(days=1)), (SHORT, timedelta(hours=2))):
        purchase, told = held(quote), quote.ends - before
        assert ending_notice(purchase, told - SECOND) is None
        first, last = ending_notice(purchase, told), ending_notice(purchase, quote.ends - SECOND)
        assert first is not None
        assert last is not None
        assert first.key == last.key, "sent once"
        assert ending_notice(purchase, quote.ends) is None


def test_it_says_when_jobs_leave_and_what_can_be_done() -> None:
    notice = ending_notice(held(LONG), LONG.ends - SECOND)
    assert notice is not None
    assert f"Jobs leave it at {LONG.ends - timedelta(minutes=35):%Y-%m-%d %H:%M} UTC" in notice.body
    assert f"--extends {PAID.id}" in notice.body
    reservation = held(LONG.model_copy(update={"product": PurchaseProduct.CAPACITY_RESERVATION}))
    other = ending_notice(reservation, LONG.ends - SECOND)
    assert other is not None
    assert "--extends" not in other.body


def test_what_is_no_capacity_ends_without_a_word() -> None:
    plan = held(LONG.model_copy(update={"product": PurchaseProduct.SAVINGS_PLAN}))
    assert ending_notice(plan, LONG.ends - SECOND) is None
