"""What a period will come to, and which marks it has passed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.core.money import Money
from broker.core.policy import BudgetUse
from broker.ledger.forecast import Draw, forecast, passed

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIMIT = Money.usd(900)


def use(spent: str, held: str = "0") -> BudgetUse:
    return BudgetUse(START, END, Money.usd(spent), Money.usd(held))


def test_what_runs_spends_at_its_rate_within_its_hold() -> None:
    now = END - 10 * HOUR
    runs = Draw(Money.usd(500), END + 90 * HOUR, Money.usd(2))
    ends_sooner = Draw(Money.usd(7), END, Money.usd(2))
    assert forecast(use("100"), LIMIT, [runs], now).committed == Money.usd(120)
    assert forecast(use("100"), LIMIT, [runs, ends_sooner], now).committed == Money.usd(127)


def test_what_waits_spends_its_hold_over_its_time() -> None:
    now = END - 10 * HOUR
    waits = Draw(Money.usd(40), END + 10 * HOUR)
    assert forecast(use("100"), LIMIT, [waits], now).committed == Money.usd(120)


def test_the_pace_counts_once_there_is_one() -> None:
    ahead = forecast(use("400"), LIMIT, [], START + timedelta(days=10))
    assert ahead.trend == ahead.expected == Money.usd(1200)
    assert ahead.used_up_at == START + timedelta(days=22, hours=12)
    early = forecast(use("400"), LIMIT, [], START + timedelta(days=2))
    assert (early.trend, early.expected, early.used_up_at) == (None, Money.usd(400), None)


def test_a_period_that_is_over_comes_to_what_was_spent() -> None:
    ahead = forecast(use("950", "50"), LIMIT, [Draw(Money.usd(50), END)], END)
    assert (ahead.expected, ahead.used_up_at) == (Money.usd(950), None)


@given(
    spent=st.integers(0, 2 * 10**9),
    held=st.integers(0, 10**9),
    rate=st.integers(0, 10**8),
    minutes=st.integers(0, 30 * 1440),
    covers=st.integers(-1440, 60 * 1440),
)
def test_never_less_than_spent_nor_more_committed_than_held(
    spent: int, held: int, rate: int, minutes: int, covers: int
) -> None:
    now = START + timedelta(minutes=minutes)
    state = BudgetUse(START, END, Money(spent), Money(held))
    for draw in (Draw(Money(held), now + timedelta(minutes=covers), Money(rate)), Draw(Money(held), now)):
        ahead = forecast(state, LIMIT, [draw], now)
        assert Money(spent) <= ahead.committed <= Money(spent + held)
        assert ahead.expected >= ahead.committed
        assert ahead.used_up_at is None or now <= ahead.used_up_at <= END


def test_marks() -> None:
    alerts = ("50%", "80%", "100%", "forecast")

    def of(spent: str, held: str, expected: str = "0") -> list[str]:
        return passed(alerts, LIMIT, use(spent, held), Money.usd(expected))

    assert of("0", "0") == []
    assert of("200", "249.999999") == []
    assert of("200", "250") == ["50%"]
    assert of("0", "720", "900") == ["50%", "80%"]
    assert of("0", "720", "900.000001") == ["50%", "80%", "forecast"]
    assert of("900", "0") == ["50%", "80%", "100%"]
    assert of("900", "0.000001") == ["50%", "80%", "100%", "overdrawn"]
    assert of("900.000001", "0", "901") == ["50%", "80%", "100%", "forecast", "overdrawn", "exceeded"]
    assert passed((), LIMIT, use("901"), Money.ZERO) == ["overdrawn", "exceeded"]
