"""The line of prices in a notice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from broker.core.values.money import Money
from broker.market.watch_state import line, lowest

START = datetime(2026, 11, 1, tzinfo=UTC)
WEEK = timedelta(days=7)


def usd(text: str) -> Money:
    return Money.usd(text)


def test_the_lowest_offer_counts_from_when_it_is_known() -> None:
    dear = [(START, usd("4"))]
    cheap = [(START + WEEK / 2, usd("2")), (START + WEEK * 0.75, None)]
    found = lowest([dear, cheap], START, START + WEEK)
    assert (found[0], found[25], found[-1]) == (usd("4"), usd("2"), usd("4"))
    assert lowest([[(START + WEEK / 2, usd("2"))]], START, START + WEEK)[:3] == [None] * 3


def test_a_line_shows_low_and_high_and_what_is_not_known() -> None:
    assert (
        line([None, usd("1"), usd("3"), usd("2")], WEEK) == "last 7 d: ·▁█▄ $1.00 to $3.00 per GPU-hour (lowest offer)"
    )
    assert line([usd("1"), usd("1")], WEEK).startswith("last 7 d: ▁▁ ")
    assert line([None, usd("1")], WEEK) == ""
    for seconds, length in ((8, "8 s"), (90, "1 min"), (7200, "2 h")):
        assert line([usd("1"), usd("2")], timedelta(seconds=seconds)).startswith(f"last {length}: ▁█ ")
