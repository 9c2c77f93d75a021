"""For which time, and at which rate, a hold was judged; by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import future_period_edges
from broker.ledger.entries import Balance, Dates, Entry, Movement, Tags, held_burns, move
from broker.ledger.holds import burn_of

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DATES = Dates(NOW, NOW + 4 * HOUR, Money.usd(3))


def held(movement: Movement, amount: int, hours: tuple[int, int], rate: int | None, **more: MoneyKind) -> list[Entry]:
    """A movement with the dates that it gives what is held."""
    start, end = hours
    return list(
        move(
            movement, Money.usd(amount), movement_id=f"{movement}/{amount}", money=more.get("kind", MoneyKind.CASH),
            at=NOW, covers=(NOW + start * HOUR, NOW + end * HOUR), tags=Tags("j", "ann"),
            rate=None if rate is None else Money.usd(rate),
        )
    )  # fmt: skip


def burn(amount: int, hours: tuple[int, int], rate: int) -> Burn:
    return Burn(Money.usd(amount), NOW + hours[0] * HOUR, NOW + hours[1] * HOUR, Money.usd(rate))


@pytest.mark.parametrize(
    ("rate", "egress", "longest", "expected"),
    [
        (5, 0, 10, burn(20, (0, 4), 5)),  # $20 at $5 an hour
        (5, 10, 10, burn(20, (0, 2), 5)),  # half of it is used at once
        (5, 30, 10, burn(20, (0, 0), 5)),
        (5, 0, 2, burn(20, (0, 2), 10)),  # more than two hours need: it may be used up at $10 an hour
        (0, 20, 10, burn(20, (0, 0), 0)),
        (0, 0, 10, burn(20, (0, 10), 2)),
    ],
)
def test_a_hold_ends_when_its_rate_has_used_it_up(rate: int, egress: int, longest: int, expected: Burn) -> None:
    assert burn_of(Money.usd(20), Money.usd(rate), Money.usd(egress), NOW, longest * HOUR) == expected


def test_the_last_movement_with_a_rate_dates_all_that_is_held() -> None:
    entries = held(Movement.HOLD, 10, (0, 5), 2)
    assert held_burns(entries) == {MoneyKind.CASH: burn(10, (0, 5), 2)}
    entries += held(Movement.TOP_UP, 4, (1, 3), 7)
    assert held_burns(entries) == {MoneyKind.CASH: burn(14, (1, 3), 7)}
    entries += held(Movement.SETTLE, 6, (0, 1), None)
    assert held_burns(entries) == {MoneyKind.CASH: burn(8, (1, 3), 7)}
    entries += held(Movement.DATE, 0, (2, 9), 1)
    assert held_burns(entries) == {MoneyKind.CASH: burn(8, (2, 9), 1)}
    assert held_burns([*entries, *held(Movement.RELEASE, 8, (0, 0), None)]) == {}


def test_movements_without_a_rate_are_spread_to_the_latest_end_at_the_highest_rate() -> None:
    entries = held(Movement.HOLD, 10, (0, 5), None)  # $10 in 5 h: $2 an hour
    assert held_burns(entries) == {MoneyKind.CASH: burn(10, (0, 5), 2)}
    # $9 in 3 h are $3 an hour, the higher rate; $6 in 6 h are $1 an hour, but end later.
    assert held_burns([*entries, *held(Movement.TOP_UP, 9, (1, 4), None)]) == {MoneyKind.CASH: burn(19, (0, 5), 3)}
    assert held_burns([*entries, *held(Movement.TOP_UP, 6, (1, 7), None)]) == {MoneyKind.CASH: burn(16, (0, 7), 2)}


def test_a_hold_that_was_used_up_is_dated_anew() -> None:
    entries = [*held(Movement.HOLD, 10, (0, 5), None), *held(Movement.SETTLE, 10, (0, 1), None)]
    assert held_burns(entries) == {}
    assert held_burns([*entries, *held(Movement.TOP_UP, 2, (1, 2), None)]) == {MoneyKind.CASH: burn(2, (1, 2), 2)}


def test_each_kind_of_money_has_its_own_dates() -> None:
    other = held(Movement.HOLD, 3, (1, 2), 9, kind=MoneyKind.AMORTISED)
    assert held_burns([*held(Movement.HOLD, 10, (0, 5), 2), *other]) == {
        MoneyKind.CASH: burn(10, (0, 5), 2),
        MoneyKind.AMORTISED: burn(3, (1, 2), 9),
    }


@pytest.mark.parametrize(("amount", "dates"), [(12, None), (0, DATES), (-1, DATES)])
def test_without_money_or_dates_nothing_is_used_up(amount: int, dates: Dates | None) -> None:
    assert Balance(held=Money.usd(amount), dates=dates).burn is None


def test_what_is_held_is_used_up_by_its_dates() -> None:
    assert Balance(held=Money(1), dates=DATES).burn == Burn(Money(1), NOW, NOW + 4 * HOUR, Money.usd(3))


def test_the_ends_of_the_present_periods_of_budgets_that_count_this_money() -> None:
    def spec(period: str, counts: str = "cash") -> BudgetSpec:
        return BudgetSpec(period, period, "UTC", frozenset({counts}))

    day, month = NOW.replace(day=3, hour=0), NOW.replace(month=4, day=1, hour=0)
    ahead = NOW.replace(day=10, hour=0)
    specs = [spec("month"), spec("day"), spec("month"), spec("week", "sandbox"), spec("2026-03-10/2026-03-12")]
    found = future_period_edges(specs, MoneyKind.CASH, NOW)
    assert found == (day, ahead, NOW.replace(day=12, hour=0), month)
    assert future_period_edges([spec("day")], MoneyKind.CASH, day) == (day + 24 * HOUR,)
    assert future_period_edges([], MoneyKind.CASH, NOW) == ()
