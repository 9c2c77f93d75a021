"""Requests that nobody has decided hold money: who finds no room is told whose they are, and nobody piles them up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.app.jobs import approvals, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.submit import submit
from broker.app.policy.replay import replay
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import StoppedByPolicy
from broker.core.job.file import parse_job
from broker.core.job.placements import Plan
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.reconciler.admission.admission import re_place
from broker.reconciler.admission.facts import facts_of
from tests.actors import ANN, BOB, person, with_clock
from tests.app.decisions import decisions_about

DENIES = """\
version: 1
policy: t
budgets: [{name: pretend, amount: $4, period: fixed, from: 2020-01-01, to: 2099-12-31, counts: [sandbox]}]
guardrails:
  - {name: big, approve_above: {cost: $2, approvers: [bob, carol], expires: 6h}}
"""
ASKS = """\
version: 1
policy: t
budgets:
  - {name: pretend, amount: $4, period: fixed, from: 2020-01-01, to: 2099-12-31, counts: [sandbox],
     action: ask, approvers: [bob, ann]}
"""


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Time stands still."""
    return with_clock(broker, ManualClock(broker.clock.now()))


def start(broker: Broker, cost: str, name: str, by: Actor = ANN) -> JobView:
    text = f"name: {name}\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 900h\nmax_cost: {cost}\n"
    sandbox = "constraints: {providers: [sandbox]}\n"
    return submit(broker, parse_job(text + sandbox, file="job.yaml", now=broker.clock.now()), by=by)


def because(view: JobView) -> str:
    assert view.asked is not None
    return view.asked.questions[0].because


def test_who_is_denied_for_want_of_money_is_told_what_waits_for_whom(broker: Broker) -> None:
    broker.store.activate_policy({"t.yaml": DENIES}, by="test")
    first = start(broker, "$3", "first")
    assert first.asked is not None
    with pytest.raises(NotAllowed) as denied:
        start(broker, "$1.50", "second", by=person("eve"))
    until = f"{first.asked.expires_at:%Y-%m-%d %H:%M}"
    assert (
        f"($0.00 spent, $3.00 held, $3.00 of it for requests that await approval: ann's {first.id}"
        f" (to be approved by bob or carol before {until} UTC))" in denied.value.message
    )
    with broker.store.reading() as look:
        decisions = look.decisions()
    assert next(v for v in decisions[0].verdicts if v.name == "pretend").figures["undecided"] == "3.00"
    replayed = replay(decisions, [], broker.policy())
    assert replayed.differences == (), "what was said can be said again"


def test_once_it_is_decided_nothing_is_said_of_it(broker: Broker) -> None:
    broker.store.activate_policy({"t.yaml": DENIES}, by="test")
    first = start(broker, "$3", "first")
    approvals.grant(broker, first.id, by=BOB)
    with pytest.raises(NotAllowed) as denied:
        start(broker, "$1.50", "second", by=person("eve"))
    assert "waits for approval" not in denied.value.message


def test_more_that_is_asked_for_a_job_that_runs_is_told_as_well_and_no_more_than_that(broker: Broker) -> None:
    broker.store.activate_policy({"t.yaml": DENIES}, by="test")
    running = start(broker, "$2", "first")
    extend(broker, running, JobLimits(max_cost=Money.usd(3)), by=ANN)
    with pytest.raises(NotAllowed, match=r"\$3\.00 held, \$1\.00 of it for requests that await approval"):
        start(broker, "$1.50", "second", by=person("eve"))


class TestABudgetThatAsks:
    @pytest.fixture(autouse=True)
    def _in_force(self, broker: Broker) -> None:
        broker.store.activate_policy({"t.yaml": ASKS}, by="test")

    def test_a_request_may_be_for_more_than_the_whole_of_it_and_the_next_user_is_told(self, broker: Broker) -> None:
        first = start(broker, "$5", "first")
        assert first.state is JobState.AWAITING_APPROVAL
        second = start(broker, "$1", "second", by=person("eve"))
        assert second.state is JobState.AWAITING_APPROVAL
        # Ann could decide, but not on her own request.
        assert f"$5.00 of it for requests that await approval: ann's {first.id} (to be approved by bob" in because(
            second
        )

    def test_nobody_piles_up_requests_beyond_the_whole_of_it(self, broker: Broker) -> None:
        start(broker, "$4", "fits")
        start(broker, "$3", "first")
        with pytest.raises(
            NotAllowed, match=r"ann's open requests already hold \$3\.00; one user's open requests may hold at most"
        ):
            start(broker, "$1.50", "second")
        assert start(broker, "$1", "small").state is JobState.AWAITING_APPROVAL, "up to the whole of it"
        theirs = start(broker, "$4", "theirs", by=person("eve"))
        assert theirs.state is JobState.AWAITING_APPROVAL, "each user for themselves"

    def test_once_one_is_decided_the_next_can_be_asked(self, broker: Broker) -> None:
        start(broker, "$4", "fits")
        first = start(broker, "$3", "first")
        approvals.refuse(broker, first.id, by=BOB)
        assert start(broker, "$3", "second").state is JobState.AWAITING_APPROVAL

    def test_nor_with_more_for_jobs_that_run(self, broker: Broker) -> None:
        one, two = start(broker, "$2", "one"), start(broker, "$2", "two")
        extend(broker, one, JobLimits(max_cost=Money.usd(6)), by=ANN)
        with pytest.raises(NotAllowed, match=r"one user's open requests may hold at most"):
            extend(broker, two, JobLimits(max_cost=Money.usd(6)), by=ANN)

    def test_nor_with_more_for_jobs_that_are_paused(self, broker: Broker) -> None:
        one, two = start(broker, "$2", "one"), start(broker, "$2", "two")
        with broker.store.writing() as tx:
            for view in (one, two):
                ended = ev.AttemptEnded(cause=Cause.STOPPED_BY_POLICY)
                tx.append(
                    view.id,
                    [(1, ended), (None, ev.Paused(reason=StoppedByPolicy(evidence="stopped")))],
                    broker.clock.now(),
                )
        extend(broker, jobs.find(broker, one.id), JobLimits(max_cost=Money.usd(6)), by=ANN)
        with pytest.raises(NotAllowed, match=r"one user's open requests may hold at most"):
            extend(broker, jobs.find(broker, two.id), JobLimits(max_cost=Money.usd(6)), by=ANN)
        after = jobs.find(broker, two.id)
        assert (after.state, after.max_cost, after.asked) == (JobState.PAUSED_BUDGET, Money.usd(2), None)
        assert decisions_about(broker, two.id)[-1].answer is Answer.DENY, "the refusal is on record"

    def test_what_the_broker_itself_needs_for_what_was_admitted_is_asked_all_the_same(self, broker: Broker) -> None:
        one = start(broker, "$4", "one")
        start(broker, "$4", "first")
        now = broker.clock.now()
        with broker.store.writing() as tx:
            ended = tx.append(one.id, [(1, ev.AttemptEnded(cause=Cause.MACHINE_LOST))], now)
            found = re_place(
                replace(ended, max_cost=Money.usd(9), max_duration=ended.max_duration * 90),
                Plan(now, (ended.attempts[0].placement,), (), 1, None, None),
                broker.policy(),
                facts_of(tx, broker.policy(), now),
                tx.balance(one.id),
                billed=timedelta(0),
                now=now,
            )
        assert (found.action.kind, found.answer) == (ActionKind.EXTEND, Answer.ASK)
