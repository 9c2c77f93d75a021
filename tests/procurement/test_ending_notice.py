"""People are told before bought machines are gone."""

from datetime import timedelta

from broker.core.purchases.quotes import PurchaseProduct
from broker.procurement.notices import ending_notice
from tests.core.purchases.test_purchase_steps import QUOTE
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
    assert "gpubroker capacity review purchase-1" in notice.body


def test_what_is_no_capacity_ends_without_a_word() -> None:
    plan = held(LONG.model_copy(update={"product": PurchaseProduct.SAVINGS_PLAN}))
    assert ending_notice(plan, LONG.ends - SECOND) is None


def test_what_lasts_for_months_is_told_a_month_before_with_what_to_look_at() -> None:
    year = QUOTE.model_copy(update={"ends": QUOTE.starts + timedelta(days=365)})
    for product in (PurchaseProduct.SAVINGS_PLAN, PurchaseProduct.CAPACITY_RESERVATION):
        purchase = held(year.model_copy(update={"product": product}))
        assert ending_notice(purchase, year.ends - timedelta(days=30) - SECOND) is None
        told = ending_notice(purchase, year.ends - timedelta(days=30))
        assert told is not None
        assert told.title.startswith("Renew it or let it end on")
        for said in ("capacity review", "policy findings", f"--for 1y --region {year.region} --product"):
            assert said in told.body
    reservation = ending_notice(purchase, year.ends - SECOND)
    assert reservation is not None
    assert reservation.title.startswith("Ends soon")
