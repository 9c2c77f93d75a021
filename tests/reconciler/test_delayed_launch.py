"""A launch that reaches its engine late is judged again first: at present prices, by the rules in force then."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.jobs.reasons import wait_text
from broker.core.errors import LoginMissing, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Availability, MoneyKind
from broker.core.policy.approvals import Question, StandingGrant
from broker.core.policy.policy import Answer
from broker.core.ports import Launch
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import LeaseGrant
from broker.ledger.entries import Movement, Tags, faults
from broker.reconciler.admission.records import hold_entries
from broker.store import Store, open_store
from tests.empty_store import empty_store
from tests.reconciler.costly_stage import (
    DAY,
    DELAYS,
    ELSEWHERE,
    FREEZE,
    HOLD,
    CostlyStage,
    Delay,
    back,
    engine_away,
    policy,
)
from tests.reconciler.rehearsal import MINUTE, offer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """An empty store, on either database."""
    sqlite = request.param == "sqlite"
    url = empty_store(tmp_path / "store.db") if sqlite else request.getfixturevalue("new_postgres_store")()
    opened = open_store(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def market(store: Store, clock: ManualClock) -> Iterator[CostlyStage]:
    """Whatever a test does, no launch reaches the engine without a judgement by the rules in force at that moment."""
    made = CostlyStage(store, clock)
    yield made
    assert made.engine.unjudged == []


@pytest.fixture(
    params=[
        pytest.param(delay, id=name, marks=[] if name in ("minutes", "20 days, run folder") else pytest.mark.system)
        for name, delay in DELAYS.items()
    ]
)
def delay(request: pytest.FixtureRequest) -> Delay:
    found: Delay = request.param
    return found


def test_where_nothing_changed_it_is_launched_once(market: CostlyStage, delay: Delay) -> None:
    delay.begin(market)
    delay.end(market)
    (launched,) = market.engine.submitted
    assert market.view.latest is not None
    assert launched == market.view.latest.key
    assert market.money()[0] == Money.usd(HOLD)


def test_a_price_that_rose_is_judged_and_held(market: CostlyStage, delay: Delay) -> None:
    delay.begin(market)
    market.costs("300")
    delay.end(market)
    assert market.causes == [Cause.REQUEST_EXPIRED, None]
    assert market.engine.submitted == ["j-1-2"]
    assert market.attempt(2).placement.rate == Money.usd(300)
    assert market.money()[0] >= Money.usd(300)


def test_a_price_that_rose_above_the_budget_is_refused(market: CostlyStage, delay: Delay) -> None:
    market.apply(policy(amount="200"))
    delay.begin(market)
    market.costs("300")
    delay.end(market)
    assert market.engine.submitted == []
    assert market.view.state is JobState.PAUSED_BUDGET
    assert "budget money of $200" in wait_text(market.view.waiting)


@pytest.mark.parametrize(
    ("in_force", "words"),
    [
        (policy(FREEZE), "nothing starts until"),
        (policy(ELSEWHERE), "stage is not allowed"),
        ("version: 1\npolicy: t\n", "no policy grants ann a cash budget"),
    ],
    ids=["freeze", "provider denied", "no budget"],
)
def test_what_the_policies_deny_by_now_waits_in_their_words(
    market: CostlyStage, delay: Delay, in_force: str, words: str
) -> None:
    delay.begin(market)
    market.apply(in_force)
    delay.end(market)
    assert market.engine.submitted == []
    assert market.causes[0] in (Cause.DENIED_BEFORE_LAUNCH, Cause.REQUEST_EXPIRED)
    assert market.view.latest is not None
    assert market.view.latest.state.final
    assert words in wait_text(market.view.waiting)
    with market.store.reading() as look:
        assert faults(look.entries()) == []

    market.apply(policy())
    market.pass_time(MINUTE, times=7)
    assert market.engine.submitted == [market.view.latest.key] == ["j-1-2"], "allowed again, it is placed anew"


def test_a_denial_before_the_request_expires_is_recorded_with_its_cause(market: CostlyStage) -> None:
    delay = DELAYS["minutes"]
    delay.begin(market)
    market.apply(policy(ELSEWHERE))
    delay.end(market)
    first = market.view.attempts[0]
    assert first.cause is Cause.DENIED_BEFORE_LAUNCH
    assert "stage is not allowed" in first.evidence
    assert first.gone, "no machine was asked for"
    (refusal,) = [one for one in market.decided() if one.attempt == 1]
    assert (refusal.answer, refusal.policy_version) == (Answer.DENY, market.policy.version)


def test_what_an_earlier_process_launched_is_found_and_left_to_enforcement(market: CostlyStage, delay: Delay) -> None:
    """Launched, and killed before that was written down: a launch is found before it is judged."""
    market.requested()
    attempt = market.view.attempts[0]
    market.mailbox.prepare(market.view, attempt, LeaseGrant())
    market.engine.submit(Launch(attempt.key, market.view.job, attempt.placement, "memory:///x"))
    delay.by(market)
    market.pass_time(delay.of)
    back(market)
    market.restart()
    market.apply(policy(ELSEWHERE))
    view = market.pass_time()
    assert market.engine.submitted == [attempt.key]
    assert view.attempts[0].handle == attempt.key
    stopped = market.pass_time(MINUTE).attempts[0].stop_requested
    over = (Cause.MAX_DURATION, Cause.PAID_UNTIL)
    assert stopped in (Cause.STOPPED_BY_POLICY, *over), "after 20 days its hour and the time of its money are over"


def test_a_secret_that_was_missing_does_not_keep_an_old_judgement(market: CostlyStage) -> None:
    missing = [True]

    def secrets(_: object) -> dict[str, str]:
        if missing[0]:
            raise LoginMissing("secrets not in the environment: TOKEN")
        return {}

    market.reconciler._launching._secrets = secrets
    market.requested()
    market.pass_time(MINUTE, times=30)
    assert len(market.view.attempts) == 1, "what cannot be tried is not requested again and again"
    market.costs("300")
    missing[0] = False
    market.pass_time(timedelta(seconds=5), times=4)
    assert market.engine.submitted == ["j-1-2"]
    assert market.attempt(2).placement.rate == Money.usd(300)


def test_an_engine_that_asks_to_come_later_is_given_what_is_judged_at_that_moment(market: CostlyStage) -> None:
    market.engine.refuse = [Unreachable("time-out") for _ in range(30)]
    market.requested()
    market.pass_time(timedelta(seconds=10), times=31)
    assert market.engine.submitted == ["j-1-1"]
    again = [one for one in market.decided() if one.attempt == 1]
    assert 4 <= len(again) <= 6, "once a minute, not at every look"


def test_an_offer_that_is_gone_or_stale_is_not_launched(market: CostlyStage) -> None:
    delay = DELAYS["minutes"]
    delay.begin(market)
    market.offers = []
    delay.end(market)
    assert market.engine.submitted == []
    assert market.causes == [Cause.REQUEST_EXPIRED]
    assert market.view.attempts[0].evidence.endswith("is no longer available: it is not offered")
    market.offers = [replace(offer(market.clock.now(), "od", price="98"), max_age=MINUTE)]
    market.pass_time(timedelta(seconds=10))
    assert market.engine.submitted == ["j-1-2"]


def test_an_offer_that_would_not_do_any_more_is_not_launched_for_that_reason(market: CostlyStage) -> None:
    delay = DELAYS["minutes"]
    delay.begin(market)
    market.offers = [replace(offer(market.clock.now(), "od", price="98"), availability=Availability.UNAVAILABLE)]
    delay.end(market)
    assert market.engine.submitted == []
    assert market.view.attempts[0].evidence.endswith("is no longer available: unavailable")


def test_what_was_approved_ahead_is_used_by_the_launch_that_needs_it(market: CostlyStage) -> None:
    delay = DELAYS["minutes"]
    delay.begin(market)
    market.apply(policy("guardrails: [{name: big, approve_above: {cost: $50, approvers: [olga]}}]\n"))
    now = market.clock.now()
    ahead = StandingGrant(0, "olga", now, now + DAY, Money.usd(500), ("big",), ("ann",))
    with market.store.writing() as tx:
        number = tx.give_standing(ahead).number
    delay.end(market)
    assert market.engine.submitted == ["j-1-1"]
    with market.store.reading() as look:
        given = [one.body for one in look.events("j-1") if isinstance(one.body, ev.ApprovalGiven)]
        assert look.standing_share(number, "j-1") == sum(market.money(), Money.ZERO)
    assert [(one.by, one.standing) for one in given] == [("olga", number)]


def test_the_request_expires_where_the_broker_did_not_look(market: CostlyStage) -> None:
    """Nobody looked for half an hour: the process died after it had written the request down."""
    market.requested()
    market.clock.advance(30 * MINUTE)
    market.offers = [replace(one, as_of=market.clock.now()) for one in market.offers]
    market.restart()
    market.pass_time(timedelta(seconds=3), times=3)
    assert market.causes == [Cause.REQUEST_EXPIRED, None]
    assert market.engine.submitted == ["j-1-2"]


def test_a_clock_that_was_set_back_leaves_no_judgement_valid(market: CostlyStage) -> None:
    engine_away(market)
    market.clock.advance(2 * DAY)
    market.offers = [replace(one, as_of=market.clock.now()) for one in market.offers]
    market.requested()
    market.clock.time -= DAY
    market.apply(policy(ELSEWHERE))
    market.pass_time()
    back(market)
    market.pass_time(timedelta(seconds=3), times=3)
    assert market.engine.submitted == []


def test_a_month_whose_budget_another_job_holds_is_not_paid_from(market: CostlyStage) -> None:
    """Requested for the rest of March, launched in April: the money is judged for the time in which it is used."""
    market.clock.advance(market.clock.now().replace(month=3, day=31, hour=21) - market.clock.now())
    market.costs("98")
    delay = Delay(4 * timedelta(hours=1))
    delay.begin(market)
    market.clock.advance(delay.of)
    market.another_job_holds("999")
    market.clock.time -= delay.of
    delay.end(market)
    assert market.engine.submitted == []
    assert market.view.state is JobState.PAUSED_BUDGET or "budget money" in wait_text(market.view.waiting)


@pytest.mark.parametrize("restart", [False, True])
def test_a_budget_that_was_lowered_is_not_paid_from(market: CostlyStage, restart: bool) -> None:
    delay = Delay(5 * MINUTE, restart=restart)
    delay.begin(market)
    market.apply(policy(amount="500"))
    market.another_job_holds("450")
    delay.end(market)
    assert market.engine.submitted == []
    assert market.causes == [Cause.DENIED_BEFORE_LAUNCH]
    assert "budget money of $500" in wait_text(market.view.waiting)


def test_money_that_does_not_pay_for_a_start_by_now_starts_nothing(market: CostlyStage) -> None:
    market.engine.silent = Unreachable("time-out")
    job = Job(name="j", run="x", work=Work(duration=timedelta(hours=1)), max_cost=Money.usd("0.5"))
    market.submit(job, hold="0.5", hours=1)
    market.pass_time()
    back(market)
    market.pass_time(5 * MINUTE, times=2)
    assert market.engine.submitted == []
    assert market.view.state is JobState.PAUSED_BUDGET
    assert "does not cover a start" in market.view.attempts[0].evidence


def test_money_that_waits_for_an_answer_does_not_pay_for_a_delayed_launch(market: CostlyStage) -> None:
    """Half a dollar is held for the job, and $100 more for what somebody is still asked about."""
    market.apply(policy(amount="150"))
    engine_away(market)
    job = Job(name="j", run="x", work=Work(duration=timedelta(hours=1)), max_duration=timedelta(hours=1))
    market.submit(job, hold="0.5", hours=1)
    now = market.clock.now()
    burn = Burn.evenly(Money.usd("100.5"), (now, now + timedelta(hours=1)))
    asked = ev.ApprovalAsked(
        by="ann", extension=True, total=Money.usd(200), held={MoneyKind.CASH: Money.usd(100)},
        questions=(Question(rule="big", approvers=("olga",)),),
    )  # fmt: skip
    with market.store.writing() as tx:
        tx.post(
            hold_entries(
                Tags("j-1", "ann"), {MoneyKind.CASH: Money.usd("0.5")}, {MoneyKind.CASH: burn}, Movement.TOP_UP, 2
            )
        )
        tx.append("j-1", [(None, asked)], now)
    market.pass_time(5 * MINUTE)
    back(market)
    market.pass_time(timedelta(seconds=5), times=4)
    assert market.engine.submitted == []
    assert market.causes == [Cause.DENIED_BEFORE_LAUNCH]


def test_a_longer_limit_that_was_granted_meanwhile_is_held_for(market: CostlyStage) -> None:
    delay = DELAYS["minutes"]
    delay.begin(market)
    with market.store.writing() as tx:
        tx.append("j-1", [(None, ev.Extended(by="ann", max_duration_seconds=7200))], market.clock.now())
    delay.end(market)
    assert market.engine.submitted == ["j-1-1"]
    assert market.money()[0] >= Money.usd(196)
