"""Quoted, metered, billed: when they are compared, and that the ledger ends at what was charged."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events.events import Event, EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import Charge
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, balances, faults, move
from broker.ledger.journal import Posted
from broker.reconciler.settlement.charges import (
    RIPE_AFTER,
    ChargeIndex,
    Comparison,
    ComparisonState,
    adjustment,
    compare,
    is_billed,
)
from broker.reconciler.settlement.settlement import settle, tags_of
from tests.billing import one_by_one

UP = datetime(2026, 3, 2, 20, tzinfo=UTC)
GONE = UP + timedelta(hours=10)  # on the next day
LATE = GONE + timedelta(days=40)
DAY = timedelta(days=1)
MIDNIGHT = UP.replace(hour=0)
HELD = Money.usd(60)


def placement(kind: MoneyKind = MoneyKind.CASH, capacity: CapacityType = CapacityType.ON_DEMAND) -> Placement:
    offer = Offer("aws", "east", None, "p5", "H100", 8, capacity, Money.usd(5), UP, "aws", engine="x", money=kind)
    return Placement(offer, 1, Money.usd(5), Money.usd(5), (), None, None, 0.9, 1.0, 0.1)


def life(*, closed: bool = True, kind: MoneyKind = MoneyKind.CASH) -> JobView:
    """A job with one attempt of ten hours at five dollars."""
    bodies: list[tuple[int | None, EventBody]] = [
        (None, ev.Submitted(job=Job(name="train", run="x"), user="ann", max_duration_seconds=86400)),
        (1, ev.LaunchRequested(key="train-1", engine="x", placement=placement(kind))),
        (1, ev.Launched(handle="h")),
        (1, ev.MachineUp(since=UP)),
    ]
    if closed:
        bodies += [
            (1, ev.AttemptEnded(cause=Cause.COMPLETED)),
            (1, ev.MachineGone(gone_at=GONE)),
            (None, ev.JobEnded(state=JobState.SUCCEEDED)),
            (None, ev.JobClosed()),
        ]
    view: JobView | None = None
    for seq, (number, body) in enumerate(bodies, 1):
        view = advance(view, Event("train", seq, UP, number, body))
    assert view is not None
    return view


def metered(view: JobView) -> list[Entry]:
    """The ledger after settlement: 50 dollars spent."""
    hold = move(
        Movement.HOLD, HELD, movement_id="train/hold/1/cash", money=MoneyKind.CASH, at=UP, covers=(UP, GONE),
        tags=tags_of(view),
    )  # fmt: skip
    settled = settle(view, one_by_one(hold), {}, lambda *_: [], lambda *_: Posted([], Money.ZERO), GONE, timedelta(0))
    return [*hold, *settled.entries]


def charge(amount: str | Money, day: int = 0, *, key: str = "train-1", estimated: bool = False) -> Charge:
    money = amount if isinstance(amount, Money) else Money.usd(amount)
    return Charge("aws", MIDNIGHT + day * DAY, MIDNIGHT + (day + 1) * DAY, money, key, estimated)


def look(charges: Iterable[Charge], *, view: JobView | None = None, now: datetime = LATE) -> Comparison:
    view = view or life()
    return compare(view, view.attempts[0], metered(view), ChargeIndex(charges, now), now)


BOTH_DAYS = (charge("25"), charge("27.5", 1))


def test_what_was_charged_is_compared_with_what_was_metered() -> None:
    found = look(BOTH_DAYS)
    assert found.standing is ComparisonState.COMPARED
    assert (found.quoted, found.metered, found.billed) == (Money.usd(50), Money.usd(50), Money.usd("52.5"))
    assert found.difference == Money.usd("2.5")


def test_nothing_is_compared_before_all_of_the_time_is_charged() -> None:
    assert look([]).standing is ComparisonState.AWAITED
    assert look([charge("25")]).standing is ComparisonState.AWAITED, "the second day is missing"
    assert look([charge("25")]).billed == Money.usd(25)
    later = charge("9", 1, key="other-1")
    assert look([charge("50"), later]).standing is ComparisonState.AWAITED, (
        "of the second day nothing is billed under its key"
    )


def rows(*times: tuple[datetime, datetime]) -> list[Charge]:
    return [Charge("aws", start, end, Money.usd(10), "train-1", estimated=False) for start, end in times]


def test_a_bill_for_a_part_of_the_time_is_not_all_of_it() -> None:
    """As where the tag was switched on only later, or charges came without it for a while."""
    hour, later = timedelta(hours=1), rows((LATE - DAY, LATE))
    assert look([charge("27.5", 1)]).standing is ComparisonState.AWAITED, "the first day went untagged"
    assert look([charge("27.5", 1)]).difference is None
    assert look([*rows((UP, UP + 3 * hour), (UP + 4 * hour, GONE)), *later]).standing is ComparisonState.AWAITED
    assert look([*rows((UP + hour, GONE)), *later]).standing is ComparisonState.AWAITED
    assert look([*rows((UP, GONE - hour)), *later]).standing is ComparisonState.AWAITED
    overlapping = rows((UP + 2 * hour, GONE), (UP, UP + 8 * hour), (UP, UP + hour))
    assert look(overlapping).standing is ComparisonState.COMPARED


def test_a_providers_clock_may_be_off_by_a_little() -> None:
    blur = timedelta(minutes=5)
    late = rows((LATE - DAY, LATE))
    assert look([*rows((UP + blur, GONE - blur)), *late]).standing is ComparisonState.COMPARED
    more = blur + timedelta(seconds=1)
    assert look([*rows((UP + more, GONE)), *late]).standing is ComparisonState.AWAITED
    assert look([*rows((UP, GONE - more)), *late]).standing is ComparisonState.AWAITED


def test_a_credit_is_no_bill() -> None:
    month = Charge("aws", UP - 20 * DAY, GONE + 20 * DAY, Money.usd(-5), "train-1", estimated=False)
    assert look([month]).standing is ComparisonState.AWAITED
    assert look([month, *BOTH_DAYS]).billed == Money.usd("47.5")


@pytest.mark.parametrize("age", [timedelta(0), RIPE_AFTER - timedelta(seconds=1)])
def test_a_fresh_estimate_is_waited_out(age: timedelta) -> None:
    charges = [charge("25"), charge("27.5", 1, estimated=True)]
    assert look(charges, now=charges[1].ends + age).standing is ComparisonState.AWAITED
    ripe = look(charges, now=charges[1].ends + RIPE_AFTER)
    assert (ripe.standing, ripe.estimated) == (ComparisonState.COMPARED, True)


def test_what_still_runs_is_not_compared() -> None:
    found = look(BOTH_DAYS, view=life(closed=False))
    assert (found.standing, found.difference) == (ComparisonState.RUNNING, None)


def test_only_cash_is_charged() -> None:
    assert is_billed(life().attempts[0])
    assert not is_billed(life(kind=MoneyKind.AMORTISED).attempts[0])
    assert not is_billed(life(kind=MoneyKind.SANDBOX).attempts[0])


def test_what_belongs_to_no_attempt_is_told_apart() -> None:
    charges = [*BOTH_DAYS, charge("3", key=""), charge("4", key="other-1")]
    assert ChargeIndex(charges, LATE).for_others({"train-1": None}) == {"aws": Money.usd(7)}


def settled(view: JobView, entries: Sequence[Entry], charges: Iterable[Charge]) -> list[Entry]:
    """The ledger once these charges are what the provider says."""
    found = compare(view, view.attempts[0], entries, ChargeIndex(charges, LATE), LATE)
    return [*entries, *adjustment(view, view.attempts[0], found, entries, LATE)]


def test_an_adjustment_counts_for_the_time_in_which_the_machine_ran_and_is_not_held_back_by_the_hold() -> None:
    view = life()
    entries = settled(view, metered(view), [charge("25"), charge("1000", 1)])
    (spent,) = [e for e in entries if e.movement is Movement.ADJUST and e.account is Account.SPENT]
    assert (spent.amount, spent.covers_from, spent.covers_to) == (Money.usd(975), UP, GONE)
    assert spent.tags.provider == "aws"
    assert "charged $1,025" in spent.note


_AMOUNTS = st.integers(-(10**9), 10**12).map(Money)
_BILLS = st.lists(st.tuples(_AMOUNTS, st.integers(0, 1)), min_size=1, max_size=5)


@given(bills=st.lists(_BILLS, min_size=1, max_size=5))
def test_the_ledger_balances_and_ends_at_what_was_charged_last(bills: list[list[tuple[Money, int]]]) -> None:
    """However often charges change, and however often each is acted on."""
    view = life()
    entries = metered(view)
    before = balances(entries)[MoneyKind.CASH]
    for bill in bills:
        charges = [*(charge(amount, day) for amount, day in bill), charge("0"), charge("0", 1)]
        entries = settled(view, entries, charges)
        once = len(entries)
        entries = settled(view, entries, charges)
        assert len(entries) == once, "the same charge twice adjusts once"
        total = sum((amount for amount, _ in bill), Money.ZERO)
        found = compare(view, view.attempts[0], entries, ChargeIndex(charges, LATE), LATE)
        assert found.billed == total
        assert found.adjusted == found.difference == total - found.metered
        after = balances(entries)[MoneyKind.CASH]
        assert after.spent == total
        assert after.held == before.held, "what is held is none of its business"
        assert after.balanced
        assert faults(entries) == []
        assert len({e.movement_id for e in entries}) * 2 == len(entries)
