"""Moving data and checkpoints is spent once for each start, in the period of that start."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.errors import TryAnotherOffer
from broker.core.job.jobs import Data, Job, Work
from broker.core.job.placements import CostTerm, Placement, TransferKind
from broker.core.market.capacity import Charge
from broker.core.ports import BudgetSpec
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, faults
from broker.reconciler.settlement.charges import ChargeIndex, adjustment, compare
from broker.reconciler.settlement.settlement import settle
from tests.reconciler.rehearsal import MINUTE, Stage, finish, settled_and_closed
from tests.reconciler.settlement.test_batch import never_asked, nothing_posted
from tests.reconciler.settlement.test_charges import GONE, LATE, UP, life

HOUR = timedelta(hours=1)
DATA = Data(location="aws/us-west-2", size=100_000_000_000)


def moved(stage: Stage) -> list[Entry]:
    with stage.store.reading() as look:
        assert faults(look.entries()) == []
        return [e for e in look.entries("j-1") if e.note.endswith("egress") and e.account is Account.SPENT]


def starts(stage: Stage) -> Money:
    """A job that reads 100 GB from elsewhere at each start, on spot machines; what one start costs."""
    stage.submit(Job(name="j", run="x", work=Work(duration=timedelta(hours=20)), data=DATA))
    stage.pass_time()
    (term,) = (term for term in stage.attempt(1).placement.terms if term.name == "data egress")
    assert term.per_start is not None
    assert term.per_start < term.amount, "interruptions are expected, and each makes another start"
    return term.per_start


def test_it_is_spent_when_the_machine_is_up_and_once_for_each_start(stage: Stage, clock: ManualClock) -> None:
    amount = starts(stage)
    assert amount > Money.usd("1")
    stage.mailbox.starts("j-1-1")
    stage.pass_time()
    held, spent = stage.money()
    assert (held, spent) == (Money.usd("100") - amount, amount)
    (entry,) = moved(stage)
    assert entry.covers_from == entry.covers_to == stage.attempt(1).up_since
    assert (entry.tags.attempt, entry.tags.provider, entry.note) == (1, "stage", "data egress")
    assert entry.movement_id.startswith("j-1/1/egress/"), "as every store keeps it"
    stage.restart()
    stage.pass_time(HOUR, times=2)
    stage.store.rebuild()
    stage.restart()
    stage.pass_time(HOUR)
    assert len(moved(stage)) == 1
    assert stage.money()[1] == amount + Money.usd("3")
    stage.engine.take_back("j-1-1")
    stage.pass_time(MINUTE, times=4)
    assert [e.tags.attempt for e in moved(stage)] == [1, 2]
    stage.mailbox.starts("j-1-2")
    stage.pass_time(MINUTE)
    finish(stage, "j-1-2")
    settled_and_closed(stage)


def test_it_counts_in_the_period_of_the_start(stage: Stage, clock: ManualClock) -> None:
    clock.time = clock.time.replace(hour=23, minute=59)
    amount = starts(stage)
    stage.pass_time(HOUR)
    budget = BudgetSpec("b", "day", "UTC", frozenset({"cash"}))
    midnight = clock.now().replace(hour=0, minute=0)
    with stage.store.reading() as look:
        first = look.spent(budget, midnight - 24 * HOUR, midnight)
        second = look.spent(budget, midnight, midnight + 24 * HOUR)
    assert first == amount + Money.usd("1").share(1, 60)
    assert second == Money.usd("1").share(59, 60)


def placed(*terms: CostTerm) -> Placement:
    return replace(life().attempts[0].placement, terms=terms)


@pytest.mark.parametrize(("billed", "difference"), [("55", "0"), ("57", "2"), ("50", "-5")])
def test_charges_make_up_the_difference_without_counting_twice(billed: str, difference: str) -> None:
    """$50 of machine time, $5 to send checkpoints, which the provider of the machines charges, and $7 to read data,
    which another one does."""
    view = life()
    checkpoints = CostTerm("checkpoint egress", Money.usd("5"), moves=TransferKind.CHECKPOINT)
    placement = placed(checkpoints, CostTerm("data egress", Money.usd("7"), moves=TransferKind.DATA))
    view = replace(view, attempts=(replace(view.attempts[0], placement=placement),))
    entries = list(settle(view, [], {}, never_asked, nothing_posted, GONE, MINUTE).entries)
    charge = Charge("aws", UP, GONE, Money.usd(billed), "train-1", estimated=False)
    found = compare(view, view.attempts[0], entries, ChargeIndex([charge], LATE), LATE)
    assert (found.metered, found.difference) == (Money.usd("55"), Money.usd(difference))
    entries += adjustment(view, view.attempts[0], found, entries, LATE)
    spent = sum((e.amount for e in entries if e.account is Account.SPENT), Money.ZERO)
    assert spent == Money.usd(billed) + Money.usd("7")
    again = compare(view, view.attempts[0], entries, ChargeIndex([charge], LATE), LATE)
    assert adjustment(view, view.attempts[0], again, entries, LATE) == ()


def test_a_launch_that_brings_up_no_machine_moves_nothing(stage: Stage) -> None:
    stage.engine.refuse.append(TryAnotherOffer("no capacity"))
    stage.submit(Job(name="j", run="x", work=Work(duration=timedelta(hours=20)), data=DATA))
    stage.pass_time()
    assert stage.attempt(1).up_since is None
    assert 1 not in [entry.tags.attempt for entry in moved(stage)]


def test_what_was_spent_on_egress_does_not_pay_for_machine_time(stage: Stage) -> None:
    """At a fixed price, the lease is what is held and what machine time has used of it, from the start on."""
    stage.offers = stage.offers[1:]  # on-demand at $3
    stage.submit(Job(name="j", run="x", work=Work(duration=timedelta(hours=20)), data=DATA), hold="60", hours=90)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(HOUR, times=2)
    (egress,) = moved(stage)
    paid_until = stage.mailbox.leases["j-1-1"][-1].paid_until
    up_since = stage.attempt(1).up_since
    assert paid_until is not None
    assert up_since is not None
    assert (Money.usd("60") - egress.amount).lasts(Money.usd("3")) - 3 * MINUTE < paid_until - up_since
    assert paid_until - up_since <= (Money.usd("60") - egress.amount).lasts(Money.usd("3"))
