"""What a watch sees, when that is worth a notice, and the line of prices in it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import Availability, CapacityType, Doubt, Offer
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.market.watch_state import WatchFinding, evaluate, lowest_prices, sparkline, step
from broker.store.records import Freshness, PollRun

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def watch(trigger: Trigger = Trigger.BELOW, **more: Any) -> Watch:
    fields: dict[str, Any] = {"machines": ("H100:8",), "price": Money.usd("2"), "part": 0.2, "within": 24 * HOUR}
    return Watch("w", trigger, NOW, "ada", **(fields | {"age": 2 * HOUR} | more))


def offer(price: str | None = "8", **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": None, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.SPOT, "price": None if price is None else Money.usd(price),
        "as_of": NOW, "source": "api", "availability": Availability.AVAILABLE, "max_age": HOUR,
    }  # fmt: skip
    return Offer(**(fields | changed))


OLD: dict[str, Any] = {"as_of": NOW - 2 * HOUR}
SOLD_OUT: dict[str, Any] = {"availability": Availability.UNAVAILABLE}
ODD: dict[str, Any] = {"doubt": Doubt.TOO_LOW}


def holds(trigger: Trigger, offers: list[Offer], before: list[Offer] | None = None) -> bool | None:
    seen = evaluate(watch(trigger), offers, before or [], {}, NOW).holds
    return None if seen is None else bool(seen)


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ([], False),
        ([offer("15.999992")], True),  # $1.999999 a GPU-hour
        ([offer("16")], False),  # below, not at
        ([offer("17"), offer("15", region="us-west-2")], True),
        ([offer("15", **SOLD_OUT)], False),
        ([offer("15", **OLD)], None),
        ([offer("15", **OLD), offer("17", region="us-west-2")], False),
        ([offer("15", reference=True)], False),
        ([offer("0.01", **ODD)], None),
        ([offer("0.01", **ODD), offer("17", region="us-west-2")], False),
        ([offer(None)], False),
        ([offer("0")], False),
        ([offer("1", count=1)], False),
    ],
)
def test_below(offers: list[Offer], expected: bool | None) -> None:
    assert holds(Trigger.BELOW, offers) is expected


@pytest.mark.parametrize(
    ("offers", "before", "expected"),
    [
        ([offer("12")], [offer("10", **OLD)], True),
        ([offer("11.9")], [offer("10", **OLD)], False),
        ([offer("12")], [], None),
        ([offer("12")], [offer(None)], None),
        ([offer("8", **SOLD_OUT), offer("12", region="b")], [offer("8"), offer("12", region="b")], True),
        ([offer("12", **SOLD_OUT)], [offer("10")], None),
        ([offer("12", **OLD)], [offer("10")], None),
    ],
)
def test_rises(offers: list[Offer], before: list[Offer], expected: bool | None) -> None:
    assert holds(Trigger.RISES, offers, before) is expected


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ([], False),
        ([offer()], True),
        ([offer(None)], True),
        ([offer(**SOLD_OUT)], False),
        ([offer(availability=Availability.NO_QUOTA)], False),
        ([offer(availability=Availability.UNKNOWN)], None),
        ([offer(availability=Availability.UNKNOWN), offer(region="b", **SOLD_OUT)], False),
        ([offer(**OLD)], None),
    ],
)
def test_available(offers: list[Offer], expected: bool | None) -> None:
    assert holds(Trigger.AVAILABLE, offers) is expected


def fresh(provider: str, hours_ago: float | None, error: str = "") -> Freshness:
    well = None if hours_ago is None else NOW - hours_ago * HOUR
    last = PollRun(provider, NOW, NOW, 0, 0, not error, error=error)
    return Freshness(provider, 1, 0, None, None, None, last, well)


def test_stale() -> None:
    polls = {one.provider: one for one in (fresh("aws", 1), fresh("gcp", 3, "HTTP 503"), fresh("vast", None))}

    def late(*providers: str) -> tuple[str, ...] | None:
        return evaluate(watch(Trigger.STALE, machines=(), providers=providers), [], [], polls, NOW).holds

    assert late() == ("gcp", "vast")
    assert late("aws") == ()
    assert late("g*") == ("gcp",)
    assert late("nebius") is None
    seen = evaluate(watch(Trigger.STALE, providers=("gcp",)), [], [], polls, NOW)
    assert "last successful poll 3h ago: HTTP 503" in seen.words
    several = {"gcp": fresh("gcp", 3, "HTTP 503\nHTTP 500\nHTTP 401")}
    seen = evaluate(watch(Trigger.STALE, providers=("gcp",)), [], [], several, NOW)
    assert seen.words.endswith("last successful poll 3h ago: HTTP 503; and 2 more")


SO, NOT_SO, UNKNOWN = WatchFinding(("",), "so"), WatchFinding((), "not so"), WatchFinding(None, "?")


def course(*found: WatchFinding, every: timedelta = 2 * HOUR, **more: Any) -> list[Notice]:
    """The notices of looks that find this, one after the other."""
    state, told = WatchState(), []
    for n, seen in enumerate(found):
        state, notice = step(watch(**more), state, seen, NOW + n * every)
        told += [notice] if notice else []
    return told


def test_what_goes_on_is_told_once_and_again_after_it_stopped() -> None:
    assert len(course(SO, SO, SO)) == 1
    assert len(course(NOT_SO, SO, NOT_SO, SO)) == 2
    first, second = course(SO, NOT_SO, SO)
    assert first.key != second.key
    assert not course(NOT_SO, UNKNOWN, NOT_SO)


def test_what_cannot_be_told_changes_nothing() -> None:
    assert len(course(SO, UNKNOWN, SO)) == 1
    assert len(course(SO, UNKNOWN, NOT_SO, UNKNOWN, SO)) == 2


def test_a_pause_delays_and_does_not_lose() -> None:
    minute = timedelta(minutes=1)
    assert len(course(SO, NOT_SO, SO, NOT_SO, every=minute)) == 1
    assert len(course(SO, NOT_SO, *[SO] * 59, every=minute)) == 2
    assert len(course(SO, NOT_SO, *[SO] * 57, every=minute)) == 1


def test_each_provider_that_gets_stale_is_told_of() -> None:
    one, two = WatchFinding(("aws",), "aws"), WatchFinding(("aws", "gcp"), "aws, gcp")
    assert len(course(one, two, one, NOT_SO)) == 2
    assert len(course(one, two, one, two)) == 3


def test_a_clock_that_was_set_back_does_not_silence_a_watch() -> None:
    later, _ = step(watch(), WatchState(), SO, NOW + 900 * HOUR)
    stopped, _ = step(watch(), later, NOT_SO, NOW)
    assert step(watch(), stopped, SO, NOW)[1] is not None


def test_the_same_finding_gives_the_same_key() -> None:
    state = WatchState()
    first, again = (step(watch(), state, SO, NOW + n * HOUR)[1] for n in (0, 1))
    assert first is not None
    assert again is not None
    assert first.key == again.key


@given(st.lists(st.sampled_from([SO, NOT_SO, UNKNOWN]), max_size=40))
def test_as_many_notices_as_beginnings(found: list[WatchFinding]) -> None:
    told = [bool(seen.holds) for seen in found if seen.holds is not None]
    beginnings = sum(1 for n, so in enumerate(told) if so and (n == 0 or not told[n - 1]))
    assert len(course(*found)) == beginnings


def test_a_notice_says_what_where_and_how_to_stop_it() -> None:
    seen = evaluate(watch(), [offer("15"), offer("14", region="us-west-2")], [], {}, NOW)
    _, notice = step(watch(), WatchState(), seen, NOW)
    assert notice is not None
    assert notice.title == "gpubroker: H100:8 below $2.00 per GPU-hour"
    assert "$1.75 per GPU-hour, aws us-west-2 p5 H100:8 spot (by api, 2026-11-21 12:00 UTC)" in notice.body
    assert "gpubroker prices watch remove w" in notice.body


START = datetime(2026, 11, 1, tzinfo=UTC)
WEEK = timedelta(days=7)


def usd(text: str) -> Money:
    return Money.usd(text)


def test_the_lowest_offer_counts_from_when_it_is_known() -> None:
    dear = [(START, usd("4"))]
    cheap = [(START + WEEK / 2, usd("2")), (START + WEEK * 0.75, None)]
    found = lowest_prices([dear, cheap], START, START + WEEK)
    assert (found[0], found[16], found[-1]) == (usd("4"), usd("2"), usd("4"))
    assert lowest_prices([[(START + WEEK / 2, usd("2"))]], START, START + WEEK)[:3] == [None] * 3


def test_a_line_of_a_week_fits_into_80_columns() -> None:
    series = [[(START + WEEK * step / 99, Money(1_912_345 + 3_333 * step)) for step in range(99)]]
    assert len(sparkline(lowest_prices(series, START, START + WEEK), WEEK, "machine-hour")) <= 80


def test_a_line_shows_low_and_high_and_what_is_not_known() -> None:
    assert sparkline([None, usd("1"), usd("3"), usd("2")], WEEK) == "lowest, last 7 d: ·▁█▄ $1.00 to $3.00 per GPU-hour"
    assert sparkline([usd("1"), usd("1")], WEEK).startswith("lowest, last 7 d: ▁▁ ")
    assert sparkline([None, usd("1")], WEEK) == ""
    for seconds, length in ((8, "8 s"), (90, "1 min"), (7200, "2 h")):
        assert sparkline([usd("1"), usd("2")], timedelta(seconds=seconds)).startswith(f"lowest, last {length}: ▁█ ")
