"""What a period will come to, and which marks it has passed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.core.policy.policy import BudgetUse
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.forecast import Draw, SpendingPace, forecast, passed_thresholds, threshold

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIMIT = Money.usd(900)


def use(spent: str, held: str = "0") -> BudgetUse:
    return BudgetUse(START, END, Money.usd(spent), Money.usd(held))


def held(amount: int, start: datetime, end: datetime) -> Burn:
    return Burn.evenly(Money.usd(amount), (start, end))


def test_what_runs_spends_at_its_rate_within_its_hold() -> None:
    now = END - 10 * HOUR
    runs = Draw(held(500, now, END + 90 * HOUR), Money.usd(2))
    ends_sooner = Draw(held(7, now, END), Money.usd(2))
    assert forecast(use("100"), LIMIT, [runs], now).committed == Money.usd(120)
    assert forecast(use("100"), LIMIT, [runs, ends_sooner], now).committed == Money.usd(127)


def test_what_waits_spends_its_hold_over_its_time() -> None:
    now = END - 10 * HOUR
    waits = Draw(held(40, now, END + 10 * HOUR))
    assert forecast(use("100"), LIMIT, [waits], now).committed == Money.usd(120)


def test_the_pace_counts_once_there_is_one() -> None:
    ahead = forecast(use("400"), LIMIT, [], START + timedelta(days=10))
    assert ahead.trend == ahead.expected == Money.usd(1200)
    assert ahead.used_up_at == START + timedelta(days=22, hours=12)
    early = forecast(use("400"), LIMIT, [], START + timedelta(days=2))
    assert (early.trend, early.expected, early.used_up_at) == (None, Money.usd(400), None)
    assert (early.low, early.high) == (None, None)


def test_a_period_that_is_over_comes_to_what_was_spent() -> None:
    ahead = forecast(use("950", "50"), LIMIT, [Draw(held(50, START, END))], END)
    assert (ahead.expected, ahead.used_up_at) == (Money.usd(950), None)
    pace = SpendingPace(Money.usd(1), Money.usd(1), Money.usd(1))
    assert forecast(use("950"), LIMIT, [], END, pace).expected == Money.usd(950), "nothing is to come"


def test_at_its_end_a_period_comes_to_what_was_spent_though_money_is_held() -> None:
    """What runs on is paid from the next period."""
    runs = Draw(held(50, START, END + HOUR), Money.usd(2))
    for now in (END, END + HOUR):
        ahead = forecast(use("950"), LIMIT, [runs], now)
        assert (ahead.committed, ahead.trend, ahead.used_up_at) == (Money.usd(950), Money.usd(950), None)


def test_before_a_period_begins_only_what_is_meant_for_it_counts() -> None:
    """A budget of fixed days is looked at before it begins: who runs now is not known to run then at the same rate."""
    now = START - 10 * HOUR
    runs = Draw(held(40, now, START + 30 * HOUR), Money.usd(3))
    ends_before = Draw(held(9, now, START), Money.usd(3))
    assert forecast(use("0"), LIMIT, [ends_before, runs], now).committed == Money.usd(30)  # three quarters of 40
    assert forecast(use("0"), LIMIT, [runs, runs], START).committed == Money.usd(80)  # by then it is known to run
    for_long = Draw(held(3000, START, END + (END - START)), Money.usd(1))
    assert forecast(use("0"), LIMIT, [for_long], START).committed == Money.usd(720)  # 720 h at $1, not half of 3000


def test_before_a_period_begins_there_is_no_pace_of_it() -> None:
    pace = SpendingPace(Money.usd(200), Money.usd(150), Money.usd(300))
    assert forecast(use("0"), LIMIT, [], START - HOUR, pace).trend is None
    assert forecast(use("0"), LIMIT, [], START, pace).trend == Money.usd(200)


def test_a_tenth_of_a_period_is_enough_for_a_pace() -> None:
    tenth = START + timedelta(days=3)
    assert forecast(use("40"), LIMIT, [], tenth).trend == Money.usd(400)
    assert forecast(use("40"), LIMIT, [], tenth - timedelta(microseconds=1)).trend is None


def test_when_a_budget_is_used_up() -> None:
    third = START + timedelta(days=10)
    assert forecast(use("300"), LIMIT, [], third).used_up_at is None, "the pace comes to the limit exactly"
    assert forecast(use("900"), LIMIT, [], third).used_up_at == third, "all of it is spent now"
    assert forecast(use("901"), LIMIT, [], third).used_up_at is None, "it was used up before"
    assert forecast(use("0"), Money(-1), [], third).used_up_at is None, "nothing is spent, so there is no pace"
    # $330 in 864,000 s: the $570 that are left last 1,492,363.636363… s; not a microsecond more is promised.
    assert forecast(use("330"), LIMIT, [], third).used_up_at == third + timedelta(
        days=17, hours=6, minutes=32, seconds=43, microseconds=636363
    )


@given(
    spent=st.integers(0, 2 * 10**9),
    holds=st.integers(0, 10**9),
    rate=st.integers(0, 10**8),
    minutes=st.integers(0, 30 * 1440),
    covers=st.integers(-1440, 60 * 1440),
)
def test_never_less_than_spent_nor_more_committed_than_held(
    spent: int, holds: int, rate: int, minutes: int, covers: int
) -> None:
    now = START + timedelta(minutes=minutes)
    state = BudgetUse(START, END, Money(spent), Money(holds))
    lasting = Burn.evenly(Money(holds), (now, now + timedelta(minutes=covers)))
    for draw in (Draw(lasting, Money(rate)), Draw(Burn.evenly(Money(holds), (now, now)))):
        ahead = forecast(state, LIMIT, [draw], now)
        assert Money(spent) <= ahead.committed <= Money(spent + holds)
        assert ahead.expected >= ahead.committed
        assert ahead.used_up_at is None or now <= ahead.used_up_at <= END


def test_what_is_expected_of_a_job_counts_and_not_what_it_holds() -> None:
    now = END - 10 * HOUR
    runs = Draw(held(500, now, END + 90 * HOUR), Money.usd(2), expected=Money.usd(6))
    waits = Draw(held(40, now, now + 5 * HOUR), expected=Money.usd(10))
    assert forecast(use("100"), LIMIT, [runs], now).committed == Money.usd(106)
    assert forecast(use("100"), LIMIT, [waits], now).committed == Money.usd(110)
    more_than_held = Draw(held(3, now, END), Money.usd(2), expected=Money.usd(60))
    assert forecast(use("100"), LIMIT, [more_than_held], now).committed == Money.usd(103)


def test_the_pace_of_daily_spending_goes_before_the_average() -> None:
    """$400 by a third of the period; the last days were quieter than the average of $40."""
    third = START + timedelta(days=10)
    ahead = forecast(use("400"), LIMIT, [], third, SpendingPace(Money.usd(200), Money.usd(150), Money.usd(300)))
    assert (ahead.trend, ahead.expected) == (Money.usd(600), Money.usd(600))
    assert (ahead.low, ahead.high, ahead.used_up_at) == (Money.usd(550), Money.usd(700), None)
    dear = forecast(use("400"), LIMIT, [], third, SpendingPace(Money.usd(1000), Money.usd(900), Money.usd(1100)))
    assert dear.used_up_at == START + timedelta(days=20), "half of what is to come is the half that is left"

    def used_up(spent: str, rest: int) -> datetime | None:
        return forecast(use(spent), LIMIT, [], third, SpendingPace(Money.usd(rest), Money.ZERO, Money.ZERO)).used_up_at

    assert used_up("400", 500) is None, "it comes to the limit exactly"
    assert used_up("900", 500) == third, "all of it is spent now"
    # $700 in 1,728,000 s: the $500 that are left last 1,234,285.714285714… s; not a microsecond more is promised.
    assert used_up("400", 700) == third + timedelta(seconds=1_234_285, microseconds=714_285)


def test_jobs_that_cost_more_than_the_pace_raise_what_is_expected_within_its_bounds() -> None:
    now = END - 10 * HOUR
    runs = Draw(held(500, now, END + 90 * HOUR), Money.usd(20))
    ahead = forecast(use("100"), LIMIT, [runs], now, SpendingPace(Money.usd(5), Money.usd(2), Money.usd(9)))
    assert (ahead.expected, ahead.low, ahead.high) == (Money.usd(300), Money.usd(102), Money.usd(300))


def test_marks() -> None:
    alerts = ("50%", "80%", "100%", "forecast 80%", "forecast")

    def of(spent: str, expected: str = "0") -> list[str]:
        return passed_thresholds(alerts, LIMIT, Money.usd(spent), Money.usd(expected))

    assert of("0") == []
    assert of("449.999999") == []
    assert of("450") == ["50%"]
    assert of("0", "719.999999") == []
    assert of("0", "720") == ["forecast 80%"]
    assert of("720", "900") == ["50%", "80%", "forecast 80%"]
    assert of("720", "900.000001") == ["50%", "80%", "forecast 80%", "forecast"]
    assert of("900", "0") == ["50%", "80%", "100%"]
    assert of("900.000001", "901") == ["50%", "80%", "100%", "forecast 80%", "forecast", "exceeded"]
    assert passed_thresholds(("0%",), LIMIT, Money.ZERO, Money.ZERO) == [], "nothing is spent, so no mark is passed"
    assert passed_thresholds((), LIMIT, Money.usd(901), Money.ZERO) == ["exceeded"]


def test_a_threshold_says_what_it_is_about() -> None:
    assert [threshold(mark) for mark in ("12.5%", "forecast 80%", "forecast")] == [
        ("", 12.5), ("forecast", 80.0), ("forecast", None),
    ]  # fmt: skip
