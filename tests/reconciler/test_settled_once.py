"""What one settlement draws on a hold, and when what has ended is settled again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events.outcomes import AttemptState
from broker.core.events.views import JobView
from broker.core.job.placements import CostTerm, TransferKind
from broker.core.market.offers import Billing, CapacityType, MoneyKind
from broker.core.policy.approvals import RequestedApproval
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, balances, faults, move
from broker.reconciler.settlement.batch import release_all
from broker.reconciler.settlement.settlement import Settled, settle
from broker.store import Store
from tests.billing import one_by_one
from tests.reconciler.rehearsal import MINUTE
from tests.reconciler.settlement.test_batch import never_asked, nothing_posted, runs
from tests.reconciler.settlement.test_charges import UP, life
from tests.reconciler.test_settled_periods import gone, told

HOUR = timedelta(hours=1)


def held(amount: Money) -> list[Entry]:
    return list(
        move(
            Movement.HOLD, amount, movement_id="train/hold/1/cash", money=MoneyKind.CASH, at=UP, covers=(UP, UP),
            tags=Tags("train", "ann"),
        )
    )  # fmt: skip


def settled(view: JobView, entries: list[Entry], before: Settled | None = None, hours: float = 1) -> Settled:
    meters = before.meters if before else {}
    return settle(view, one_by_one(entries), meters, never_asked, nothing_posted, UP + hours * HOUR, MINUTE)


@pytest.mark.parametrize("amount", [0, 3, 8, 11, 100])
def test_egress_and_time_draw_on_one_hold_together(amount: int) -> None:
    """$7 of egress and $5 of machine time, and whatever is held."""
    view = life(closed=False)
    terms = (CostTerm("data egress", Money.usd("7"), moves=TransferKind.DATA),)
    view = replace(
        view, attempts=(replace(view.attempts[0], placement=replace(view.attempts[0].placement, terms=terms)),)
    )
    entries = held(Money.usd(amount))
    entries += settled(view, entries).entries
    assert faults(entries) == []
    balance = balances(entries)[MoneyKind.CASH]
    assert (balance.spent, balance.held) == (Money.usd("12"), Money.usd(max(amount - 12, 0)))


def test_two_attempts_draw_on_one_hold_together() -> None:
    """A machine that is not known to be gone costs on beside that of the next attempt."""
    view = life(closed=False)
    first = view.attempts[0]
    view = replace(view, attempts=(replace(first, state=AttemptState.LOST), replace(first, number=2, key="train-2")))
    entries = held(Money.usd("8"))
    entries += settled(view, entries).entries
    assert faults(entries) == []
    assert balances(entries)[MoneyKind.CASH].spent == Money.usd("10")
    assert balances(entries)[MoneyKind.CASH].held == Money.ZERO


def test_the_rest_of_the_billing_minimum_is_due_though_time_is_settled_to_the_end() -> None:
    view = life(closed=False)
    placement = view.attempts[0].placement
    offer = replace(placement.offer, billing=Billing(minimum=2 * HOUR))
    attempt = replace(view.attempts[0], placement=replace(placement, offer=offer))
    entries = held(Money.usd("80"))
    before = settled(replace(view, attempts=(attempt,)), entries)
    over = replace(attempt, state=AttemptState.SUCCEEDED, gone=True, gone_at=UP + HOUR)
    entries += before.entries
    after = settled(replace(view, attempts=(over,)), entries, before, hours=1.5)
    assert sum((e.amount for e in after.entries if e.account is Account.SPENT), Money.ZERO) == Money.usd("5")
    again = settled(replace(view, attempts=(over,)), [*entries, *after.entries], after, hours=1.6)
    assert again.entries == []


@pytest.mark.parametrize(("after", "seen"), [(24 * HOUR - MINUTE, True), (24 * HOUR, False)])
def test_a_price_known_late_counts_until_a_day_after_the_end_or_until_the_job_closes(
    store: Store, clock: ManualClock, after: timedelta, seen: bool
) -> None:
    """Others that run are settled every minute, and each time what has ended lately is looked at as well."""
    told(store, clock.now(), "1", clock.now())
    runs(store, "j-0", clock.now(), CapacityType.SPOT)
    start = clock.now()
    clock.advance(HOUR)
    view = gone(store, clock, clock.now())
    assert spent(store) == Money.usd("1")
    told(store, start + HOUR / 2, "3", clock.now())
    clock.advance(after)
    view = gone(store, clock)
    assert spent(store) == Money.usd("2" if seen else "1")
    with store.writing() as tx:
        release_all(tx, [view], clock.now())
    assert spent(store) == Money.usd("2")
    with store.reading() as look:
        assert look.balance("j-0")[MoneyKind.CASH].held == Money.ZERO


def spent(store: Store) -> Money:
    with store.reading() as look:
        return look.balance("j-0")[MoneyKind.CASH].spent


def test_what_is_held_for_a_request_that_nobody_has_decided_is_not_drawn_on() -> None:
    view = life(closed=False)
    asked = RequestedApproval(UP, (), held={MoneyKind.CASH: Money.usd("6")}, extension=True)
    entries = held(Money.usd("8"))
    entries += settled(replace(view, asked=asked), entries).entries
    balance = balances(entries)[MoneyKind.CASH]
    assert (balance.spent, balance.held) == (Money.usd("5"), Money.usd("6"))
