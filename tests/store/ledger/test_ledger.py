"""Money in the store: posted once, summed rightly, counted under the right budgets."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Unpack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Entry, Movement, Tags, balances, faults, move
from broker.ledger.journal import OpenHold
from broker.store import Store
from tests.counts import FULL
from tests.store.fields import TagFields
from tests.store.ledger.test_balances import spent_in_full

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHARED = settings(
    max_examples=20 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_ids = itertools.count()


def moved(
    movement: Movement,
    micros: int,
    *,
    job: str = "j1",
    money: MoneyKind = MoneyKind.CASH,
    covers: tuple[datetime, datetime] = (T, T + HOUR),
    **tags: Unpack[TagFields],
) -> tuple[Entry, ...]:
    return move(
        movement,
        Money(micros),
        movement_id=f"m{next(_ids)}",
        money=money,
        at=T,
        covers=covers,
        tags=replace(Tags(job, "ada", team="nlp"), **tags),
    )


def budget(*counts: str, **scope: Any) -> BudgetSpec:
    return BudgetSpec("b", "month", "UTC", frozenset(counts or ("cash",)), **scope)


def post(store: Store, *movements: Sequence[Entry]) -> None:
    with store.writing() as journal:
        for entries in movements:
            journal.post(entries)


def test_entries_come_back_whole_and_in_order(store: Store) -> None:
    everything = Tags("j2", "bob", "t", "p", "training", "prod", 3, "aws", "us-east-1", CapacityType.SPOT, "H100", 16)
    first = moved(Movement.HOLD, 7)
    second = move(
        Movement.ADJUST,
        Money(-3),
        movement_id="later",
        money=MoneyKind.SANDBOX,
        at=T + timedelta(microseconds=1),
        covers=(T - HOUR, T),
        tags=everything,
        note="a refund",
        rate=Money(5),
    )
    post(store, first, second)
    with store.reading() as journal:
        assert journal.entries() == [*first, *second]
        assert journal.entries("j2") == list(second)
        assert journal.entries("j3") == []


def test_a_movement_is_posted_once(store: Store) -> None:
    entries = moved(Movement.HOLD, 7)
    post(store, entries)
    with pytest.raises(ValueError, match=entries[0].movement_id):
        post(store, moved(Movement.HOLD, 1), entries)
    with store.reading() as journal:
        assert journal.entries() == list(entries)
        assert journal.balance("j1") == {MoneyKind.CASH: Balance(Money(-7), Money(7), Money(0))}


def test_posting_nothing_is_fine(store: Store) -> None:
    post(store, ())
    with store.reading() as journal:
        assert journal.balance("j1") == {}


@SHARED
@given(
    batches=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([one for one in Movement if one is not Movement.DATE]),
                st.integers(0, 10**12),
                st.sampled_from(["a", "b"]),
                st.sampled_from(MoneyKind),
            ),
            max_size=5,
        ),
        max_size=5,
    )
)
def test_the_kept_sums_are_the_full_sums(
    store: Store, batches: list[list[tuple[Movement, int, str, MoneyKind]]]
) -> None:
    for batch in batches:
        post(store, [e for m, micros, job, kind in batch for e in moved(m, micros, job=job, money=kind)])
    with store.reading() as journal:
        kept = {job: journal.balance(job) for job in ("a", "b")}
        assert kept == {job: balances(journal.entries(job)) for job in ("a", "b")}
        assert not [fault for fault in faults(journal.entries()) if "balance" in fault]
    store.rebuild()
    with store.reading() as journal:
        assert kept == {job: journal.balance(job) for job in ("a", "b")}


def test_spend_lands_in_the_period_in_which_it_was_incurred(store: Store) -> None:
    post(store, moved(Movement.HOLD, 300), moved(Movement.SETTLE, 90, covers=(T - HOUR, T + 2 * HOUR)))
    with store.reading() as journal:
        assert journal.spent(budget(), T - HOUR, T) == Money(30)
        assert journal.spent(budget(), T, T + 2 * HOUR) == Money(60)
        assert journal.spent(budget(), T + HOUR / 2, T + HOUR) == Money(15)
        assert journal.spent(budget(), T - 9 * HOUR, T + 9 * HOUR) == Money(90)
        assert journal.spent(budget(), T + 2 * HOUR, T + 9 * HOUR) == Money(0)


def test_a_charge_that_covers_no_time_counts_once_at_its_moment(store: Store) -> None:
    post(store, moved(Movement.ADJUST, 5, covers=(T, T)))
    with store.reading() as journal:
        assert journal.spent(budget(), T - HOUR, T) == Money(0)
        assert journal.spent(budget(), T, T + HOUR) == Money(5)


@SHARED
@given(
    micros=st.integers(-(10**9), 10**9),
    length=st.integers(0, 10**10),
    edges=st.lists(st.integers(0, 10**10), min_size=3, max_size=8),
)
def test_shares_of_adjacent_periods_add_up_exactly(store: Store, micros: int, length: int, edges: list[int]) -> None:
    project = f"p{next(_ids)}"
    end = T + timedelta(microseconds=length)
    post(store, moved(Movement.ADJUST, micros, covers=(T, end), project=project))
    only = budget(projects=(project,))
    cuts = [T - 99 * HOUR, *sorted(T + timedelta(microseconds=edge) for edge in edges), T + 99 * HOUR]
    with store.reading() as journal:
        shares = [journal.spent(only, a, b) for a, b in itertools.pairwise(cuts)]
    assert sum(shares, Money(0)) == Money(micros)


def test_a_budget_counts_its_kinds_of_money_and_its_scope(store: Store) -> None:
    for number, (money, team, environment) in enumerate(
        [(MoneyKind.CASH, "nlp", "prod"), (MoneyKind.AMORTISED, "nlp", None), (MoneyKind.CASH, "vision", "dev")]
    ):
        its = partial(moved, job=f"j{number}", money=money, team=team, environment=environment)
        post(store, its(Movement.HOLD, 10 ** (number + 1)), its(Movement.SETTLE, number + 1))

    def both(counted: BudgetSpec) -> tuple[int, list[str]]:
        with store.reading() as journal:
            spent = journal.spent(counted, T, T + HOUR).micros
            return spent, [hold.job_id for hold in journal.open_holds(counted)]

    assert both(budget()) == (1 + 3, ["j0", "j2"])
    assert both(budget("cash", "amortised")) == (1 + 2 + 3, ["j0", "j1", "j2"])
    assert both(budget(teams=("nlp",))) == (1, ["j0"])
    assert both(budget(teams=("nlp", "vision"))) == (4, ["j0", "j2"])
    assert both(budget(environments=("dev",))) == (3, ["j2"])
    assert both(budget(users=("bob",))) == (0, [])
    assert both(budget("sandbox")) == (0, [])
    # Names may be patterns; capitals count, and no name matches none.
    assert both(budget(teams=("*",))) == both(budget(teams=("nl?", "[uv]ision"))) == (4, ["j0", "j2"])
    assert both(budget(teams=("N*",))) == both(budget(teams=("n_p", "x*"))) == (0, [])
    assert both(budget("amortised", environments=("*",))) == (0, [])
    assert both(budget(teams=("n*",), environments=("p*",), users=("ad*",))) == (1, ["j0"])


def test_a_hold_is_open_until_it_is_settled_or_released(store: Store) -> None:
    post(store, moved(Movement.HOLD, 100), moved(Movement.TOP_UP, 50, covers=(T, T + 5 * HOUR)))
    post(store, moved(Movement.SETTLE, 60, covers=(T, T + 9 * HOUR)))
    with store.reading() as journal:
        assert journal.open_holds(budget()) == [
            OpenHold("j1", MoneyKind.CASH, Burn(Money(90), T, T + 5 * HOUR, Money(100)))
        ]
    post(store, moved(Movement.RELEASE, 90))
    with store.reading() as journal:
        assert journal.open_holds(budget()) == []


def test_holds_are_told_as_one_sum_but_for_those_that_last_longer(store: Store) -> None:
    for number, lasts in enumerate((1, 2, 5, 7)):
        post(store, moved(Movement.HOLD, 10**number, job=f"j{number}", covers=(T, T + lasts * HOUR)))
    post(store, moved(Movement.HOLD, 7, job="other", team="vision"))

    def held(until: datetime, *teams: str) -> list[tuple[Money, datetime]]:
        with store.reading() as journal:
            return [(one.amount, one.end) for one in journal.held(budget(teams=teams), until)]

    assert held(T + 2 * HOUR, "nlp") == [
        (Money(11), T + 2 * HOUR), (Money(100), T + 5 * HOUR), (Money(1000), T + 7 * HOUR),
    ]  # fmt: skip
    assert held(T + 9 * HOUR) == [(Money(1118), T + 9 * HOUR)]
    assert held(T + 9 * HOUR, "n*") == [(Money(1111), T + 9 * HOUR)]
    assert held(T, "vision") == [(Money(7), T + HOUR)]
    assert held(T + HOUR, "nobody") == []


TEAMS = ("nlp", "vision", None)
MINUTE = timedelta(minutes=1)


@SHARED
@given(
    posted=st.lists(
        st.tuples(
            st.integers(-(10**9), 10**9),
            st.integers(-4 * 1440, 4 * 1440),  # begins so many minutes from T
            st.one_of(st.integers(0, 120), st.integers(0, 3 * 1440)),  # and covers so many
            st.sampled_from(TEAMS),
            st.sampled_from([MoneyKind.CASH, MoneyKind.AMORTISED]),
        ),
        max_size=12,
    ),
    edges=st.tuples(st.integers(-5 * 96, 5 * 96), st.integers(-5 * 96, 5 * 96)),
    odd=st.integers(0, 10**9),
)
def test_the_kept_sums_of_spend_are_the_full_sums(
    store: Store, posted: list[tuple[int, int, int, str | None, MoneyKind]], edges: tuple[int, int], odd: int
) -> None:
    project = f"p{next(_ids)}"
    movements = []
    for micros, begins, length, team, money in posted:
        start = T + begins * MINUTE + timedelta(microseconds=odd % 7)
        covers = (start, start + length * MINUTE)
        movements.append(moved(Movement.ADJUST, micros, money=money, covers=covers, team=team, project=project))
    post(store, *movements)
    left, right = sorted(T + edge * timedelta(minutes=15) for edge in edges)
    scopes: list[tuple[str, ...]] = [(), ("nlp",), ("*",), ("v*", "x")]
    kinds = [("cash",), ("cash", "amortised")]
    budgets = [budget(*counts, projects=(project,), teams=teams) for teams in scopes for counts in kinds]
    times = [(left, right), (left, right + timedelta(microseconds=odd))]

    def sums() -> list[Money]:
        with store.reading() as journal:
            kept = [journal.spent(one, *time) for one in budgets for time in times]
            full = [spent_in_full(journal, one, *time) for one in budgets for time in times]
            for one in budgets:
                until = journal.spent_until(one)
                later = (until, until + timedelta(days=400))
                assert spent_in_full(journal, one, *later) == Money.ZERO
        assert kept == full
        return kept

    before = sums()
    store.rebuild()
    assert sums() == before
