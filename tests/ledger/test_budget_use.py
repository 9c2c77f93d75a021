"""What a budget has used in its periods, and which money counts under it."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.values.money import Money
from broker.ledger.budgets import (
    Window,
    budget_uses,
    in_scope,
    period_containing,
)
from tests.ledger.test_budgets import amounts, lasting, recent, spec, utc


def test_each_period_counts_its_spend_and_its_share_of_what_is_held() -> None:
    now = utc("2026-01-31T12:00+01:00")
    asked: list[Window] = []

    def spent(start: datetime, end: datetime) -> Money:
        asked.append((start, end))
        return Money.usd(100) if start < now < end else Money.ZERO

    january, february = budget_uses(
        spec(),
        (now, now + timedelta(days=3)),
        now,
        spent,
        [
            lasting(Money.usd(48), now, now + timedelta(hours=48)),  # a quarter of it before midnight
            lasting(Money.usd(10), now, now - timedelta(hours=1)),  # over time: counts now
            lasting(Money.usd(7), now, utc("2026-01-31T23:00+01:00")),
        ],
    )

    assert (january.spent, january.held) == (Money.usd(100), Money.usd(12 + 10 + 7))
    assert (february.spent, february.held) == (Money.ZERO, Money.usd(36))
    assert asked == [(january.period_start, january.period_end), (february.period_start, february.period_end)]
    assert january.period_end == february.period_start == utc("2026-02-01T00:00+01:00")


@pytest.mark.parametrize(("months", "asked_for"), [(3, 3), (4, 2), (20, 2)])
def test_of_many_periods_those_after_the_last_spend_are_not_asked_for(months: int, asked_for: int) -> None:
    now = utc("2026-01-31T12:00+01:00")
    asked: list[Window] = []

    def spent(start: datetime, end: datetime) -> Money:
        asked.append((start, end))
        return Money.usd(7)

    uses = budget_uses(
        spec(),
        (now, now + timedelta(days=30 * (months - 1) - 5)),
        now,
        spent,
        [],
        lambda: utc("2026-03-01T00:00+01:00"),  # the spend of a charge that is dated ahead ends with February
    )

    assert len(uses) == months
    assert asked == [(use.period_start, use.period_end) for use in uses[:asked_for]]
    assert [use.spent for use in uses] == [Money.usd(7)] * asked_for + [Money.ZERO] * (months - asked_for)


@given(recent, st.lists(st.tuples(amounts, st.timedeltas(-timedelta(days=5), timedelta(days=20)))))
def test_no_held_money_is_lost_between_periods(now: datetime, held: list[tuple[Money, timedelta]]) -> None:
    holds = [lasting(amount, now, now + length) for amount, length in held]

    uses = budget_uses(spec(), (now, now + timedelta(days=21)), now, lambda start, end: Money.ZERO, holds)

    assert sum((use.held for use in uses), Money.ZERO) == sum((amount for amount, _ in held), Money.ZERO)


@pytest.mark.parametrize(
    ("scope", "inside"),
    [
        ({}, True),
        ({"teams": ("nlp",)}, True),
        ({"teams": ("vision", "nl*")}, True),
        ({"teams": ("NLP",)}, False),
        ({"teams": ("n",)}, False),
        ({"teams": ("nlp",), "users": ("bob",)}, False),
        ({"teams": ("nlp",), "users": ("an?",), "workloads": ("training", "batch")}, True),
        ({"projects": ("*",)}, False),  # it has none
        ({"environments": ("prod*",)}, True),
        ({"environments": ("staging",)}, False),
        ({"workloads": ("batch",)}, False),
        ({"teams": ("vision",)}, False),
    ],
)
def test_scopes(scope: dict[str, tuple[str, ...]], inside: bool) -> None:
    tags: dict[str, Any] = {
        "user": "ann",
        "team": "nlp",
        "project": None,
        "workload": "training",
        "environment": "production",
    }

    assert in_scope(spec(**scope), **tags) is inside


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "Europe", "../etc/passwd", "/etc/localtime", "x" * 300, "a\0b"])
def test_a_time_zone_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        period_containing("month", name, utc("2026-01-01T00:00+00:00"))


def test_an_unknown_period_is_named() -> None:
    with pytest.raises(ValueError, match="expected one of day, week, month, quarter"):
        period_containing("fortnight", "UTC", utc("2026-01-01T00:00+00:00"))
