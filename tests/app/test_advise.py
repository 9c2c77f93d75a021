"""Prices and use for advice: with a store and without one, and the arithmetic of use."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.advise import history
from broker.app.advise.history import AttemptUse
from broker.app.advise.prices import CurrentPrices, current_prices
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Interconnect, Offer
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT


def prices(*rows: Offer) -> CurrentPrices:
    return CurrentPrices.of(rows, NOW)


def row(count: int, usd: float, age: timedelta = timedelta(0)) -> Offer:
    return Offer("aws", "us-east-1", None, f"p5-{count}", "H100", count, ON_DEMAND, Money(round(usd * 1e6)), NOW - age,
                 "api", interconnect=Interconnect.NVLINK, engine="skypilot", max_age=timedelta(hours=1))  # fmt: skip


def test_a_machine_larger_than_needed_is_paid_in_full() -> None:
    quote = prices(row(8, 24), row(1, 4)).quote("H100", per_machine=4, machines=2)
    assert quote is not None
    assert (quote.machine, quote.machines, quote.gpus) == ("H100:8", 2, 8)
    assert quote.usd_per_hour == 48
    assert quote.usd_per_gpu_hour == 6


def test_what_is_stale_counts_only_where_nothing_else_is_known() -> None:
    stale = row(1, 1, timedelta(hours=2))
    live = prices(stale, row(1, 4)).quote("H100")
    assert live is not None
    assert live.usd_per_hour == 4
    only = prices(stale).quote("H100")
    assert only is not None
    assert only.stale


def test_what_was_stated_comes_first() -> None:
    stated = prices(row(1, 4)).with_stated({"H100": 2.5})
    for kind in (ON_DEMAND, SPOT):
        quote = stated.quote("H100", 8, 2, kind)
        assert quote is not None
        assert (quote.usd_per_hour, quote.usd_per_gpu_hour) == (40, 2.5)


def test_no_price_is_none_not_zero() -> None:
    assert prices(row(1, 4)).quote("H100", per_machine=2) is None
    assert prices(row(1, 4)).quote("H100", kind=SPOT) is None
    assert prices().quote("L4") is None


def test_advice_without_a_store_has_the_listed_prices_and_makes_none(broker: Broker) -> None:
    now, store = datetime.now(UTC), broker.settings.home / "store.db"
    store.unlink()
    listed = current_prices(broker.settings.store_url, now, lambda: broker)
    assert not store.exists()
    freshen(broker)
    stored = current_prices(broker.settings.store_url, now, lambda: broker)

    def plain(known: CurrentPrices) -> set[tuple[object, ...]]:
        return {(offer.id, offer.price) for offers in known.offers.values() for offer in offers}

    assert plain(stored) == plain(listed) != set()


def test_use_is_counted_hour_by_hour() -> None:
    since = NOW - timedelta(hours=10)
    used = history.summarize(
        [
            (since, since + timedelta(hours=4), 2),
            (since + timedelta(hours=3, minutes=30), since + timedelta(hours=5), 8),
            (since - timedelta(days=9), since + timedelta(minutes=30), 1),  # began before
        ],
        since,
        NOW,
        gpus=1,
    )
    assert used.gpu_hours == pytest.approx(4 * 2 + 1.5 * 8 + 0.5)
    assert used.hours == 10
    assert used.utilization == pytest.approx(0.5)
    assert used.peak == 8
    assert used.steady == 2  # in at least 4 of the 10 hours
    assert used.peak_to_baseline == 4


@given(
    st.lists(st.tuples(st.floats(0, 200), st.floats(0.01, 50), st.integers(1, 64)), min_size=1, max_size=12),
    st.integers(1, 8),
)
def test_no_hour_is_counted_twice_and_nothing_is_used_more_than_always(
    ran: list[tuple[float, float, int]], gpus: int
) -> None:
    since = NOW - timedelta(hours=100)
    stretches = [
        (since + timedelta(hours=start), since + timedelta(hours=start + length), count) for start, length, count in ran
    ]
    used = history.summarize(stretches, since, NOW, gpus)
    expected = sum(max(0.0, min(start + length, 100) - start) * count for start, length, count in ran)
    assert used.gpu_hours == pytest.approx(expected, abs=1e-6)
    assert 0 <= used.utilization <= 1 + 1e-9
    assert used.peak_to_baseline >= 1


def test_use_of_one_team_and_card() -> None:
    start, end = NOW - timedelta(hours=24), NOW - timedelta(hours=12)
    ran = [
        AttemptUse("nlp", "H100", 1, start, end),
        AttemptUse("nlp", "L4", 4, start, None),
        AttemptUse(None, "H100", 8, start, end),
    ]
    one = history.usage(ran, NOW, days=1, accelerator="H100", team="nlp")
    assert one.gpu_hours == pytest.approx(12)
    assert one.attempts == 1
    assert one.utilization == pytest.approx(0.5)
    running = history.usage(ran, NOW, days=1, accelerator="L4")
    assert running.gpu_hours == pytest.approx(96), "what is not gone runs until now"
    with pytest.raises(InvalidInput, match="no GPU job ran on A100"):
        history.usage(ran, NOW, days=1, accelerator="A100")
    with pytest.raises(InvalidInput, match=r"in the last 0\.25 days"):
        history.usage(ran, NOW, days=0.25, accelerator="H100")
