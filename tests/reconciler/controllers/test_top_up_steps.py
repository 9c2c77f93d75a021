"""Looking after the money of one machine, step by step, on a store: $12 an hour, that is 20 cents a minute; two minutes
are for stopping."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed
from broker.core.events.events import EventBody
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import HoldTrigger
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Movement, Tags
from broker.ledger.journal import StaleJobView
from broker.ledger.meter import Meter
from broker.reconciler.admission.records import hold_entries, launch_request
from broker.reconciler.controller import AtRest, ControllerResult, DecideAnew, JobContext
from broker.reconciler.controllers.top_up import TopUp
from broker.store import Store
from tests.reconciler.controllers.placing_scene import (
    CASH,
    HOUR,
    MINUTE,
    NOW,
    PAID,
    GrantedAhead,
    Says,
    StoredJob,
    sold,
)

RATE = Money.usd(12)


def for_minutes(minutes: float) -> Money:
    return RATE.for_duration(minutes * MINUTE)


def burning(minutes: float, money: float | None = None) -> Burn:
    """Judged for so many minutes; with the money for as many, or for others."""
    return Burn(for_minutes(minutes if money is None else money), NOW, NOW + minutes * MINUTE, RATE)


@dataclass
class TopUpSteps(StoredJob):
    """A job that runs since now, its money looked after."""

    policy: Any = field(default_factory=Says)

    def runs(self, holds: Burn, **place: Any) -> None:
        placement = Placement(sold("a", **place), 1, RATE, RATE, (), None, None, 1.0, 1.0, 0.0)
        submitted = ev.Submitted(job=Job(name="j", run="x"), user="ann", max_duration_seconds=36000)
        with self.store.writing() as tx:
            tx.post(hold_entries(Tags("j-1", "ann"), {}, {placement.money: holds}, Movement.HOLD, 0))
            tx.append("j-1", [(None, submitted), (1, launch_request("j-1", 1, placement))], NOW)
        self.append((1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)))

    def looked(self, now: datetime = NOW, view: JobView | None = None) -> ControllerResult:
        return TopUp(self.store, lambda: self.policy).reconcile(JobContext(view or self.view, now))

    def said(self) -> list[EventBody]:
        """What was recorded once the machine was up."""
        with self.store.reading() as look:
            return [event.body for event in look.events("j-1")][4:]

    def held(self) -> tuple[Money, Burn | None]:
        with self.store.reading() as look:
            balance = look.balance("j-1")[CASH]
        return balance.held, balance.burn

    def decided(self) -> list[tuple[object, ...]]:
        with self.store.reading() as look:
            decisions = look.decisions(job_id="j-1")
        assert {(one.action, one.attempt, one.user, one.at) for one in decisions} <= {
            (ActionKind.EXTEND, 1, "ann", NOW)
        }
        return [(one.answer, one.seen["money"], one.seen.get("asked_at")) for one in decisions]


@pytest.fixture
def job(store: Store) -> TopUpSteps:
    return TopUpSteps(store)


def test_what_is_looked_after(job: TopUpSteps) -> None:
    job.runs(burning(60))
    view = job.view
    (attempt,) = view.attempts

    def goes_by(view: JobView, **attempt_is: Any) -> bool | None:
        some = tuple(replace(one, **attempt_is) for one in view.attempts)
        return TopUp(job.store, lambda: job.policy).goes_by(JobContext(replace(view, attempts=some), NOW))

    assert goes_by(view) is True
    assert goes_by(view, up_since=None) is False
    assert goes_by(view, state=AttemptState.REQUESTED) is None
    assert goes_by(view, state=AttemptState.SUCCEEDED) is None
    assert goes_by(view, stop_requested=Cause.MAX_DURATION) is None
    assert goes_by(replace(view, cancel_requested=True)) is None
    assert goes_by(replace(view, attempts=())) is None
    own = replace(attempt.placement, offer=replace(attempt.placement.offer, money=PAID))
    assert goes_by(view, placement=own) is None
    job.append((None, ev.ApprovalAsked(extension=True)))
    assert goes_by(job.view) is None


@pytest.mark.parametrize(
    ("minutes", "rests"),
    [(12, 5 * MINUTE), (6, 3 * MINUTE), (4, MINUTE), (3, MINUTE), (2, MINUTE)],
)
def test_after_a_refusal_it_is_asked_again_at_the_latest_a_minute_before_the_end(
    job: TopUpSteps, minutes: float, rests: timedelta
) -> None:
    job.policy = Says(says={"a": Answer.DENY})
    job.runs(burning(minutes))
    assert job.looked() == (DecideAnew(NOW + rests) if minutes <= 3 else AtRest(NOW + rests))
    assert bool(job.said()) is (minutes <= 3)
    assert job.held()[0] == for_minutes(minutes)
    assert job.decided() == [(Answer.DENY, {"cash": for_minutes(60).as_json()}, None)]


def test_what_is_left_lasts_from_when_the_meter_was_read(job: TopUpSteps) -> None:
    """The money for an hour, of which none was used for the first fifty minutes."""
    job.runs(burning(180, money=60), capacity=CapacityType.SPOT)
    later = NOW + 50 * MINUTE
    with job.store.writing() as tx:
        tx.keep_meters({"j-1": {1: Meter.new(later, RATE)}})
    assert job.looked(later) == AtRest(later + MINUTE)


def test_money_that_is_there_is_dated_anew_where_it_was_judged_for_less_time(job: TopUpSteps) -> None:
    job.runs(burning(12, money=120))
    assert job.looked() == DecideAnew(NOW + 5 * MINUTE)
    dated = ev.HoldDated(amount=for_minutes(120), rate=RATE, until=NOW + 118 * MINUTE, trigger=HoldTrigger.ENDS)
    assert job.said() == [dated]
    assert job.held() == (for_minutes(120), burning(120))


def test_where_it_cannot_be_judged_for_now_it_is_tried_again(job: TopUpSteps) -> None:
    job.runs(burning(12))

    def unreadable() -> Any:
        raise InvalidInput("cannot be read")

    found = TopUp(job.store, unreadable).reconcile(JobContext(job.view, NOW))
    assert found == AtRest(NOW + 5 * MINUTE)
    assert (job.said(), job.decided()) == ([], [])


def test_what_was_topped_up_meanwhile_rests_until_it_is_near_its_end(job: TopUpSteps) -> None:
    job.runs(burning(12))
    view = job.view

    def topped_up() -> Any:
        with job.store.writing() as tx:
            tx.post(hold_entries(Tags("j-1", "ann"), {CASH: for_minutes(12)}, {CASH: burning(72)}, Movement.TOP_UP, 1))
        return Says()

    once = [topped_up, Says]
    found = TopUp(job.store, lambda: once.pop(0)()).reconcile(JobContext(view, NOW))
    assert found == AtRest(NOW + 5 * MINUTE)
    assert (job.held()[0], job.said(), job.decided()) == (for_minutes(72), [], [])


def test_nothing_is_done_by_a_view_that_is_out_of_date(job: TopUpSteps) -> None:
    job.runs(burning(12))
    before = job.view
    job.append((1, Claimed(host="n")))
    with pytest.raises(StaleJobView):
        job.looked(view=before)
    assert job.decided() == []


def test_what_a_standing_grant_lets_through_is_counted_against_it(job: TopUpSteps) -> None:
    with job.store.writing() as tx:
        ahead = StandingGrant(0, "olga", NOW - HOUR, NOW + HOUR, Money.usd(100), ("hours",), ("ann",))
        assert tx.give_standing(ahead).number == 1
    job.policy = GrantedAhead()
    job.runs(burning(12))
    job.looked()
    given, topped_up = job.said()
    assert isinstance(given, ev.ApprovalGiven)
    assert (given.by, given.standing, given.rules) == ("olga", 1, ("hours",))
    assert isinstance(topped_up, ev.ToppedUp)
    with job.store.reading() as look:
        assert look.standing_share(1, "j-1") == for_minutes(72)


def test_what_the_job_has_of_other_money_is_no_help_and_counts_towards_its_cost(job: TopUpSteps) -> None:
    """Of $5 that the job may cost, $2.40 are held in cash and $1.60 were paid in the sandbox's money."""
    job.runs(burning(12))
    with job.store.writing() as tx:
        for kind, cents in ((MoneyKind.SANDBOX, 160), (PAID, 900)):
            amount = Money(cents * 10_000)
            tx.post(hold_entries(Tags("j-1", "ann"), {}, {kind: replace(burning(1), amount=amount)}, Movement.HOLD, 1))
    job.looked(view=replace(job.view, max_cost=Money.usd(5)))
    (topped_up,) = job.said()
    assert isinstance(topped_up, ev.ToppedUp)
    assert topped_up.amount == Money.usd(1)
    with job.store.reading() as look:
        assert look.balance("j-1")[PAID] == Balance(Money.usd(-9), Money.usd(9), Money.ZERO)
