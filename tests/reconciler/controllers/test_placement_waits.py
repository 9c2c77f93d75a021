"""Why a job is not placed yet: secrets, the queue, the strategy, the market, prepaid machines."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    NothingFits,
    PolicyDenies,
    QueueTurn,
    SecretsMissing,
    StrategyWaits,
    WaitsForPaid,
)
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Availability, CapacityType
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import ActionKind, Answer, Source, Verdict
from broker.core.ports import PolicyDefaults
from broker.core.values.money import Money
from broker.reconciler.controllers.placement import (
    PlacementAdvice,
    Plans,
    QueueDecision,
)
from tests.reconciler.controllers.placing_scene import (
    ANEW,
    HOUR,
    LATER,
    MINUTE,
    NOW,
    Says,
    Scene,
    occupied,
    sold,
    waits_once,
)


def test_without_its_secrets_a_job_goes_nowhere(scene: Scene) -> None:
    scene.submit()
    scene.options["missing_secrets"] = lambda job: ["TOKEN"] if job.name == "j" else []
    waits_once(scene, SecretsMissing(names=("TOKEN",)))
    assert scene.policy.judged == []


def test_a_job_waits_for_its_turn(scene: Scene) -> None:
    scene.submit()
    turn = QueueTurn(pool="p")
    scene.options["queue_decision"] = lambda view, now: (
        QueueDecision(wait=turn) if (view.id, now) >= ("j-1", NOW) else QueueDecision()
    )
    waits_once(scene, turn)


def test_the_machines_whose_turn_it_is_come_before_all_others(scene: Scene) -> None:
    scene.submit()
    scene.options["queue_decision"] = lambda view, now: QueueDecision(first=scene.offers[1].id)
    scene.options["advise"] = lambda view, plans, now: PlacementAdvice((), "never asked")
    scene.place()
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("b", "its turn in the queue")
    others = inputs_of(scene.decided()[0])
    assert others is not None
    assert [one.offer.zone for one in others.others] == ["a"]


def test_limited_machines_that_are_others_turn_are_not_free(scene: Scene) -> None:
    scene.offers = [sold("a", slots=3), sold("b", "15", slots=3)]
    scene.submit()
    scene.options["queue_decision"] = lambda view, now: QueueDecision(taken=frozenset({scene.offers[0].pool}))
    scene.place()
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert request.placement.offer.zone == "b"


def test_a_strategy_that_waits_says_why(scene: Scene) -> None:
    scene.submit()
    seen: list[tuple[str, int, datetime]] = []

    def advise(view: JobView, plans: Plans, now: datetime) -> PlacementAdvice:
        seen.append((view.id, len(plans.in_time.placements), now))
        return PlacementAdvice((), "spot is back soon", "us-1/box")

    scene.options["advise"] = advise
    waits_once(scene, StrategyWaits(pool="us-1/box", because="spot is back soon"))
    assert seen == [("j-1", 2, NOW), ("j-1", 2, NOW + MINUTE)]


def test_where_nothing_fits_it_is_said_why_not(scene: Scene) -> None:
    scene.offers = [replace(one, availability=Availability.UNAVAILABLE) for one in scene.offers]
    scene.submit()
    waits_once(scene, NothingFits(counts={"unavailable": 2}))


def test_what_single_places_are_denied_by_is_said_in_the_rules_words(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.DENY}, whole_only=False)
    scene.offers = scene.offers[:1]
    scene.submit()
    objection = Verdict(Answer.DENY, "hours", "said", "a: deny", Source("t.yaml", 3), "hours").objection
    waits_once(scene, PolicyDenies(objections=(objection,), everywhere=True))
    assert {(action.kind, action.job_id, action.hold) for action in scene.policy.judged} == {
        (ActionKind.RE_PLACE, "j-1", None)
    }


def test_a_job_may_wait_for_machines_that_are_paid_already(scene: Scene) -> None:
    """$12 an hour for two hours and six minutes, in which a machine starts, are saved by waiting for one."""
    own = occupied(scene)
    scene.policy.defaults = PolicyDefaults(wait_for_paid=HOUR)
    scene.submit()
    reason = WaitsForPaid(
        pool=own.pool, instance_type="box", capacity_type=CapacityType.OWNED, until=NOW + HOUR, an_hour=False,
        saves=Money.usd("25.20"), rents_from="stage",
    )  # fmt: skip
    assert scene.place() == LATER
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert note.reason == reason


@pytest.mark.parametrize("longest", [None, HOUR - MINUTE])
def test_a_job_waits_for_them_no_longer_than_the_policies_say(scene: Scene, longest: timedelta | None) -> None:
    occupied(scene)
    scene.policy.defaults = PolicyDefaults(wait_for_paid=longest)
    scene.submit()
    assert scene.place() == ANEW
    assert scene.view.attempts[0].placement.offer.zone == "a"


def test_the_wait_is_reckoned_from_the_end_of_the_last_attempt(scene: Scene) -> None:
    scene.submit()
    scene.place()
    scene.append((1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)))
    ended = NOW + HOUR / 2
    with scene.store.writing() as tx:
        over = (1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=ended))
        tx.append("j-1", over, ended)
    occupied(scene)
    scene.policy.defaults = PolicyDefaults(wait_for_paid=HOUR - MINUTE)
    assert scene.place(ended + MINUTE) == LATER
    assert isinstance(scene.said()[-1], ev.NothingFeasible)


def test_whose_turn_it_is_goes_there_though_no_place_meets_the_deadline(scene: Scene) -> None:
    job = Job(name="j", run="x", work=Work(duration=2 * HOUR), deadline=timedelta(minutes=90))
    scene.submit(job=job, deadline=NOW + 1.5 * HOUR)
    scene.options["queue_decision"] = lambda view, now: QueueDecision(first=scene.offers[1].id)
    scene.place()
    risk, request = scene.said()
    assert isinstance(risk, ev.DeadlineAtRisk)
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("b", "its turn in the queue")


def test_a_turn_on_machines_that_would_be_late_is_passed_up_where_others_are_in_time(scene: Scene) -> None:
    """The interruptions that are expected there make two hours longer."""
    job = Job(name="j", run="x", work=Work(duration=2 * HOUR), deadline=3 * HOUR)
    scene.offers[1] = replace(scene.offers[1], capacity_type=CapacityType.SPOT, interruption_rate=1.0)
    scene.submit(job=job, deadline=NOW + 3 * HOUR)
    scene.options["queue_decision"] = lambda view, now: QueueDecision(first=scene.offers[1].id)
    scene.place()
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("a", "")
