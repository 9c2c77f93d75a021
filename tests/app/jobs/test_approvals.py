"""Asking first: the money is held, the right people decide, and what was approved is not asked again."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.app.jobs import approvals, background, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.approval_reevaluation import last_decision
from broker.app.jobs.approvals import ApprovalState, GrantRequest
from broker.app.jobs.extension import extend
from broker.app.jobs.preview import preview
from broker.app.jobs.reasons import end_text, wait_text
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.actors import ANN, BOB, OLGA, ROOT, mid_month, person, with_clock
from tests.app.jobs.approving import JOB, MORE, POLICY, SANDBOX, bodies, held, now_of, start, tick


@pytest.fixture
def clock() -> ManualClock:
    return mid_month()


@pytest.fixture
def broker(broker: Broker, clock: ManualClock) -> Broker:
    return with_clock(broker, clock)


@pytest.fixture(autouse=True)
def _in_force(broker: Broker) -> None:
    broker.store.activate_policy({"t.yaml": POLICY}, by="test")


class TestSubmission:
    def test_a_dear_job_holds_its_money_and_waits_and_its_near_twin_starts(self, broker: Broker) -> None:
        dear, cheap = start(broker, "$2.01"), start(broker, "$2", "small")
        assert (dear.state, dear.attempts, held(broker, dear)) == (JobState.AWAITING_APPROVAL, (), Money.usd("2.01"))
        assert dear.asked is not None
        assert dear.asked.approvers == ("bob", "carol")
        assert dear.asked.expires_at == broker.clock.now() + timedelta(hours=6)
        assert cheap.state is JobState.LAUNCHING

    def test_what_waits_holds_money_that_others_cannot_have(self, broker: Broker) -> None:
        broker.store.activate_policy({"t.yaml": POLICY.replace("$100", "$4")}, by="test")
        start(broker, "$3")
        with pytest.raises(NotAllowed, match=r"\$1(\.00)? is left"):
            start(broker, "$1.50", "other")

    def test_the_preview_says_that_it_will_be_asked(self, broker: Broker) -> None:
        text = JOB.format(name="j", cost="$3") + SANDBOX
        assert preview(broker, parse_job(text, file="j", now=broker.clock.now()), by=ANN).exit_code == 6

    def test_granted_it_is_launched_and_not_asked_again(self, broker: Broker) -> None:
        view = start(broker)
        after = approvals.grant(broker, view.id, "agreed", by=BOB)
        assert (after.state, after.asked, after.grants[0].by) == (JobState.PLANNED, None, "bob")
        assert tick(broker).steps >= 1
        launched = now_of(broker, view)
        assert launched.attempts
        assert held(broker, view) == Money.usd(3)
        with broker.store.writing() as tx:
            tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MACHINE_LOST))], broker.clock.now())
        given = next(e.body for e in jobs.events(broker, view) if isinstance(e.body, ev.ApprovalGiven))
        assert (given.by, given.note, given.rules) == ("bob", "agreed", ("big",))
        with broker.store.reading() as look:
            assert [one.answer for one in reversed(look.decisions(job_id=view.id))] == [Answer.ASK, Answer.ALLOW]

    def test_its_record_is_found_behind_any_number_of_others(self, broker: Broker) -> None:
        view = start(broker)
        with broker.store.reading() as look:
            asked_for = last_decision(look, view)
        assert asked_for is not None
        with broker.store.writing() as tx:
            for _ in range(25):
                tx.record(replace(asked_for, seen={}))
            assert last_decision(tx, view) == asked_for

    def test_not_answered_it_expires_with_whoever_reconciles(self, broker: Broker, clock: ManualClock) -> None:
        view = start(broker)
        clock.advance(timedelta(hours=6) - timedelta(seconds=1))
        assert tick(broker).idle, "it waits for people"
        assert not background.has_work_left(broker)
        assert now_of(broker, view).state is JobState.AWAITING_APPROVAL
        clock.advance(timedelta(seconds=1))
        assert background.has_work_left(broker)
        tick(broker)
        after = now_of(broker, view)
        assert (after.state, end_text(after.ending)) == (JobState.CANCELLED, "the request for approval expired")
        assert (held(broker, view), after.closed) == (Money.ZERO, True)

    def test_cancelled_it_ends_unanswered(self, broker: Broker) -> None:
        view = start(broker)
        jobs.cancel(broker, view, by=ANN)
        tick(broker)
        assert (now_of(broker, view).state, held(broker, view)) == (JobState.CANCELLED, Money.ZERO)
        (told,) = approvals.requests(broker, include_decided=True)
        assert (told.state, told.decided_at) == (ApprovalState.WITHDRAWN, now_of(broker, view).ended_at)


class TestWhoMayAnswer:
    def test_a_stranger_may_not(self, broker: Broker) -> None:
        view = start(broker)
        with pytest.raises(NotAllowed, match="you are mallory, and not among those who approve"):
            approvals.grant(broker, view.id, by=person("mallory"))
        with pytest.raises(NotAllowed, match="mallory"):
            approvals.refuse(broker, view.id, by=person("mallory"))
        assert now_of(broker, view).asked is not None

    def test_root_is_no_approver(self, broker: Broker) -> None:
        view = start(broker)
        with pytest.raises(NotAllowed, match="you are root"):
            approvals.grant(broker, view.id, by=ROOT)

    def test_nobody_approves_their_own_request(self, broker: Broker) -> None:
        view = start(broker, by=BOB)
        with pytest.raises(NotAllowed, match="your own request") as refused:
            approvals.grant(broker, view.id, by=BOB)
        assert refused.value.hint == "ask carol"

    def test_unless_the_policy_says_so(self, broker: Broker) -> None:
        text = POLICY.replace("expires: 6h", "own_requests: true")
        broker.store.activate_policy({"t.yaml": text}, by="test")
        assert approvals.grant(broker, start(broker).id, by=BOB).state is JobState.PLANNED

    def test_too_late_is_too_late(self, broker: Broker, clock: ManualClock) -> None:
        view = start(broker)
        clock.advance(timedelta(hours=6))
        with pytest.raises(NotAllowed, match="too late"):
            approvals.grant(broker, view.id, by=BOB)

    def test_an_answer_is_given_once(self, broker: Broker) -> None:
        view = start(broker)
        approvals.grant(broker, view.id, by=BOB)
        with pytest.raises(NotAllowed, match="waits for no approval"):
            approvals.refuse(broker, view.id, by=BOB)

    def test_two_rules_need_a_yes_each(self, broker: Broker) -> None:
        more = "  - {name: long, approve_above: {duration: 5h, approvers: [dave], expires: 2h}}\n"
        broker.store.activate_policy({"t.yaml": POLICY + more}, by="test")
        view = start(broker)
        assert view.asked is not None
        assert view.asked.expires_at == broker.clock.now() + timedelta(hours=2), "the shorter time"
        half = approvals.grant(broker, view.id, by=BOB)
        assert half.state is JobState.AWAITING_APPROVAL
        assert half.asked is not None
        assert half.asked.approvers == ("dave",)
        with pytest.raises(NotAllowed, match=r"not among|already"):
            approvals.grant(broker, view.id, by=BOB)
        assert approvals.grant(broker, view.id, by=person("dave")).state is JobState.PLANNED
        tick(broker)
        assert now_of(broker, view).attempts


def launched(broker: Broker, cost: str = "$2") -> JobView:
    """A job below the threshold that runs."""
    return start(broker, cost, "small")


class TestMoreForAJob:
    def test_more_for_what_runs_waits_while_it_goes_on(self, broker: Broker) -> None:
        view = launched(broker)
        before = held(broker, view)
        after = extend(broker, view, MORE, by=ANN)
        assert (after.state, after.max_cost) == (JobState.LAUNCHING, Money.usd(2))
        assert after.asked is not None
        assert after.asked.total == Money.usd(5)
        assert held(broker, view) == before + after.asked.held[MoneyKind.SANDBOX]
        with pytest.raises(NotAllowed, match="already waits for approval"):
            extend(broker, view, JobLimits(max_cost=Money.usd(6)), by=ANN)
        granted = approvals.grant(broker, view.id, by=BOB)
        assert (granted.max_cost, granted.asked) == (Money.usd(5), None)
        assert bodies(broker, view)[-2:] == ["approval_given", "extended"]

    def test_who_asks_for_anothers_job_does_not_approve_it(self, broker: Broker) -> None:
        view = launched(broker)
        extend(broker, view, MORE, by=Actor("bob", frozenset({Role.ADMINISTRATOR})))
        with pytest.raises(NotAllowed, match="your own request"):
            approvals.grant(broker, view.id, by=BOB)
        assert approvals.grant(broker, view.id, by=person("carol")).max_cost == Money.usd(5)

    def test_what_waits_is_not_there_for_what_runs(self, broker: Broker) -> None:
        from broker.reconciler.settlement.funds import funds_of

        view = launched(broker)

        def paid_until(now: JobView) -> datetime | None:
            with broker.store.reading() as look:
                entries, series = look.entries(view.id), look.price_series
                return funds_of(now, now.attempts[0], entries, series, broker.clock.now()).paid_until

        first = paid_until(view)
        asked = extend(broker, view, MORE, by=ANN)
        assert first is not None
        assert paid_until(asked) == first
        later = paid_until(approvals.grant(broker, view.id, by=BOB))
        assert later is not None
        assert later > first

    def test_refused_it_goes_on_with_what_it_had(self, broker: Broker) -> None:
        view = launched(broker)
        before = held(broker, view)
        extend(broker, view, MORE, by=ANN)
        after = approvals.refuse(broker, view.id, "no", by=BOB)
        assert (after.state, after.max_cost, after.asked) == (JobState.LAUNCHING, Money.usd(2), None)
        assert held(broker, view) == before

    def test_a_paused_job_waits_for_approval_and_then_goes_on(self, broker: Broker) -> None:
        view = launched(broker)
        with broker.store.writing() as tx:
            tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MAX_COST))], broker.clock.now())
        tick(broker)
        paused = now_of(broker, view)
        assert (paused.state, held(broker, view)) == (JobState.PAUSED_BUDGET, Money.ZERO)
        asked = extend(broker, paused, MORE, by=ANN)
        assert asked.state is JobState.AWAITING_APPROVAL
        tick(broker)
        assert held(broker, view) > Money.ZERO, "what is asked for stays held"
        approvals.grant(broker, view.id, by=BOB)
        tick(broker)
        assert len(now_of(broker, view).attempts) == 2

    def test_a_paused_job_whose_request_is_refused_stays_paused(self, broker: Broker) -> None:
        view = launched(broker)
        with broker.store.writing() as tx:
            tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MAX_COST))], broker.clock.now())
        tick(broker)
        extend(broker, view, MORE, by=ANN)
        after = approvals.refuse(broker, view.id, "no", by=person("carol"))
        assert (after.state, wait_text(after.waiting)) == (JobState.PAUSED_BUDGET, "refused by carol: no")
        assert held(broker, view) == Money.ZERO


class TestStandingGrants:
    @pytest.fixture
    def ahead(self, broker: Broker) -> Any:
        def give(by: str = "bob", **changes: Any) -> Any:
            said: dict[str, Any] = {
                "total": Money.usd(7),
                "until": broker.clock.now() + timedelta(days=7),
                "users": ("ann",),
            } | changes
            return approvals.give_standing(broker, GrantRequest(**said), by=person(by))

        return give

    def test_it_lets_through_until_its_money_is_used(self, broker: Broker, ahead: Any) -> None:
        given = ahead(note="thesis")
        first, second, third = (start(broker, "$3", name) for name in ("a", "b", "c"))
        assert [one.state for one in (first, second)] == [JobState.LAUNCHING] * 2
        assert third.state is JobState.AWAITING_APPROVAL
        assert bodies(broker, first) == ["submitted", "approval_given", "launch_requested"]
        known = approvals.standing_grants(broker)
        assert [(one.number, one.by, one.used, one.note) for one in known] == [
            (given.number, "bob", Money.usd(6), "thesis")
        ]

    def test_what_it_let_through_moves_without_being_asked_again(
        self, broker: Broker, clock: ManualClock, ahead: Any
    ) -> None:
        given = ahead()
        view = start(broker)
        approvals.revoke(broker, given.number, by=BOB)
        with broker.store.writing() as tx:
            tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MACHINE_LOST))], clock.now())
        clock.advance(timedelta(minutes=2))
        tick(broker)
        assert len(now_of(broker, view).attempts) == 2
        assert start(broker, name="next").state is JobState.AWAITING_APPROVAL

    @pytest.mark.parametrize(
        "changes", [{"users": ("eve",)}, {"teams": ("nlp",)}, {"total": Money.usd("2.99")}], ids=str
    )
    def test_it_is_for_whom_and_how_much_it_says(self, broker: Broker, ahead: Any, changes: Any) -> None:
        ahead(**changes)
        assert start(broker).state is JobState.AWAITING_APPROVAL

    def test_it_ends(self, broker: Broker, clock: ManualClock, ahead: Any) -> None:
        ahead()
        clock.advance(timedelta(days=7))
        assert start(broker).state is JobState.AWAITING_APPROVAL
        assert approvals.standing_grants(broker) == []
        assert len(approvals.standing_grants(broker, include_ended=True)) == 1

    def test_who_is_no_approver_any_more_has_granted_nothing(self, broker: Broker, ahead: Any) -> None:
        ahead()
        broker.store.activate_policy({"t.yaml": POLICY.replace("[bob, carol]", "[carol]")}, by="test")
        assert start(broker).state is JobState.AWAITING_APPROVAL

    def test_nobody_grants_themselves_anything_ahead(self, broker: Broker, ahead: Any) -> None:
        with pytest.raises(NotAllowed, match="people may not approve their own requests") as refused:
            ahead(users=("ann", "bob"))
        assert refused.value.hint == "ask carol"
        ahead(users=("*",))
        assert start(broker, by=BOB).state is JobState.AWAITING_APPROVAL

    def test_what_makes_no_sense_is_refused(self, broker: Broker, ahead: Any) -> None:
        with pytest.raises(InvalidInput, match="is named"):
            ahead(users=())
        with pytest.raises(InvalidInput, match="expected a time in the future"):
            ahead(until=broker.clock.now())
        with pytest.raises(UnknownName, match="big"):
            ahead(rules=("bgi",))
        with pytest.raises(NotAllowed, match="mallory is not an approver in the active policy"):
            ahead(by="mallory")
        with pytest.raises(NotAllowed, match="bob, carol"):
            ahead(by="mallory", rules=("big",))


def test_each_request_of_a_job_is_listed_with_its_own_answers(broker: Broker, clock: ManualClock) -> None:
    two = "  - {name: dear, approve_above: {cost: $2.50, approvers: [olga]}}\n"
    broker.store.activate_policy({"t.yaml": POLICY + two}, by="test")
    view = start(broker, name="a")
    approvals.grant(broker, view.id, "the figures are right", by=BOB)
    (half,) = approvals.requests(broker, include_decided=True)
    assert (half.state, half.decided_at, half.decided_by) == (ApprovalState.WAITING, None, ())
    clock.advance(timedelta(minutes=1))
    first_at = clock.now()
    approvals.grant(broker, view.id, "as it is urgent", by=OLGA)
    tick(broker)
    clock.advance(timedelta(minutes=1))
    extend(broker, now_of(broker, view), MORE, by=ANN)
    approvals.refuse(broker, view.id, "too much", by=OLGA)
    extend(broker, now_of(broker, view), MORE, by=ANN)
    clock.advance(timedelta(hours=6))  # nobody answers
    tick(broker)
    found = approvals.requests(broker, include_decided=True)
    assert [(one.state, one.decided_by, one.note) for one in found] == [
        (ApprovalState.APPROVED, ("bob", "olga"), "the figures are right; as it is urgent"),
        (ApprovalState.REFUSED, ("olga",), "too much"),
        (ApprovalState.EXPIRED, (), ""),
    ]
    assert found[0].decided_at == first_at


def test_a_budget_may_ask_too(broker: Broker) -> None:
    text = "version: 1\npolicy: t\nbudgets: [{name: small, amount: $2, period: month, counts: [sandbox], ACT}]\n"
    said = text.replace("ACT", "action: ask, approvers: [olga]")
    broker.store.activate_policy({"t.yaml": said}, by="test")
    view = start(broker)
    assert view.asked is not None
    assert (view.asked.approvers, held(broker, view)) == (("olga",), Money.usd(3))
    approvals.grant(broker, view.id, by=OLGA)
    tick(broker)
    assert now_of(broker, view).attempts


def test_a_standing_grant_is_for_teams_that_there_are(broker: Broker) -> None:
    teams = POLICY + "teams: {nlp: {members: [ann, bob, carol]}}\n"
    broker.store.activate_policy({"t.yaml": teams}, by="test")
    until = broker.clock.now() + timedelta(days=1)
    with pytest.raises(UnknownName, match="unknown team 'nlpp'; did you mean 'nlp'"):
        approvals.give_standing(broker, GrantRequest(Money.usd(9), until, teams=("nlpp",)), by=BOB)
    for name in ("nlp", "nl*"):
        assert approvals.give_standing(broker, GrantRequest(Money.usd(9), until, teams=(name,)), by=BOB)
