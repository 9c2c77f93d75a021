"""Money that nears its end: more is held in steps, judged and on record; refused to the last, the attempt is stopped
with the reason; and never is more held than the job's own limits allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.jobs.reasons import stop_text, wait_text
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import HoldTrigger
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.records import RecordOfKind
from broker.core.values.money import Money
from broker.ledger.entries import Movement, faults
from broker.ledger.holds import STOP_GRACE
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.controllers.top_up import TopUp, TopUpPace, need_of
from broker.reconciler.settlement.funds import Funds
from policies.loader import load
from tests import strategies
from tests.controllers import Asking
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, offer

HOUR = timedelta(hours=1)
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
WORK = Work(duration=2 * HOUR)


@dataclass
class AboutMore(OpenPolicy):
    """Says so to more money for what runs."""

    answer: Answer = Answer.ALLOW

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        if action.kind is not ActionKind.EXTEND or self.answer is Answer.ALLOW:
            return super().judge(action, facts)
        said = Verdict(self.answer, "budget", "no", "the team's money is spent", Source("team.yaml", 7), "team")
        return [replace(said, approvers=("olga",), expires=12 * HOUR) if self.answer is Answer.ASK else said]


@dataclass
class WatchedTopUp:
    """A job that runs on the spot pool at $1 an hour, its money looked after."""

    stage: Stage
    top_up: Asking

    def pass_time(self, by: timedelta, times: int = 1) -> JobView:
        for _ in range(times):
            self.stage.pass_time(by)
            while self.top_up(self.stage.view):
                self.stage.pass_time()
        return self.stage.view

    def nears_its_end(self) -> JobView:
        """4 h 50 min of the five that its money lasts."""
        self.pass_time(HOUR, times=4)
        return self.pass_time(10 * MINUTE, times=5)

    def told(self, *kinds: type[RecordOfKind]) -> list[RecordOfKind]:
        with self.stage.store.reading() as look:
            return [event.body for event in look.events("j-1") if isinstance(event.body, kinds)]

    def held_beside(self) -> list[Money]:
        with self.stage.store.reading() as look:
            entries = look.entries("j-1")
        assert faults(entries) == []
        return [e.amount for e in entries if e.movement is Movement.TOP_UP and e.amount > Money.ZERO]

    def says(self, answer: Answer) -> None:
        self.stage.policy = AboutMore(answer=answer)


def watched(stage: Stage, hold: str = "5", hours: float = 24, max_cost: str | None = None) -> WatchedTopUp:
    limit = None if max_cost is None else Money.usd(max_cost)
    stage.submit(Job(name="j", run="x", work=WORK, max_cost=limit), hold=hold, hours=hours)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time()
    found = WatchedTopUp(stage, Asking(TopUp(stage.store, lambda: stage.policy), stage.clock.now))
    found.says(Answer.ALLOW)
    return found


def test_near_its_end_more_is_held_step_by_step_until_its_time_is_used_up(stage: Stage) -> None:
    job = watched(stage, hours=8)
    job.pass_time(12 * MINUTE, times=39)
    job.pass_time(7 * MINUTE)
    held, spent = stage.money()
    idle = held + spent - Money.usd(8) - Money.usd("1").for_duration(STOP_GRACE)
    assert Money.ZERO <= idle <= Money(4), "what is rounded up, once a step"
    latest = job.pass_time(5 * MINUTE, times=2).latest
    assert latest is not None
    assert latest.stop_requested is Cause.MAX_DURATION, "it had all the time it was promised"
    assert len(job.held_beside()) == len(job.told(ev.ToppedUp)) == 4, "3 h and 2 min in steps of an hour"
    decisions = stage.decided()
    assert {(one.action, one.answer, one.attempt) for one in decisions} == {(ActionKind.EXTEND, Answer.ALLOW, 1)}
    assert len(decisions) == 4


def test_the_node_is_granted_what_is_held_for_it(stage: Stage) -> None:
    job = watched(stage)
    before = stage.mailbox.leases["j-1-1"][-1].paid_until
    job.nears_its_end()
    job.pass_time(MINUTE)
    after = stage.mailbox.leases["j-1-1"][-1].paid_until
    assert before is not None
    assert after is not None
    assert after >= before + HOUR - MINUTE
    (told,) = job.told(ev.ToppedUp)
    assert isinstance(told, ev.ToppedUp)
    assert abs(told.until - after) <= timedelta(seconds=1), "what was said is what it may"


def test_never_more_than_the_job_may_cost(stage: Stage) -> None:
    job = watched(stage, max_cost="5.5")
    view = job.pass_time(10 * MINUTE, times=40)
    assert job.held_beside() == [Money.usd("0.5")]
    assert view.attempts[0].stop_requested is Cause.PAID_UNTIL
    assert "more was refused" not in stop_text(view.attempts[0].stop_reason), "it is the job's own limit"
    assert view.attempt_count == 1
    assert view.state is JobState.PAUSED_BUDGET


def test_refused_to_the_last_it_is_stopped_with_the_rules_words_and_waits(stage: Stage) -> None:
    job = watched(stage)
    job.says(Answer.DENY)
    view = job.nears_its_end()
    assert view.state is JobState.RUNNING, "there is money left, and time to ask again"
    view = job.pass_time(MINUTE, times=8)
    latest = view.latest
    assert latest is not None
    assert latest.stop_requested is Cause.MONEY_REFUSED
    assert "more was refused: the team's money is spent (team.yaml:7)" in stop_text(latest.stop_reason)
    decisions = stage.decided()
    assert {(one.action, one.answer) for one in decisions} == {(ActionKind.EXTEND, Answer.DENY)}
    assert 1 <= len(decisions) <= 5, "it is not asked at every look"
    assert job.held_beside() == []

    stage.mailbox.exits("j-1-1", Cause.MONEY_REFUSED)
    stage.pass_time()
    stage.engine.cancel("j-1-1")
    stage.pass_time()
    view = stage.pass_time()
    assert view.state is JobState.PAUSED_BUDGET
    assert "the team's money is spent (team.yaml:7)" in wait_text(view.waiting)
    held, spent = stage.money()
    assert held == Money.ZERO
    assert Money.usd("4.9") < spent <= Money.usd(5)


def test_a_rule_that_asks_is_asked_once_and_what_it_holds_may_not_be_spent_before(stage: Stage) -> None:
    job = watched(stage)
    job.says(Answer.ASK)
    view = job.nears_its_end()
    assert view.asked is not None
    assert view.state is JobState.RUNNING, "it goes on with what it has"
    assert job.held_beside() == [view.asked.held[MoneyKind.CASH]]
    before = stage.mailbox.leases["j-1-1"][-1].paid_until
    with stage.store.writing() as tx:
        refuse(tx, view, stage.clock.now(), by="olga")
    assert sum(stage.money(), Money.ZERO) == Money.usd(5), "its own hold stays, what was asked for is given back"
    view = job.pass_time(MINUTE, times=3)
    assert sum(stage.money(), Money.ZERO) == Money.usd(5)
    after = stage.mailbox.leases["j-1-1"][-1].paid_until
    assert before is not None
    assert after is not None
    assert after - before < timedelta(seconds=1)
    assert view.asked is None
    assert len(job.told(ev.ApprovalAsked)) == 1, "who said no is not asked again"
    view = job.pass_time(MINUTE, times=8)
    assert view.latest is not None
    assert view.latest.stop_requested is Cause.MONEY_REFUSED


def test_a_move_does_not_use_what_waits_for_approval(stage: Stage) -> None:
    """A machine at $1 an hour is taken back after 4 h 50 min of 24 h. The next one needs money for the other
    19 h 10 min and for the grace to stop, beside what waits."""
    job = watched(stage)
    job.says(Answer.ASK)
    asked = job.nears_its_end().asked
    assert asked is not None
    stage.engine.take_back("j-1-1")
    job.says(Answer.ALLOW)
    stage.pass_time()
    stage.pass_time()
    assert stage.engine.submitted == ["j-1-1", "j-1-2"]
    own = stage.money()[0] - asked.held[MoneyKind.CASH]
    needed = Money.usd("1").for_duration(19 * HOUR + 10 * MINUTE + STOP_GRACE)
    assert needed <= own < needed + Money.usd("0.01")


def test_what_was_asked_and_granted_is_spent(stage: Stage) -> None:
    job = watched(stage)
    job.says(Answer.ASK)
    job.nears_its_end()
    with stage.store.writing() as tx:
        given = ev.ApprovalGiven(by="olga", rules=("team",))
        tx.append("j-1", [(None, given), (None, ev.Extended(by="ann"))], stage.clock.now())
    job.says(Answer.ALLOW)
    view = job.pass_time(5 * MINUTE, times=10)
    assert view.state is JobState.RUNNING
    assert stage.money()[0] > Money.ZERO


def test_a_price_that_rose_is_paid_for_before_the_money_ends(stage: Stage) -> None:
    """Held for two hours at $1 an hour, and it is $1.50 by now: that lasts 80 minutes."""
    told = [offer(stage.clock.now(), "spot-a", CapacityType.SPOT, "1")]
    poll(stage, told)
    job = watched(stage, hold="2.05", hours=2)
    job.pass_time(MINUTE)
    poll(stage, [offer(stage.clock.now(), "spot-a", CapacityType.SPOT, "1.5")])
    job.pass_time(5 * MINUTE, times=23)
    assert job.held_beside()
    held, spent = stage.money()
    assert Money.usd(3) <= held + spent <= Money.usd("3.1")
    latest = job.pass_time(5 * MINUTE, times=2).latest
    assert latest is not None
    assert latest.stop_requested is Cause.MAX_DURATION


def poll(stage: Stage, offers: Sequence[Offer]) -> None:
    now = stage.clock.now()
    stage.store.record_poll("stage", started=now, finished=now, offers=offers)


FREEZE = """\
version: 1
budgets: [{name: team, amount: $1000, period: month}]
guardrails: [{name: quiet, freeze: {from: 2026-03-01, to: 2026-04-01, running: RUNNING}}]
"""


@pytest.mark.parametrize(("running", "stop"), [("go_on", None), ("stop", Cause.STOPPED_BY_POLICY)])
def test_in_a_freeze_what_may_go_on_gets_the_money_for_it(stage: Stage, running: str, stop: Cause | None) -> None:
    job = watched(stage)
    stage.policy = load({"freeze.yaml": FREEZE.replace("RUNNING", running)})
    latest = job.pass_time(10 * MINUTE, times=35).latest
    assert latest is not None
    assert latest.stop_requested is stop
    assert bool(job.held_beside()) is (stop is None)


spans = st.timedeltas(timedelta(0), timedelta(days=3))
billings = st.builds(
    Billing,
    minimum=st.timedeltas(timedelta(0), HOUR),
    granularity=st.sampled_from([timedelta(seconds=1), MINUTE, HOUR]),
)
funds = st.builds(
    Funds,
    start=spans.map(lambda ago: NOW - ago),
    left=st.integers(0, 10**10).map(Money),
    rate=st.integers(0, 10**9).map(Money),
    billing=billings,
)


amounts = st.integers(1, 10**10).map(Money)


@given(strategies.submissions, funds, amounts, spans, spans, st.none() | amounts)
def test_what_is_asked_for_is_needed_and_within_the_jobs_own_limits(
    submitted: ev.Submitted,
    lives_on: Funds,
    committed: Money,
    billed: timedelta,
    longest: timedelta,
    limit: Money | None,
) -> None:
    from broker.core.events.lifecycle import advance

    view = advance(None, ev.Event("j-1", 1, NOW, None, submitted))
    view = replace(view, max_duration=longest, max_cost=limit)
    pace = TopUpPace()

    held = lives_on.left
    committed += held
    need = need_of(view, lives_on, held, committed, billed, NOW, pace)

    paid, ends_at = lives_on.paid_until, NOW + max(longest - billed, timedelta(0))
    if paid is None or paid >= ends_at or paid - NOW > pace.near:
        assert need is None
        return
    if limit is not None and committed >= limit:
        assert need is None, "nothing is left of what it may cost"
        return
    assert need is not None
    assert need.trigger is HoldTrigger.ENDS
    assert need.amount > Money.ZERO
    assert limit is None or committed + need.amount <= limit
    with_it = replace(lives_on, left=lives_on.left + need.amount).paid_until
    assert with_it is not None
    assert need.until <= max(with_it, paid, NOW)
    if limit is None:
        assert with_it >= min(max(paid, NOW) + pace.step, ends_at)
    assert need.burn.amount == held + need.amount, "all of it is dated"
    assert need.burn.start == NOW
    assert need.burn.rate >= lives_on.rate, "at its full rate"
    assert need.burn.rate.for_duration(need.burn.end - NOW) <= need.burn.amount + Money(1)
