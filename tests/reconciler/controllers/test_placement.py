"""Requests a job's next attempt: the hold, the launch request, and the decision on record."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, Restored
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    NothingFits,
)
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Availability, MoneyKind
from broker.core.policy.decisions import inputs_of
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Account, Balance, Entry, Movement
from broker.reconciler.admission.records import attempt_key, held_of, hold_entries, launch_request, movements_of
from broker.reconciler.controllers.placement import PlacementAdvice, Plans
from tests.reconciler.controllers.placing_scene import (
    ANEW,
    CASH,
    HOUR,
    LATER,
    MINUTE,
    NOW,
    PAID,
    TAGS,
    Scene,
    sold,
)


def receiving(entries: Sequence[Entry]) -> list[tuple[Any, ...]]:
    """The entries on the hold, and which movement each belongs to."""
    return [
        (one.movement, one.movement_id, one.amount, one.rate, one.covers_from, one.covers_to)
        for one in entries
        if one.account is Account.HELD
    ]


def test_a_hold_becomes_what_was_judged() -> None:
    """$30 are held and $45 judged; $30 and $30; $30 and $12; nothing of another kind so far."""
    end, rate = NOW + 3 * HOUR, Money.usd(15)

    def held(after: int, before: int = 30, kind: MoneyKind = CASH) -> list[tuple[Any, ...]]:
        burns = {kind: Burn(Money.usd(after), NOW, end, rate)}
        entries = hold_entries(TAGS, {CASH: Money.usd(before)}, burns, Movement.TOP_UP, 4)
        assert {(one.at, one.tags, one.money) for one in entries} == {(NOW, TAGS, kind)}
        return receiving(entries)

    assert held(45) == [(Movement.TOP_UP, "j-1/top_up/4/cash/dated", Money.usd(15), rate, NOW, end)]
    assert held(30) == [(Movement.DATE, "j-1/date/4/cash/dated", Money.ZERO, rate, NOW, end)]
    assert held(12) == [
        (Movement.RELEASE, "j-1/release/4/cash/dated", Money.usd(-18), None, NOW, end),
        (Movement.DATE, "j-1/date/4/cash/dated", Money.ZERO, rate, NOW, end),
    ]
    assert held(7, kind=PAID) == [(Movement.TOP_UP, "j-1/top_up/4/amortised/dated", Money.usd(7), rate, NOW, end)]
    both = {kind: Burn(Money.usd(31), NOW, end, rate) for kind in (CASH, PAID)}
    assert [one[1:3] for one in receiving(hold_entries(TAGS, {CASH: Money.usd(30)}, both, Movement.HOLD, 0))] == [
        ("j-1/hold/0/cash/dated", Money.usd(1)),
        ("j-1/hold/0/amortised/dated", Money.usd(31)),
    ]
    assert held_of({CASH: Balance(held=Money.usd(3)), PAID: Balance(spent=Money.usd(4))}) == {
        CASH: Money.usd(3),
        PAID: Money.ZERO,
    }


def test_a_job_gets_the_best_place_with_the_money_that_its_time_takes_there(scene: Scene) -> None:
    scene.submit(hold="30")
    assert scene.place() == ANEW
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert (request.key, request.engine, request.resume_from, request.why) == ("j-1-1", "stage", None, "")
    assert request.placement.offer.zone == "a"
    balance = scene.money()[CASH]
    assert balance == Balance(Money.usd("-120.60"), Money.usd("120.60"), Money.ZERO)
    assert balance.burn == Burn(Money.usd("120.60"), NOW, NOW + 10 * HOUR + 3 * MINUTE, Money.usd(12))
    (action,) = scene.policy.judged
    assert (action.kind, action.hold, action.user) == (ActionKind.EXTEND, {CASH: Money.usd("90.60")}, "ann")
    with scene.store.reading() as look:
        added = [one for one in look.entries("j-1") if one.movement is Movement.TOP_UP]
        assert movements_of(look, "j-1") == 2
        assert movements_of(look, "j-2") == 0
    assert {(one.movement_id, one.tags.user) for one in added} == {("j-1/top_up/1/cash/dated", "ann")}


def test_the_decision_says_what_was_judged_and_why(scene: Scene) -> None:
    scene.offers = [sold("a"), sold("b", "15"), replace(sold("c"), availability=Availability.UNAVAILABLE)]
    scene.submit()
    scene.place()
    (decision,) = scene.decided()
    placement = scene.policy.judged[0].placement
    assert placement is not None
    assert (decision.at, decision.action, decision.user, decision.job_name) == (NOW, ActionKind.EXTEND, "ann", "j")
    assert (decision.answer, decision.policy_version, decision.pool) == (Answer.ALLOW, "v1", placement.offer.pool)
    assert (decision.job_id, decision.attempt) == ("j-1", 1)
    assert [verdict.code for verdict in decision.verdicts] == ["said"]
    assert decision.seen["offers_seen"] == 3
    assert decision.seen["rejections"] == {"unavailable": 1}
    assert decision.seen["expected_cost"] == placement.expected_cost.as_json()
    assert decision.seen["money"] == {"cash": Money.usd("120.60").as_json()}
    known = inputs_of(decision)
    assert known is not None
    assert (known.action, known.facts.now, known.live_kept) == (scene.policy.judged[0], NOW, True)
    assert [other.offer.zone for other in known.others] == ["b"]


def test_the_next_attempt_goes_on_from_the_newest_checkpoint(scene: Scene) -> None:
    scene.submit()
    scene.place()
    first = scene.view.attempts[0]
    scene.append(
        (1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)), (1, Claimed(host="n")),
        (1, Restored(checkpoint=None)), (1, CommandStarted()),
        (1, CheckpointSaved(checkpoint="c-7")),
        (1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=NOW)),
    )  # fmt: skip
    scene.options["advise"] = lambda view, plans, now: PlacementAdvice((first.placement,), "it is cheap there", "p")
    assert scene.place() == ANEW
    second = scene.said()[-1]
    assert isinstance(second, ev.LaunchRequested)
    assert (second.key, second.resume_from, second.why) == (attempt_key("j-1", 2), "c-7", "it is cheap there")
    assert scene.decided()[0].attempt == 2


def test_a_deadline_that_cannot_be_met_is_told_once_and_the_job_goes_on(scene: Scene) -> None:
    job = Job(name="j", run="x", work=Work(duration=2 * HOUR), deadline=timedelta(minutes=90))
    scene.submit(job=job, deadline=NOW + 1.5 * HOUR)
    assert scene.place() == ANEW
    risk, request = scene.said()
    assert isinstance(risk, ev.DeadlineAtRisk)
    assert isinstance(request, ev.LaunchRequested)
    assert risk.expected_finish == request.placement.finish
    assert risk.expected_finish is not None
    assert risk.expected_finish >= NOW + 2 * HOUR
    over = ev.AttemptEnded(cause=Cause.PREEMPTED), ev.MachineGone(gone_at=NOW)
    scene.append((1, ev.Launched(handle="h")), *((1, one) for one in over))
    scene.place()
    assert sum(isinstance(body, ev.DeadlineAtRisk) for body in scene.said()) == 1
    assert scene.view.attempt_count == 2


def test_only_the_work_that_is_left_is_planned(scene: Scene) -> None:
    """Of two hours, one and a half are in the checkpoint."""
    scene.submit()
    scene.place()
    first = scene.view.attempts[0].placement
    up = (1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)), (1, Claimed(host="n"))
    scene.append(*up, (1, Restored(checkpoint=None)), (1, CommandStarted()))
    with scene.store.writing() as tx:
        saved = (1, CheckpointSaved(checkpoint="c-7")), (1, ev.AttemptEnded(cause=Cause.PREEMPTED))
        tx.append("j-1", [*saved, (1, ev.MachineGone(gone_at=NOW + 1.5 * HOUR))], NOW + 1.5 * HOUR)
    scene.place(NOW + 1.5 * HOUR)
    second = scene.view.attempts[1].placement
    assert first.duration is not None
    assert second.duration is not None
    assert abs(first.duration - second.duration - 1.5 * HOUR) < timedelta(seconds=1), "but for interruptions"


def launch_was_refused(scene: Scene, number: int, evidence: str) -> None:
    scene.append((number, ev.AttemptEnded(cause=Cause.LAUNCH_REFUSED, evidence=evidence)))


def test_a_job_whose_launch_every_place_refuses_for_good_ends_with_their_word(scene: Scene) -> None:
    scene.submit()
    scene.place()
    launch_was_refused(scene, 1, "no such image")
    assert scene.place() == ANEW
    assert scene.view.attempts[1].placement.offer.zone == "b", "the other place may take it"
    launch_was_refused(scene, 2, "no such image here")
    assert scene.place() == ANEW
    stopped = AttemptStopped(cause=Cause.LAUNCH_REFUSED, evidence="no such image here")
    assert scene.said()[-1] == ev.JobEnded(state=JobState.FAILED, reason=stopped)


def test_machines_that_somebody_took_meanwhile_are_not_given_away(scene: Scene) -> None:
    scene.offers = [sold("a", slots=1)]
    scene.submit()

    def somebody_else(view: JobView, plans: Plans, now: datetime) -> None:
        placement = plans.in_time.placements[0]
        with scene.store.writing() as tx:
            other = ev.Submitted(job=view.job, user="bob", max_duration_seconds=36000)
            tx.append("j-9", [(None, other), (1, launch_request("j-9", 1, placement))], NOW)

    scene.options["advise"] = somebody_else
    assert scene.place() == ANEW
    assert (scene.said(), scene.money(), scene.decided()) == ([], {}, [])
    del scene.options["advise"]
    assert scene.place() == LATER
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert note.reason == NothingFits(counts={"too_few_machines": 1})


def test_time_that_a_machine_still_costs_counts_when_the_job_moves(scene: Scene) -> None:
    """The first machine is up for an hour, and not gone yet."""
    scene.submit()
    scene.place()
    scene.append((1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)))
    scene.append((1, ev.AttemptEnded(cause=Cause.PREEMPTED)))
    scene.place(NOW + HOUR)
    assert scene.policy.judged[-1].elapsed == HOUR
    assert scene.decided()[0].seen["money"] == {}, "nine hours are left, and ten are held for"
