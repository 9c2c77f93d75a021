"""Machines that came outside of the bought capacity meant for them cost the price on demand, once, whatever happens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.jobs.history_documents import JobLedger
from broker.app.jobs.story import story_lines
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import MachineOutside
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.ports import BudgetSpec, EngineState, Observation
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags, faults
from broker.reconciler.admission.records import hold_entries
from broker.reconciler.settlement import batch
from broker.reconciler.settlement.batch import charged_outside, uncharged_attempts
from broker.store import Store
from broker.store.ledger.spending import SpendingPeriod
from tests.billing import one_by_one
from tests.reconciler.rehearsal import MINUTE, Stage, offer

HOUR = timedelta(hours=1)
T = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    made = Stage(store, clock)
    bought = offer(clock.now(), "box", CapacityType.RESERVED, "0")
    made.offers = [replace(bought, instance_type="box", money=MoneyKind.AMORTISED, amortised=Money.usd("2"))]
    return made


def sold_at(stage: Stage, price: str) -> None:
    """The market has the same machine on demand, in this region and dearer in another."""
    now = stage.clock.now()
    plain = replace(offer(now, "box", price=price), accelerator=None)
    offers = [plain, replace(plain, region="far", price=Money.usd("99"))]
    stage.store.record_poll("stage", started=now, finished=now, offers=offers)


def ends_outside(stage: Stage) -> None:
    """The job's only machine came outside half an hour ago, and is gone now."""
    stage.submit()
    stage.pass_time()
    begun = stage.clock.now()
    astray = (MachineOutside("i-1", begun),)
    stage.clock.advance(30 * MINUTE)
    gone = Observation(EngineState.GONE, begun, stage.clock.now(), evidence="i-1 came outside", outside=astray)
    stage.engine.lies["j-1-1"] = gone


def entries(stage: Stage, money: MoneyKind = MoneyKind.CASH) -> list[Entry]:
    with stage.store.reading() as look:
        assert faults(look.entries()) == []
        return [one for one in look.entries() if one.money is money and one.account is Account.SPENT]


def test_their_cost_is_in_the_ledger_with_its_reason(stage: Stage) -> None:
    sold_at(stage, "8")
    ends_outside(stage)
    stage.pass_time()
    (spent,) = entries(stage)
    assert (spent.movement, spent.amount) == (Movement.ADJUST, Money.usd("4")), "nothing was held for it"
    assert (spent.tags.attempt, spent.tags.capacity_type) == (1, CapacityType.ON_DEMAND)
    assert "outside of the bought capacity" in spent.note
    assert "i-1" in spent.note
    (line,) = JobLedger.of("j-1", "j", [spent], {1: stage.attempt(1)}).entries
    assert line.rate_per_hour is None, "the price of its attempt is another one"
    with stage.store.reading() as look:
        events, posted = look.events("j-1"), look.posted("j-1", 1)
        budget = BudgetSpec("b", "month", "UTC", frozenset({"cash"}))
        counted = look.spent(budget, stage.clock.now() - HOUR, stage.clock.now() + HOUR)
    assert counted == Money.usd("4"), "a budget that it exceeds says so"
    assert sum((amount for *_, amount in posted.time), Money.ZERO) == Money.ZERO, "no bought machine was used"
    told = [one.text for one in story_lines(events, stage.clock.now(), lambda at: f"{at:%H:%M}")]
    billed = "outside of the bought capacity, billed at the price on demand from 12:00 to 12:30: i-1"
    assert any(billed in one for one in told)


def test_a_report_has_their_cost_under_on_demand(stage: Stage) -> None:
    sold_at(stage, "8")
    ends_outside(stage)
    stage.pass_time()
    period = SpendingPeriod(None, None, stage.clock.now())
    with stage.store.reading() as look:
        by_kind, in_all = look.spent_by("capacity_type", period), look.spent_by("", period)[""]
    assert by_kind["on_demand"].money == {MoneyKind.CASH: Money.usd("4")}
    assert by_kind["on_demand"].bought == in_all.bought == Money.ZERO
    assert sum(sum(one.money.values(), Money.ZERO).micros for one in by_kind.values()) == Money.usd("4").micros
    assert sum(in_all.money.values(), Money.ZERO) == Money.usd("4")


def test_a_crash_between_the_end_and_the_posting_posts_it_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sold_at(stage, "8")
    ends_outside(stage)

    def crash(*_: object) -> list[Entry]:
        raise RuntimeError("killed here")

    with monkeypatch.context() as broken:
        broken.setattr(batch, "charged_outside", crash)
        stage.pass_time()
    assert entries(stage) == []
    assert not stage.attempt(1).gone, "the end is recorded together with its money"
    stage.restart()
    stage.pass_time(MINUTE, times=3)
    stage.restart()
    stage.pass_time(MINUTE)
    assert sum((one.amount for one in entries(stage)), Money.ZERO) == Money.usd("4")


def test_without_a_price_it_is_left_for_later(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    ends_outside(stage)
    stage.pass_time()
    assert stage.attempt(1).gone
    assert entries(stage) == []
    assert "the on-demand price of box is unknown" in caplog.text
    sold_at(stage, "8")
    with stage.store.writing() as tx:
        for _ in range(2):
            batch.post_due(tx, [stage.view], stage.clock.now())
    assert [one.amount for one in entries(stage)] == [Money.usd("4")]


minutes = st.integers(0, 90).map(lambda many: many * MINUTE)


@given(st.lists(minutes, min_size=1, max_size=4), st.integers(0, 20_000_000), st.integers(1, 9_999_999))
def test_it_is_charged_in_full_and_once_whatever_is_held(lasted: Sequence[timedelta], held: int, price: int) -> None:
    view, on_demand = _gone_after(lasted, Money(price))
    now = view.submitted_at + 2 * HOUR
    burns = {MoneyKind.CASH: Burn.evenly(Money(held), (now, now + HOUR))} if held else {}
    before = hold_entries(Tags(view.id, "ann"), {}, burns, Movement.HOLD, 1)
    found = _charged(view, before, on_demand, now)
    billed = sum((max(one, on_demand.billing.minimum) for one in lasted), timedelta(0))
    spent = sum((one.amount for one in found if one.account is Account.SPENT), Money.ZERO)
    assert abs((spent - Money(price).for_duration(billed)).micros) <= len(lasted), "rounded a machine"
    assert faults([*before, *found]) == []
    assert _charged(view, [*before, *found], on_demand, now) == []


def test_two_attempts_at_once_take_what_is_held_once() -> None:
    view, on_demand = _gone_after([HOUR], Money.usd("8"))
    (first,) = view.attempts
    view = replace(view, attempts=(first, replace(first, number=2, key="j-1-2")))
    now = view.submitted_at + 2 * HOUR
    held = {MoneyKind.CASH: Burn.evenly(Money.usd("10"), (now, now + HOUR))}
    before = hold_entries(Tags(view.id, "ann"), {}, held, Movement.HOLD, 1)
    found = _charged(view, before, on_demand, now)
    spent = {
        movement: sum(
            (one.amount for one in found if (one.account, one.movement) == (Account.SPENT, movement)), Money.ZERO
        )
        for movement in (Movement.SETTLE, Movement.ADJUST)
    }
    assert spent == {Movement.SETTLE: Money.usd("10"), Movement.ADJUST: Money.usd("6")}
    assert faults([*before, *found]) == []


def _charged(view: JobView, before: Sequence[Entry], on_demand: Offer, now: datetime) -> list[Entry]:
    sums = one_by_one(before)
    return charged_outside(view, sums, uncharged_attempts(view, sums), _market(on_demand), now)


def _market(*offers: Offer) -> Callable[[OfferQuery], Sequence[Offer]]:
    return lambda query: offers


def _gone_after(lasted: Sequence[timedelta], price: Money) -> tuple[JobView, Offer]:
    bought = replace(offer(T, "box", CapacityType.RESERVED, "0"), money=MoneyKind.AMORTISED, amortised=Money.usd("2"))
    placement = Placement(bought, len(lasted), Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    end = T + 2 * HOUR
    astray = tuple(MachineOutside(f"i-{n}", end - one) for n, one in enumerate(lasted))
    attempt = AttemptView(
        1, "j-1-1", "stage", placement, AttemptState.FAILED, T, up_since=T, gone=True, gone_at=end, outside=astray
    )
    view = JobView(
        "j-1", Job(name="j", run="x"), "ann", JobState.QUEUED, 9, T, None, HOUR, None, None, attempts=(attempt,)
    )
    return view, replace(offer(T, "box"), price=price, billing=Billing(minimum=MINUTE))
