"""What was asked is judged again by the policies in force when it is answered, and once when they change."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.jobs import approvals, background, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.approval_reevaluation import ApprovalReevaluation
from broker.app.jobs.approvals import ApprovalState
from broker.app.jobs.extension import extend
from broker.app.jobs.submit import submit
from broker.app.market.market import market_for
from broker.app.policy.replay import replay
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.reconciler.admission.approvals import mark_as_request
from broker.reconciler.controllers.placement import PlacementController
from broker.store.jobs.reader import StoreReader
from tests.actors import ANN, BOB, ROOT, person, with_clock
from tests.app.decisions import decisions_about
from tests.controllers import Asking

BUDGET = """\
version: 1
policy: t
budgets: [{name: pretend, amount: $100, period: fixed, from: 2020-01-01, to: 2099-12-31, counts: [sandbox]}]
"""
BIG = "guardrails:\n  - {name: big, approve_above: {cost: $2, approvers: [bob], expires: 6h}}\n"
JOB = """\
name: big
run: 'true'
resources: {cpus: 1}
max_duration: 900h
max_cost: COST
constraints: {providers: [sandbox]}
"""


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Time stands still."""
    return with_clock(broker, ManualClock(broker.clock.now()))


@pytest.fixture(autouse=True)
def big_is_asked(broker: Broker) -> None:
    govern(broker, BIG)


def govern(broker: Broker, *guardrails: str, budget: str = BUDGET) -> None:
    first, *more = (one.removeprefix("guardrails:\n") for one in guardrails or ("",))
    text = f"guardrails:\n{first}{''.join(more)}" if first else ""
    broker.store.activate_policy({"t.yaml": budget + text}, by="test")


def start(broker: Broker, cost: str = "$3") -> JobView:
    return submit(broker, parse_job(JOB.replace("COST", cost), file="job.yaml", now=broker.clock.now()), by=ANN)


def held(broker: Broker, view: JobView) -> Money:
    with broker.store.reading() as look:
        return look.balance(view.id)[MoneyKind.SANDBOX].held


def given(broker: Broker, view: JobView) -> list[tuple[str, tuple[str, ...]]]:
    """Who said yes to which rules."""
    bodies = (event.body for event in jobs.events(broker, view))
    return [(body.by, body.rules) for body in bodies if isinstance(body, ev.ApprovalGiven)]


def test_a_grant_is_not_above_what_denies_by_now(broker: Broker) -> None:
    view = start(broker)
    govern(broker, BIG, "  - {name: cheap, max_job_cost: $1}\n")
    with pytest.raises(NotAllowed) as refused:
        approvals.grant(broker, view.id, by=BOB)
    assert "cheap: the job may cost $3.00; the limit is $1.00 per job" in refused.value.message
    assert "(t.yaml:" in refused.value.message
    after = jobs.find(broker, view.id)
    assert (after.state, given(broker, view), held(broker, view)) == (JobState.AWAITING_APPROVAL, [], Money.usd(3))
    govern(broker, BIG)
    assert approvals.grant(broker, view.id, by=BOB).state is JobState.PLANNED, "once it is denied no more"


def test_more_for_what_runs_is_denied_by_now_as_well(broker: Broker) -> None:
    view = start(broker, "$2")
    extend(broker, view, JobLimits(max_cost=Money.usd(5)), by=ANN)
    govern(broker, BIG, "  - {name: cheap, max_job_cost: $4}\n")
    with pytest.raises(NotAllowed, match=r"cheap: the job may cost \$5\.00"):
        approvals.grant(broker, view.id, by=BOB)
    after = jobs.find(broker, view.id)
    assert (after.max_cost, after.asked is not None) == (Money.usd(2), True)
    assert approvals.refuse(broker, view.id, by=BOB).asked is None, "refusing is always possible"


def test_who_is_asked_now_decides_and_who_was_asked_then_does_not(broker: Broker) -> None:
    view = start(broker)
    govern(broker, BIG.replace("[bob]", "[carol]"))
    for decide in (approvals.grant, approvals.refuse):
        with pytest.raises(NotAllowed, match="not among those who approve"):
            decide(broker, view.id, by=BOB)
    assert approvals.grant(broker, view.id, by=person("carol")).state is JobState.PLANNED
    assert given(broker, view) == [("carol", ("big",))]


CAROLS = BIG.replace("[bob]", "[carol]")
LONG = "  - {name: long, approve_above: {duration: 5h, approvers: [dave]}}\n"


def test_present_approvers_are_asked_when_the_policies_change(broker: Broker) -> None:
    view = start(broker)
    govern(broker, CAROLS)
    reconciler(broker).tick()
    (request,) = approvals.requests(broker)
    assert (request.asked.approvers, request.asked.total) == (("carol",), Money.usd(3))
    assert not background.has_work_left(broker)
    approvals.grant(broker, view.id, by=person("carol"))
    reconciler(broker).tick()
    assert jobs.find(broker, view.id).attempts


def test_an_approval_counts_at_launch_only_of_a_present_approver(broker: Broker) -> None:
    view = start(broker)
    assert approvals.grant(broker, view.id, by=BOB).state is JobState.PLANNED
    govern(broker, CAROLS)
    reconciler(broker).tick()
    after = jobs.find(broker, view.id)
    assert (after.state, len(after.attempts)) == (JobState.AWAITING_APPROVAL, 0)
    approvals.grant(broker, view.id, by=person("carol"))
    reconciler(broker).tick()
    assert jobs.find(broker, view.id).attempts


@pytest.mark.parametrize("ticks", [False, True])
@pytest.mark.parametrize("runs", [False, True], ids=["a submission", "more for what runs"])
def test_of_two_approvals_the_one_of_a_former_approver_is_asked_again(broker: Broker, runs: bool, ticks: bool) -> None:
    if runs:
        view = start(broker, "$2")
        govern(broker, BIG, LONG)
        extend(broker, view, JobLimits(max_cost=Money.usd(5)), by=ANN)
    else:
        govern(broker, BIG, LONG)
        view = start(broker)
    approvals.grant(broker, view.id, by=BOB)
    govern(broker, CAROLS, LONG)
    if ticks:
        reconciler(broker).tick()
    after = approvals.grant(broker, view.id, by=person("dave"))
    assert after.asked is not None
    assert (after.asked.approvers, after.max_cost) == (("carol",), Money.usd(2 if runs else 3))
    with pytest.raises(NotAllowed, match="not among those who approve"):
        approvals.grant(broker, view.id, by=BOB)
    done = approvals.grant(broker, view.id, by=person("carol"))
    assert (done.asked, done.max_cost) == (None, Money.usd(5 if runs else 3))
    assert runs or done.state is JobState.PLANNED


def test_what_nobody_asks_any_more_goes_on_by_itself_once(broker: Broker) -> None:
    view = start(broker)
    tick = reconciler(broker).tick
    assert (tick().idle, background.has_work_left(broker)) == (True, False)
    govern(broker)
    assert background.has_work_left(broker), "somebody must look at it again"
    tick()
    after = jobs.find(broker, view.id)
    assert after.attempts, "it was launched"
    assert (given(broker, view), after.grants) == ([("", ("big",))], ())
    (told,) = approvals.requests(broker, include_decided=True)
    assert (told.state, told.decided_by) == (ApprovalState.APPROVED, ())
    assert [one.answer for one in decisions_about(broker, view.id)] == [Answer.ASK, Answer.ALLOW, Answer.ALLOW]


def test_policies_that_ask_as_before_or_deny_are_looked_at_once_each(broker: Broker) -> None:
    view = start(broker)
    tick = reconciler(broker).tick
    govern(broker, BIG, "  - {name: cheap, max_job_cost: $1}\n")
    tick()
    assert not background.has_work_left(broker)
    govern(broker, BIG.replace("$2", "$1"))
    tick()
    tick()
    after = jobs.find(broker, view.id)
    assert (after.state, background.has_work_left(broker)) == (JobState.AWAITING_APPROVAL, False)
    found = decisions_about(broker, view.id)
    assert [one.answer for one in found] == [Answer.ASK, Answer.DENY, Answer.ASK]
    assert replay(found[-1:], [], broker.policy()).differences == ()


def test_where_nobody_is_asked_any_more_anybody_may_send_it_on_and_nobody_has_approved_it(broker: Broker) -> None:
    view = start(broker)
    govern(broker)
    after = approvals.grant(broker, view.id, by=ANN)
    assert (after.state, after.grants, given(broker, view)) == (JobState.PLANNED, (), [("", ("big",))])


def test_who_asks_on_behalf_of_somebody_does_not_approve_it(broker: Broker) -> None:
    govern(broker, BIG.replace("[bob]", "[bob, root]"))
    view = start(broker, "$2")
    extend(broker, view, JobLimits(max_cost=Money.usd(5)), by=ROOT)
    with pytest.raises(NotAllowed, match="which another person must approve"):
        approvals.grant(broker, view.id, by=ROOT)
    assert approvals.grant(broker, view.id, by=BOB).max_cost == Money.usd(5)


def test_an_approval_ahead_answers_nothing_that_was_asked_before(broker: Broker) -> None:
    view = start(broker)
    until = broker.clock.now() + timedelta(days=1)
    given_ahead = approvals.give_standing(broker, approvals.GrantRequest(Money.usd(9), until, users=("ann",)), by=BOB)
    govern(broker, BIG, "  - {name: dear, max_job_cost: $50}\n")
    reconciler(broker).tick()
    assert jobs.find(broker, view.id).asked is not None
    approvals.grant(broker, view.id, by=BOB)
    (standing,) = approvals.standing_grants(broker)
    assert (given(broker, view), standing.number, standing.used) == (
        [("bob", ("big",))],
        given_ahead.number,
        Money.ZERO,
    )


def test_of_two_questions_the_one_that_is_still_asked_waits(broker: Broker) -> None:
    long = "  - {name: long, approve_above: {duration: 5h, approvers: [dave]}}\n"
    govern(broker, BIG, long)
    view = start(broker)
    govern(broker, long)
    with pytest.raises(NotAllowed, match="you are bob"):
        approvals.grant(broker, view.id, by=BOB)
    assert approvals.grant(broker, view.id, by=person("dave")).state is JobState.PLANNED
    assert given(broker, view) == [("", ("big",)), ("dave", ("long",))]


@pytest.mark.parametrize("runs", [False, True], ids=["a submission", "more for what runs"])
def test_what_is_asked_by_now_and_was_not_then_is_asked_next(broker: Broker, runs: bool) -> None:
    view = start(broker, "$2" if runs else "$3")
    if runs:
        extend(broker, view, JobLimits(max_cost=Money.usd(3)), by=ANN)
    before = held(broker, view)
    govern(broker, BIG, "  - {name: long, approve_above: {duration: 5h, approvers: [dave], expires: 2h}}\n")
    after = approvals.grant(broker, view.id, by=BOB)
    assert after.asked is not None
    assert (after.asked.approvers, after.asked.expires_at) == (("dave",), broker.clock.now() + timedelta(hours=2))
    assert (after.max_cost, held(broker, view)) == (Money.usd(2 if runs else 3), before)
    done = approvals.grant(broker, view.id, by=person("dave"))
    assert (done.asked, done.max_cost, held(broker, view)) == (None, Money.usd(3), before)


def test_a_budget_that_asks_is_asked_of_whether_there_is_room_without_what_is_held_for_this(broker: Broker) -> None:
    small = BUDGET.replace("$100", "$2").replace("[sandbox]", "[sandbox], action: ask, approvers: [bob]")
    govern(broker, budget=small)
    view = start(broker)
    assert view.asked is not None
    govern(broker, budget=small.replace("$2", "$2.50"))
    reconciler(broker).tick()
    assert jobs.find(broker, view.id).asked is not None, "still no room"
    govern(broker, budget=small.replace("$2", "$3"))
    reconciler(broker).tick()
    assert jobs.find(broker, view.id).attempts


def moved_while_asked(broker: Broker, before_it_moves: Callable[[], object] = lambda: None) -> JobView:
    """A job whose owner waits to hear about $5, and which was placed anew meanwhile: that is on record, too."""
    view = start(broker, "$2")
    extend(broker, view, JobLimits(max_cost=Money.usd(5)), by=ANN)
    with broker.store.writing() as tx:
        tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.MACHINE_LOST))], broker.clock.now())
    before_it_moves()
    view = jobs.find(broker, view.id)
    place = PlacementController(broker.store, lambda job: market_for(broker, job), broker.policy)
    Asking(place, broker.clock.now)(view)
    view = jobs.find(broker, view.id)
    assert (len(view.attempts), view.asked is not None) == (2, True)
    last = decisions_about(broker, view.id)[-1]
    assert (last.action, last.answer) == (ActionKind.RE_PLACE, Answer.ALLOW)
    return view


def test_what_was_said_to_a_move_lifts_nothing_of_what_is_asked(broker: Broker) -> None:
    view = moved_while_asked(broker)
    govern(broker, BIG, "  - {name: dear, max_job_cost: $50}\n")
    reconciler(broker).tick()
    after = jobs.find(broker, view.id)
    assert (after.asked is not None, after.max_cost, given(broker, view)) == (True, Money.usd(2), [])
    with pytest.raises(NotAllowed, match="you are mallory"):
        approvals.grant(broker, view.id, by=person("mallory"))
    after = approvals.grant(broker, view.id, by=BOB)
    assert (after.asked, after.max_cost, given(broker, view)) == (None, Money.usd(5), [("bob", ("big",))])


def test_a_rule_that_goes_lifts_what_is_asked_of_a_job_that_moved(broker: Broker) -> None:
    view = moved_while_asked(broker)
    govern(broker)
    reconciler(broker).tick()
    after = jobs.find(broker, view.id)
    assert (after.asked, after.max_cost, given(broker, view)) == (None, Money.usd(5), [("", ("big",))])


def test_what_is_not_known_to_be_of_the_ask_lifts_nothing_and_denies_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "broker.app.jobs.submit.mark_as_request", lambda record, at: record
    )  # as before asks were told apart
    view = start(broker)
    govern(broker, "  - {name: cheap, max_job_cost: $1}\n")
    reconciler(broker).tick()
    with pytest.raises(NotAllowed, match="you are mallory"):
        approvals.grant(broker, view.id, by=person("mallory"))
    assert (given(broker, view), background.has_work_left(broker)) == ([], False)
    assert approvals.grant(broker, view.id, by=BOB).state is JobState.PLANNED


def test_what_the_policies_say_to_a_yes_is_on_record(broker: Broker) -> None:
    view = start(broker)
    govern(broker, BIG, "  - {name: dear, max_job_cost: $50}\n")
    approvals.grant(broker, view.id, by=BOB)
    first, then = decisions_about(broker, view.id)
    assert [(verdict.name, verdict.answer) for verdict in then.verdicts if verdict.name in ("big", "dear")] == [
        ("big", Answer.ASK),
        ("dear", Answer.ALLOW),
    ]
    assert (then.answer, then.policy_version) == (Answer.ASK, broker.policy().version)
    assert first.policy_version != then.policy_version


def test_where_the_record_cannot_be_read_those_who_were_asked_decide(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "broker.app.jobs.submit.mark_as_request",
        lambda record, at: replace(mark_as_request(record, at), facts_hash="other"),
    )
    refused, granted = start(broker), start(broker)
    govern(broker, "  - {name: dear, max_job_cost: $50}\n")
    assert not background.has_work_left(broker), "nothing comes of looking again"
    assert reconciler(broker).tick().idle
    assert jobs.find(broker, granted.id).asked is not None
    for decide in (approvals.grant, approvals.refuse):
        with pytest.raises(NotAllowed, match=r"not among those who approve|your own"):
            decide(broker, granted.id, by=ANN)
    assert approvals.refuse(broker, refused.id, by=BOB).asked is None
    assert held(broker, refused) == Money.ZERO
    assert approvals.grant(broker, granted.id, by=BOB).state is JobState.PLANNED


def test_moved_under_the_policies_of_now_what_is_asked_is_judged_by_them_all_the_same(broker: Broker) -> None:
    view = moved_while_asked(broker, lambda: govern(broker))
    assert Asking(ApprovalReevaluation(broker), broker.clock.now)(view)
    assert jobs.find(broker, view.id).asked is None


def test_records_are_read_once_for_each_policy(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    view, looks = start(broker), Asking(ApprovalReevaluation(broker), broker.clock.now)
    reads: list[object] = []
    decisions = StoreReader.decisions

    def counted(look: StoreReader, **wanted: Any) -> Any:
        reads.append(wanted)
        return decisions(look, **wanted)

    monkeypatch.setattr(StoreReader, "decisions", counted)
    assert [looks(view) for _ in range(3)] == [False] * 3
    assert len(reads) == 1
    govern(broker, BIG, "  - {name: dear, max_job_cost: $50}\n")
    assert background.has_work_left(broker)
    assert [looks(view) for _ in range(2)] == [False] * 2, "it is still asked"
    reads.clear()
    assert [looks(view) for _ in range(3)] == [False] * 3
    assert not background.has_work_left(broker)
    assert reads == []
