"""The gate's answers to a placement: approvals, denials, money."""

import pytest

from broker.core.events import events as ev
from broker.core.events.wait_reasons import (
    MoneyRefused,
    PolicyDenies,
)
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import CapacityType
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.policy import Answer, Source, Verdict
from broker.core.values.money import Money
from tests.reconciler.controllers.placing_scene import (
    ANEW,
    CASH,
    HOUR,
    LATER,
    NOW,
    GrantedAhead,
    Says,
    Scene,
    sold,
    waits_once,
)


def test_where_it_asks_the_money_is_held_and_people_are_asked(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.ASK, "b": Answer.ASK}, asks=True)
    scene.submit(hold="30")
    assert scene.place() == ANEW
    (asked,) = scene.said()
    assert isinstance(asked, ev.ApprovalAsked)
    assert (asked.approvers, asked.held, asked.extension) == (("olga",), {CASH: Money.usd("90.60")}, False)
    assert scene.money()[CASH].held == Money.usd("120.60")
    (decision,) = scene.decided()
    assert (decision.job_id, decision.attempt, decision.answer) == ("j-1", None, Answer.ASK)
    assert decision.seen["asked_at"] == NOW.isoformat()


@pytest.mark.parametrize("rule", ["budget", "budget_required"])
def test_refused_money_pauses_the_job(scene: Scene, rule: str) -> None:
    scene.policy = Says(says={"a": Answer.DENY, "b": Answer.DENY}, rule=rule)
    scene.submit(hold="30")
    assert scene.place() == ANEW
    (paused,) = scene.said()
    objection = Verdict(Answer.DENY, rule, "said", "a: deny", Source("t.yaml", 3), "hours").objection
    assert paused == ev.Paused(reason=MoneyRefused(objections=(objection,), more=True))
    assert scene.money()[CASH].held == Money.usd(30)
    assert scene.turned_away == []
    (decision,) = scene.decided()
    assert (decision.job_id, decision.attempt, decision.answer) == ("j-1", None, Answer.DENY)


def test_what_other_rules_refuse_is_waited_out_and_recorded_once(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.DENY, "b": Answer.DENY})
    scene.submit()
    objection = Verdict(Answer.DENY, "hours", "said", "a: deny", Source("t.yaml", 3), "hours").objection
    waits_once(scene, PolicyDenies(objections=(objection,)))
    assert len(scene.decided()) == 1
    assert scene.turned_away == ["j-1", "j-1"], "the queue is told each time"


def test_nobody_is_asked_about_money_that_does_not_pay_for_a_start(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.ASK, "b": Answer.ASK}, asks=True)
    limit = Job(name="j", run="x", work=Work(duration=2 * HOUR), max_cost=Money.usd("0.50"))
    scene.submit(job=limit)
    assert scene.place() == LATER
    assert [type(body) for body in scene.said()] == [ev.NothingFeasible]


def test_what_a_standing_grant_lets_through_is_given_before_the_launch_and_counted(scene: Scene) -> None:
    with scene.store.writing() as tx:
        tx.give_standing(StandingGrant(0, "olga", NOW - HOUR, NOW + HOUR, Money.usd(999), ("hours",), ("ann",)))
    scene.policy = GrantedAhead()
    scene.submit()
    scene.place()
    given, request = scene.said()
    assert isinstance(given, ev.ApprovalGiven)
    assert (given.by, given.standing, given.rules) == ("olga", 1, ("hours",))
    assert isinstance(request, ev.LaunchRequested)
    with scene.store.reading() as look:
        assert look.standing_share(1, "j-1") == Money.usd("120.60")


def test_a_rule_about_money_that_refuses_what_costs_nothing_is_waited_out(scene: Scene) -> None:
    scene.offers = [sold("own", "0", capacity=CapacityType.OWNED)]
    scene.policy = Says(says={"own": Answer.DENY}, rule="budget")
    scene.submit()
    assert scene.place() == LATER
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert isinstance(note.reason, PolicyDenies)
