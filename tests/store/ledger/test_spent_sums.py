"""What was spent, by the sums that are kept: figures worked out by hand for days, quarters of an hour and edges."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Unpack

import pytest
from sqlalchemy import delete, insert, select, update

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.entries import DAY, QUARTER, Entry, Movement
from broker.store import Store
from broker.store.jobs.journal import Proof
from broker.store.ledger import spent_sums
from broker.store.schema.ledger import SpendGroupRow, SpendSumRow
from tests.store.fields import TagFields
from tests.store.ledger.test_balances import HOUR, T, moved, post, spent_in_full

MIDNIGHT = T - 12 * HOUR  # at which the day of T begins
ONE_DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
TODAY = date(2026, 3, 2).toordinal() - date(1970, 1, 1).toordinal()  # as a slot of a day


def budget(*counts: str, **scope: Any) -> BudgetSpec:
    return BudgetSpec("b", "month", "UTC", frozenset(counts or ("cash",)), **scope)


def spend(
    micros: int, first: float, after: float, money: MoneyKind = MoneyKind.CASH, **about: Unpack[TagFields]
) -> tuple[Entry, ...]:
    """Spent from so many hours after T on."""
    return moved(Movement.ADJUST, micros, (first, after), money=money, **about)


def spent(store: Store, start: datetime, end: datetime, **scope: tuple[str, ...]) -> tuple[int, int]:
    """By the kept sums, and added up from all entries."""
    spec = budget(**scope)
    with store.reading() as look:
        return (
            look.spent(spec, start, end).micros,
            spent_in_full(look, spec, start, end).micros,
        )


def daily(store: Store, since: datetime, until: datetime, spec: BudgetSpec) -> list[int]:
    with store.reading() as look:
        return [one.micros for one in look.daily_spending(spec, since, until)]


def test_each_day_has_what_was_spent_on_it(store: Store) -> None:
    about: TagFields = {"workload": "training", "team": "nlp"}
    post(
        store,
        spend(120, 6, 18, **about),  # half before midnight, half after
        spend(24, 12, 36, **about),  # the whole next day
        spend(7, 40, 41, workload="training", team="vision"),
        spend(1000, 0, 1),  # a purchase: nobody works on it
        spend(500, 0, 25, **about),  # more than a day
        spend(3, 0, 1, money=MoneyKind.SANDBOX, **about),
    )
    before, after = MIDNIGHT - ONE_DAY, MIDNIGHT + 3 * ONE_DAY
    assert daily(store, before, after, budget()) == [0, 60, 84, 7]
    assert daily(store, MIDNIGHT, after - ONE_DAY, budget()) == [60, 84]
    assert daily(store, before, after, budget(teams=("nlp",))) == [0, 60, 84, 0]
    assert daily(store, before, after, budget(teams=("v*",))) == [0, 0, 0, 7]
    assert daily(store, before, after, budget("sandbox", "cash")) == [0, 63, 84, 7]
    assert daily(store, MIDNIGHT, MIDNIGHT, budget()) == []


def test_nothing_is_spent_after_the_last_quarter_of_an_hour_or_what_lasts_longest(store: Store) -> None:
    def until(**scope: tuple[str, ...]) -> datetime:
        with store.reading() as look:
            return look.spent_until(budget(**scope))

    assert until() == datetime(1970, 1, 1, tzinfo=UTC)
    post(store, moved(Movement.HOLD, 100, (0, 99)), spend(4, 0, 1.1, team="nlp"), spend(4, 3, 3.3, team="vision"))
    assert until(teams=("nlp",)) == T + 1.25 * HOUR
    assert until(teams=("n*",)) == T + 1.25 * HOUR
    assert until() == T + 3.5 * HOUR
    post(store, spend(6, -60, 2, team="other"))  # whosever it is
    assert until(teams=("nlp",)) == T + 2 * HOUR
    assert until() == T + 3.5 * HOUR


def test_sums_are_kept_by_tags_and_slot(store: Store) -> None:
    tags: TagFields = {"team": "t", "project": "p", "workload": "w", "environment": "e"}
    post(store, spend(10, 0, 0.5, **tags), moved(Movement.HOLD, 99), spend(5, 1, 1), spend(-5, 1, 1), spend(1, 0, 25))
    quarter = TODAY * 96 + 48
    key, other = '["cash","ada","t","p","w","e"]', '["cash","ada",null,null,null,null]'
    with store.reading() as look:
        assert look.kept_sums() == {(key, DAY, TODAY): 10, (key, QUARTER, quarter): 5, (key, QUARTER, quarter + 1): 5}
        groups = look._connection.execute(select(SpendGroupRow).order_by(SpendGroupRow.id)).all()
    assert [list(row)[1:] for row in groups] == [
        [key, "cash", "ada", "t", "p", "w", "e"],
        [other, "cash", "ada", None, None, None, None],
    ]


def test_what_lasts_a_day_and_what_lasts_longer_count_alike(store: Store) -> None:
    post(store, spend(2400, 0, 24), spend(96, -20, 28))  # 100 an hour; 2 an hour
    assert spent(store, MIDNIGHT, MIDNIGHT + ONE_DAY) == (1200 + 48, 1200 + 48)  # 12 h of the one, 24 h of the other
    assert spent(store, T - 30 * HOUR, T + 30 * HOUR) == (2496, 2496)
    assert spent(store, T + 24 * HOUR, T + 99 * HOUR) == (8, 8)
    assert spent(store, T - 99 * HOUR, T - 20 * HOUR) == (0, 0)
    assert spent(store, T + 0.1 * HOUR, T + 0.2 * HOUR) == (10, 10)
    assert spent(store, T + 28 * HOUR, T + 29 * HOUR) == (0, 0)


def test_what_lasts_no_time_counts_at_its_moment_to_the_microsecond(store: Store) -> None:
    hours = (7 * TICK) / HOUR
    post(store, spend(9, hours, hours))
    at = T + 7 * TICK
    assert spent(store, at, at + TICK) == (9, 9)
    assert spent(store, at - TICK, at) == (0, 0)
    assert spent(store, at + TICK, at + HOUR) == (0, 0)
    assert spent(store, MIDNIGHT, MIDNIGHT + ONE_DAY) == (9, 9)


def test_what_is_bought_is_told_apart_from_what_is_rented_pro_rata_at_the_edges(store: Store) -> None:
    owned: TagFields = {"capacity_type": CapacityType.OWNED, "team": "nlp"}
    reserved: TagFields = {"capacity_type": CapacityType.RESERVED, "team": "nlp"}
    post(
        store,
        spend(1000, 0, 10, money=MoneyKind.AMORTISED, **owned),
        spend(480, -24, 24, **reserved),  # over more than a day
        spend(7, 1, 1, **reserved),
        spend(64, 0, 8, capacity_type=CapacityType.SPOT, team="nlp"),
        spend(32, 0, 8, capacity_type=CapacityType.OWNED, team="web"),
    )
    spec = budget("cash", "amortised", teams=("nlp",))
    with store.reading() as look:
        assert look.spent_on_own(spec, T, T + 4 * HOUR).micros == 400 + 40 + 7
        assert look.spent(spec, T, T + 4 * HOUR).micros == 400 + 40 + 7 + 32
        assert look.spent_on_own(spec, T - 99 * HOUR, T + 99 * HOUR).micros == 1487
        assert look.spent_on_own(budget(teams=("w*",)), T, T + 8 * HOUR).micros == 32


def test_all_that_is_kept_is_compared_however_many_months_there_are(store: Store) -> None:
    """Portions of 32 days begin at the midnight a day before what ends first: March 1, April 2, May 4."""
    april = datetime(2026, 4, 2, tzinfo=UTC)
    at_edge = (april - T) / HOUR
    movements: Sequence[Sequence[Entry]] = (
        spend(10, 0, 0.5),  # 3 sums
        spend(5, 2, 2.25),  # 1 more, as the day is there
        spend(-5, 2, 2.25),  # which comes to nothing now
        spend(8, at_edge - 0.25, at_edge + 0.25),  # a quarter and a day on each side: 4
        spend(96, at_edge - 1, at_edge + 23),  # a whole day of quarters, 2 of them there: 94
        spend(6, 1900, 1900.25),  # in May: 2
        spend(7, 0, 30),  # more than a day: none
        spend(3, at_edge, at_edge),  # no time at all, where a portion begins: in sums that are there
    )
    post(store, *movements)
    with store.reading() as look:
        assert len(look.kept_sums()) == 3 + 4 + 94 + 2
    assert store.prove() == Proof(0, [], 103, 0)
    with store._database.writing() as connection:
        days = SpendSumRow.size == DAY
        [march, first, second, may] = [row.slot for row in connection.execute(select(SpendSumRow).where(days)).all()]
        assert (march, second - first) == (TODAY, 1)
        connection.execute(
            update(SpendSumRow).where(days, SpendSumRow.slot == may).values(micros=SpendSumRow.micros + 1)
        )
        connection.execute(delete(SpendSumRow).where(days, SpendSumRow.slot == first))
    assert store.prove() == Proof(0, [], 102, 2)
    assert store.prove() == Proof(0, [], 103, 0)


@pytest.mark.parametrize("slot", [(TODAY - 1095) * 96, (TODAY + 1095) * 96])
def test_a_sum_far_from_all_entries_is_found(store: Store, slot: int) -> None:
    """Three years before or after."""
    post(store, spend(10, 0, 0.25))
    with store._database.writing() as connection:
        [group] = connection.scalars(select(SpendGroupRow).with_only_columns(SpendGroupRow.id)).all()
        connection.execute(insert(SpendSumRow).values(size=QUARTER, group_id=group, slot=slot, micros=1))
    assert store.prove() == Proof(0, [], 3, 1)
    assert store.prove() == Proof(0, [], 2, 0)


def test_sums_that_were_lost_are_found_and_made_anew_however_far_apart(store: Store) -> None:
    """Nothing but the entries tells where to look."""
    post(store, spend(10, 0, 0.25), spend(20, 9000, 9000.25))
    with store._database.writing() as connection:
        connection.execute(delete(SpendSumRow))
    assert store.prove() == Proof(0, [], 0, 4)
    assert store.prove() == Proof(0, [], 4, 0)


def test_the_last_moment_is_compared_too(store: Store) -> None:
    """What lasts no time, where the second portion begins, on April 2."""
    post(store, spend(10, 0, 0.25), spend(20, 31 * 24 - 12, 31 * 24 - 12))
    with store._database.writing() as connection:
        connection.execute(delete(SpendSumRow))
    assert store.prove() == Proof(0, [], 0, 4)


def test_groups_are_made_anew_with_the_sums(store: Store) -> None:
    post(store, spend(10, 0, 0.25, team="nlp"))
    with store._database.writing() as connection:
        connection.execute(delete(SpendSumRow))
        connection.execute(update(SpendGroupRow).values(team="vision"))
    assert store.prove() == Proof(0, [], 0, 2)
    assert spent(store, MIDNIGHT, MIDNIGHT + ONE_DAY, teams=("nlp",)) == (10, 10)


def test_a_quarter_of_an_hour_in_1970_is_not_taken_for_the_day_of_that_number(store: Store) -> None:
    then = (datetime(1970, 1, 1, tzinfo=UTC) + TODAY * HOUR / 4 - T) / HOUR
    post(store, spend(10, 0, 0.25), spend(7, then, then + 0.25))
    assert spent(store, MIDNIGHT, MIDNIGHT + ONE_DAY) == (10, 10)


def test_without_entries_there_is_nothing_to_compare(store: Store) -> None:
    assert store.prove() == Proof()


def test_only_what_counts_under_a_budget_is_counted_however_long_it_lasts(store: Store) -> None:
    """An hour, a day and a half, and five minutes at the edge of what is asked for; of other teams, in other money."""
    for first, after in ((1, 2), (-6, 30), (0, 1 / 12)):
        post(store, spend(360, first, after, team="nlp"))
        post(
            store,
            spend(3600, first, after, team="vision"),
            spend(36_000, first, after, team="nlp", money=MoneyKind.SANDBOX),
        )
    end = T + 6 * HOUR + HOUR / 24
    # All of the hour, six hours of thirty-six, and half of the five minutes.
    assert spent(store, T + HOUR / 24, end, teams=("nlp",)) == (360 + 60 + 180, 360 + 60 + 180)
    assert spent(store, T + HOUR / 24, end) == (11 * 600, 11 * 600)
    with store.reading() as look:
        assert look.spent(budget("sandbox", teams=("nlp",)), T + HOUR / 24, end) == Money(60_000)
        assert look.spent_until(budget("amortised", teams=("nlp",))) == T + 30 * HOUR
    post(store, spend(5, 90, 91, money=MoneyKind.AMORTISED, team="nlp"))
    with store.reading() as look:
        assert look.spent_until(budget(teams=("nlp", "else"))) == T + 30 * HOUR
        assert look.spent_until(budget("amortised", teams=("nlp", "else"))) == T + 91 * HOUR


def test_names_are_patterns_only_where_they_have_a_sign_of_one(store: Store) -> None:
    assert not spent_sums.has_patterns(budget(teams=("nlp",), users=("ada", "X")))
    assert spent_sums.has_patterns(budget(teams=("nlp",), users=("bob", "a*")))
