"""Spending by several dimensions and by named periods, in files too."""

import csv
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.billing.months import PERIODS, months_before, period_bounds
from broker.app.billing.report import (
    DIMENSIONS,
    bought_in_advance,
    spend,
    spend_report,
    write_spend,
)
from broker.app.billing.report_documents import SpendGroup
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.money import Money
from broker.ledger.entries import Movement
from broker.ledger.finops.focus.months import BillingMonth
from tests.focus_ledger import OCTOBER, RUN, SEPTEMBER, post_two_months, spent
from tests.past import finished, started

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
OVER_A_MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - HOUR


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    """Six jobs of $18.33 each: some an hour before a month's end until an hour after it, some 40 days before."""
    made = new_broker()
    for number in range(6):
        finished(made.store, number, OVER_A_MONTH if number % 2 else OVER_A_MONTH - timedelta(days=40))
    return made


def total(rows: list[SpendGroup]) -> Money:
    return sum((row.cash for row in rows), Money.ZERO)


def test_several_dimensions_add_up_to_each_of_them(broker: Broker) -> None:
    since, until = OVER_A_MONTH - timedelta(days=60), NOW + HOUR
    by_both = spend(broker, "team,user", since=since, until=until)
    assert {row.values for row in by_both} == {(f"team-{n % 5}", f"user-{n}") for n in range(6)}
    for place, name in enumerate(("team", "user")):
        for row in spend(broker, name, since=since, until=until):
            parts = [one for one in by_both if one.values[place] == row.values[0]]
            assert total(parts) == row.cash
            assert sum(one.jobs for one in parts) == row.jobs


def test_months_add_up_to_the_whole_in_any_place(broker: Broker) -> None:
    since, until = OVER_A_MONTH - timedelta(days=60), NOW + HOUR
    whole = total(spend(broker, "team", since=since, until=until))
    first = spend(broker, "month,team", since=since, until=until)
    last = spend(broker, "team,month", since=since, until=until)
    assert total(first) == total(last) == whole > Money.ZERO
    assert {row.values for row in first} == {(row.values[1], row.values[0]) for row in last}
    (split,) = [row for row in last if row.values == ("team-1", f"{OVER_A_MONTH:%Y-%m}")]
    (rest,) = [row for row in last if row.values == ("team-1", f"{OVER_A_MONTH + 2 * HOUR:%Y-%m}")]
    assert split.cash > Money.ZERO
    assert rest.cash > Money.ZERO
    alone = spend(broker, "month", since=since, until=until)
    assert total(alone) == whole


def test_money_that_moves_at_the_turn_of_a_month_is_in_the_new_one_alone(broker: Broker) -> None:
    turn, ends = OVER_A_MONTH + HOUR, NOW + HOUR
    tags = replace(RUN, job_id=finished(broker.store, 6, OVER_A_MONTH), provider="cloud")

    def months() -> list[Money]:
        return [total(spend(broker, "team", since=a, until=b)) for a, b in ((None, turn), (turn, ends))]

    (old, new) = months()
    with broker.store.writing() as tx:
        tx.post(
            [
                *spent(1, "5", turn, turn, turn, movement=Movement.ADJUST, tags=tags),
                *spent(3, "1", turn - HOUR, turn - HOUR, turn, movement=Movement.ADJUST, tags=tags),
                *spent(2, "2", turn, turn, turn, movement=Movement.RESTORE, tags=tags),
            ]
        )
    assert months() == [old + Money.usd(1), new + Money.usd(3)], "a charge, less what was given back"


def test_what_jobs_hold_is_counted_by_all_dimensions(broker: Broker) -> None:
    started(broker.store, 1, NOW - HOUR)
    held = {row.values: row.held for row in spend(broker, "team,provider") if row.held}
    assert held == {("team-1", "cloud"): Money.usd(40)}
    by_month = {row.values: row.held for row in spend(broker, "month,team") if row.held}
    assert by_month == {(f"{NOW:%Y-%m}", "team-1"): Money.usd(40)}


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(PERIODS),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles", "Pacific/Kiritimati"]),
)
def test_named_periods_begin_at_midnight_and_last_ones_end_where_these_begin(
    now: datetime, name: str, timezone: str
) -> None:
    zone = ZoneInfo(timezone)
    start, end = (at.astimezone(zone) for at in period_bounds(name, now, timezone))
    assert start.day == end.day == 1
    assert start.hour == start.minute == 0
    if name.startswith("last-"):
        assert end == period_bounds(name.removeprefix("last-"), now, timezone)[0]
    else:
        assert start <= now < end
    first = months_before(now, timezone).astimezone(zone)
    assert (first.month, first.day, first.hour) == (now.astimezone(zone).month % 12 + 1, 1, 0)
    month = BillingMonth.of(now, timezone)
    assert period_bounds(month.name, now, timezone) == (month.start, month.end)


def test_a_month_by_its_number_is_a_period() -> None:
    assert period_bounds("2026-02", NOW, "UTC") == (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))
    with pytest.raises(UnknownName):
        period_bounds("fortnight", NOW, "UTC")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_have_every_row(broker: Broker, tmp_path: Path, ending: str) -> None:
    report, out = spend_report(broker, "team,user"), tmp_path / f"spend{ending}"
    write_spend(out, report)
    if ending == ".csv":
        with out.open(newline="") as file:
            found = [(one["team"], one["user"], Decimal(one["cash"])) for one in csv.DictReader(file)]
    else:
        import pyarrow.parquet

        found = [(one["team"], one["user"], one["cash"]) for one in pyarrow.parquet.read_table(out).to_pylist()]
    assert found == [(*row.values, row.cash.dollars) for row in report.rows]
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="the file exists already"):
        write_spend(out, report)


def test_no_name_is_a_formula_and_amounts_stay_numbers(broker: Broker, tmp_path: Path) -> None:
    given, out = spend_report(broker, "team,user"), tmp_path / "spend.csv"
    row = given.rows[0].model_copy(update={"values": ["=HYPERLINK(1)", "-ann"], "cash": Money.usd("-1.50")})
    write_spend(out, given.model_copy(update={"rows": [row]}))
    (found,) = csv.DictReader(out.read_text().splitlines())
    assert (found["team"], found["user"], Decimal(found["cash"])) == ("'=HYPERLINK(1)", "'-ann", Decimal("-1.5"))


def test_every_dimension_can_stand_with_every_other(broker: Broker) -> None:
    assert {len(row.values) for row in spend(broker, ",".join(DIMENSIONS))} == {len(DIMENSIONS)}


def test_what_was_bought_and_what_was_rented_are_the_whole(new_broker: Callable[[], Broker]) -> None:
    broker = new_broker()
    finished(broker.store, 0, OVER_A_MONTH)
    (rented,) = spend(broker, "team")
    assert (rented.bought, rented.rented) == (Money.ZERO, rented.cash)
    with broker.store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE machine_time SET capacity_type = 'reserved'")
    (bought,) = spend(broker, "team")
    assert (bought.bought, bought.rented) == (rented.cash, Money.ZERO)
    (part,) = spend(broker, "team", since=OVER_A_MONTH, until=OVER_A_MONTH + HOUR)  # entries at an edge, too
    assert Money.ZERO < part.bought == part.cash < rented.cash


def test_what_is_paid_in_advance_is_no_spend_of_a_machine_and_told_apart(broker: Broker) -> None:
    post_two_months(broker.store)
    assert bought_in_advance(broker) == Money.usd("700")
    assert bought_in_advance(broker, since=SEPTEMBER, until=OCTOBER) == Money.usd("700")
    assert bought_in_advance(broker, since=OCTOBER) == bought_in_advance(broker, sandbox=True) == Money.ZERO


def test_the_last_month_of_the_calendar_is_no_period() -> None:
    with pytest.raises(UnknownName):
        period_bounds("9999-12", datetime(2026, 11, 25, tzinfo=UTC), "UTC")
