"""Placing one job, step by step: what is held for it, what is recorded, and why it waits. Machines at $12 an hour, a
job that may run ten hours: $12 × (10 h + a minute billed at a stroke + two minutes to stop) is $120.60."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    MoneyRefused,
    MoneyTooLittle,
    NothingFits,
    PolicyDenies,
    QueueTurn,
    SecretsMissing,
    StrategyWaits,
    WaitsForPaid,
)
from broker.core.job.jobs import Job, Work
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.decisions import Decision, inputs_of
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.ports import PolicyDefaults
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags
from broker.placement.conditions import Conditions
from broker.reconciler.controller import ControllerResult, DecideAnew, JobContext, Trouble, TryLater
from broker.reconciler.controllers.placement import (
    Lot,
    PlacementAdvice,
    Placing,
    PlanInputs,
    Plans,
    attempt_key,
    held_of,
    hold_entries,
    launch_request,
    movements_of,
    moving_on,
)
from broker.store import Store
from tests.reconciler.rehearsal import OpenPolicy

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
CASH, PAID = MoneyKind.CASH, MoneyKind.AMORTISED
TAGS = Tags("j-1", "ann")


# --- what is held ---------------------------------------------------------------------------------------------------


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


# --- placing --------------------------------------------------------------------------------------------------------


@dataclass
class Says(OpenPolicy):
    """A policy set that says what the test wants about each zone, and remembers what it judged."""

    says: dict[str, Answer] = field(default_factory=dict)
    rule: str = "hours"
    judged: list[Action] = field(default_factory=list)
    version: str = "v1"
    defaults: PolicyDefaults = field(default_factory=PolicyDefaults)
    asks: bool = False
    whole_only: bool = True

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        if action.placement is None or (self.whole_only and action.hold is None):
            return []
        self.judged.append(action)
        zone = action.placement.offer.zone or ""
        answer = self.says.get(zone, Answer.ALLOW)
        return [Verdict(answer, self.rule, "said", f"{zone}: {answer}", Source("t.yaml", 3), "hours",
                        approvers=("olga",) if answer is Answer.ASK else ())]  # fmt: skip


class GrantedAhead(Says):
    """What the test lets through, by the first standing grant."""

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        figures = {"approved_by": "olga", "standing": "1"}
        return [replace(one, code="approved", figures=figures) for one in super().judge(action, facts)]


def sold(zone: str, price: str = "12", **more: Any) -> Offer:
    values: dict[str, Any] = {"billing": Billing(timedelta(0), MINUTE), "capacity": CapacityType.ON_DEMAND} | more
    capacity = values.pop("capacity")
    return Offer("stage", "here", zone, "box", None, 0, capacity, Money.usd(price), NOW, "test", cpus=4, memory_gib=16,
                 availability=Availability.AVAILABLE, engine="stage", **values)  # fmt: skip


@dataclass
class Scene:
    """A job that waits for a place, with the offers there are."""

    store: Store
    offers: list[Offer] = field(default_factory=lambda: [sold("a"), sold("b", "15")])
    policy: Says = field(default_factory=Says)
    options: dict[str, Any] = field(default_factory=dict)
    turned_away: list[str] = field(default_factory=list)

    def submit(self, hold: str | None = None, job: Job | None = None, **more: Any) -> None:
        job = job or Job(name="j", run="x", work=Work(duration=2 * HOUR))
        about = {"work_seconds": 7200} | more
        submitted = ev.Submitted(job=job, user="ann", max_duration_seconds=36000, **about)
        with self.store.writing() as tx:
            tx.append("j-1", [(None, submitted)], NOW)
            if hold is not None:
                burns = {CASH: Burn.evenly(Money.usd(hold), (NOW, NOW + 10 * HOUR))}
                tx.post(hold_entries(TAGS, {}, burns, Movement.HOLD, 0))

    def place(self, now: datetime = NOW) -> ControllerResult:
        policy: Any = self.policy

        placing = Placing(
            self.store, lambda job: self.market(), lambda: policy,
            refused=lambda view: self.turned_away.append(view.id), **self.options,
        )  # fmt: skip
        about = JobContext(self.view, now)
        assert placing.goes_by(about) is True
        return placing.reconcile(about)

    def market(self) -> PlanInputs:
        return PlanInputs(self.offers, Conditions(engines={"stage": frozenset()}, sandbox=True), {})

    def append(self, *items: tuple[int | None, EventBody]) -> None:
        with self.store.writing() as tx:
            tx.append("j-1", list(items), NOW)

    @property
    def view(self) -> JobView:
        with self.store.reading() as look:
            view = look.job("j-1")
        assert view is not None
        return view

    def said(self) -> list[EventBody]:
        """What was recorded after the submission."""
        with self.store.reading() as look:
            return [event.body for event in look.events("j-1")][1:]

    def decided(self) -> list[Decision]:
        with self.store.reading() as look:
            return list(look.decisions(job_id="j-1"))

    def money(self) -> Mapping[MoneyKind, Balance]:
        with self.store.reading() as look:
            return look.balance("j-1")


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)


ANEW, LATER = DecideAnew(), TryLater(Trouble.NO_PLACE)


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


def test_without_a_policy_that_counts_them_running_attempts_are_not_kept_with_a_decision(scene: Scene) -> None:
    scene.policy.counts_live = False
    scene.submit()
    scene.place()
    known = inputs_of(scene.decided()[0])
    assert known is not None
    assert not known.live_kept


def test_the_next_attempt_goes_on_from_the_newest_checkpoint(scene: Scene) -> None:
    scene.submit()
    scene.place()
    first = scene.view.attempts[0]
    scene.append(
        (1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)), (1, ev.Claimed(host="n")),
        (1, ev.Restored(checkpoint=None)), (1, ev.CommandStarted()),
        (1, ev.CheckpointSaved(checkpoint="c-7")),
        (1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=NOW)),
    )  # fmt: skip
    scene.options["advise"] = lambda view, plans, now: PlacementAdvice((first.placement,), "it is cheap there", "p")
    assert scene.place() == ANEW
    second = scene.said()[-1]
    assert isinstance(second, ev.LaunchRequested)
    assert (second.key, second.resume_from, second.why) == (attempt_key("j-1", 2), "c-7", "it is cheap there")
    assert scene.decided()[0].attempt == 2


# --- waiting --------------------------------------------------------------------------------------------------------


def waits_once(scene: Scene, reason: object) -> None:
    """The job waits, which is recorded once."""
    assert [scene.place(), scene.place(NOW + MINUTE)] == [LATER, LATER]
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert note.reason == reason


def test_without_its_secrets_a_job_goes_nowhere(scene: Scene) -> None:
    scene.submit()
    scene.options["missing_secrets"] = lambda job: ["TOKEN"] if job.name == "j" else []
    waits_once(scene, SecretsMissing(names=("TOKEN",)))
    assert scene.policy.judged == []


def test_a_job_waits_for_its_turn(scene: Scene) -> None:
    scene.submit()
    turn = QueueTurn(pool="p")
    scene.options["lot"] = lambda view, now: Lot(wait=turn) if (view.id, now) >= ("j-1", NOW) else Lot()
    waits_once(scene, turn)


def test_the_machines_whose_turn_it_is_come_before_all_others(scene: Scene) -> None:
    scene.submit()
    scene.options["lot"] = lambda view, now: Lot(first=scene.offers[1].id)
    scene.options["advise"] = lambda view, plans, now: PlacementAdvice((), "never asked")
    scene.place()
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("b", "its turn in the queue")
    others = inputs_of(scene.decided()[0])
    assert others is not None
    assert [one.offer.zone for one in others.others] == ["a"]


def test_machines_that_do_not_do_any_more_are_nobodys_turn(scene: Scene) -> None:
    scene.submit()
    scene.options["lot"] = lambda view, now: Lot(first="gone")
    scene.place()
    (request,) = scene.said()
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("a", "")


def test_limited_machines_that_are_others_turn_are_not_free(scene: Scene) -> None:
    scene.offers = [sold("a", slots=3), sold("b", "15", slots=3)]
    scene.submit()
    scene.options["lot"] = lambda view, now: Lot(taken=frozenset({scene.offers[0].pool}))
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


def occupied(scene: Scene) -> Offer:
    """The only machine of our own, which somebody needs for another hour."""
    own = sold("own", "0", capacity=CapacityType.OWNED, money=PAID, slots=1)
    there = Placement(own, 1, Money.ZERO, Money.ZERO, (), HOUR, NOW + HOUR, 1.0, 1.0, 0.0)
    with scene.store.writing() as tx:
        other = ev.Submitted(job=Job(name="k", run="x"), user="bob", max_duration_seconds=36000)
        tx.append("j-9", [(None, other), (1, launch_request("j-9", 1, there))], NOW)
    scene.offers.append(own)
    return own


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
    ended = NOW + 5 * HOUR
    with scene.store.writing() as tx:
        over = (1, ev.AttemptEnded(cause=Cause.PREEMPTED)), (1, ev.MachineGone(gone_at=ended))
        tx.append("j-1", over, ended)
    occupied(scene)
    scene.policy.defaults = PolicyDefaults(wait_for_paid=HOUR)
    assert scene.place(ended - 5 * HOUR + MINUTE) == LATER
    assert isinstance(scene.said()[-1], ev.NothingFeasible)


# --- the gate -------------------------------------------------------------------------------------------------------


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


def test_money_that_is_there_already_may_be_refused_too(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.DENY, "b": Answer.DENY}, rule="budget")
    scene.submit(hold="200")
    scene.place()
    (paused,) = scene.said()
    assert isinstance(paused, ev.Paused)
    assert isinstance(paused.reason, MoneyRefused)
    assert not paused.reason.more


def test_what_other_rules_refuse_is_waited_out_and_recorded_once(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.DENY, "b": Answer.DENY})
    scene.submit()
    objection = Verdict(Answer.DENY, "hours", "said", "a: deny", Source("t.yaml", 3), "hours").objection
    waits_once(scene, PolicyDenies(objections=(objection,)))
    assert len(scene.decided()) == 1
    assert scene.turned_away == ["j-1", "j-1"], "the queue is told each time"


def test_money_that_does_not_pay_for_a_start_pauses_the_job(scene: Scene) -> None:
    """Fifty cents; two minutes to stop and one to run take sixty."""
    scene.offers = scene.offers[:1]
    limit = Job(name="j", run="x", work=Work(duration=2 * HOUR), max_cost=Money.usd("0.50"))
    scene.submit(job=limit)
    assert scene.place() == ANEW
    assert scene.said() == [ev.Paused(reason=MoneyTooLittle(instance_type="box", least=Money.usd("0.600001")))]
    assert scene.money() == {}


def test_policies_that_changed_meanwhile_are_asked_anew(scene: Scene) -> None:
    scene.submit()
    policies = [Says(version="v1"), Says(version="v2")]
    placing = Placing(scene.store, lambda job: scene.market(), lambda: policies.pop(0))
    assert placing.reconcile(JobContext(scene.view, NOW)) == ANEW
    assert (scene.said(), scene.money(), scene.decided()) == ([], {}, [])


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


def test_nobody_is_asked_twice(scene: Scene) -> None:
    scene.policy = Says(says={"a": Answer.ASK, "b": Answer.ASK}, asks=True)
    scene.submit()
    scene.append((None, ev.ApprovalAsked(extension=True)))
    assert scene.place() == LATER
    assert [type(body) for body in scene.said()] == [ev.ApprovalAsked, ev.NothingFeasible]


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


def test_whose_turn_it_is_goes_there_though_no_place_meets_the_deadline(scene: Scene) -> None:
    job = Job(name="j", run="x", work=Work(duration=2 * HOUR), deadline=timedelta(minutes=90))
    scene.submit(job=job, deadline=NOW + 1.5 * HOUR)
    scene.options["lot"] = lambda view, now: Lot(first=scene.offers[1].id)
    scene.place()
    risk, request = scene.said()
    assert isinstance(risk, ev.DeadlineAtRisk)
    assert isinstance(request, ev.LaunchRequested)
    assert (request.placement.offer.zone, request.why) == ("b", "its turn in the queue")


def test_a_wait_of_a_job_of_unknown_length_saves_so_much_an_hour(scene: Scene) -> None:
    occupied(scene)
    scene.policy.defaults = PolicyDefaults(wait_for_paid=HOUR)
    scene.submit(job=Job(name="j", run="x"), work_seconds=None)
    scene.place()
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert isinstance(note.reason, WaitsForPaid)
    assert note.reason.an_hour


# --- the rest -------------------------------------------------------------------------------------------------------


def test_a_first_launch_needs_no_view() -> None:
    placement = Placement(sold("a"), 1, Money.usd(12), Money.usd(12), (), None, None, 1.0, 1.0, 0.0)
    assert launch_request("j", 1, placement) == ev.LaunchRequested(key="j-1", engine="stage", placement=placement)
    nowhere = replace(placement, offer=replace(placement.offer, engine=None))
    assert launch_request("j", 1, nowhere).engine == ""


def test_what_the_rules_judge_before_it_is_known_where(scene: Scene) -> None:
    scene.submit()
    scene.place()
    view = scene.view
    assert moving_on(view, NOW) == Action(
        ActionKind.RE_PLACE, view.job, "ann", job_id="j-1", elapsed=timedelta(0), submitted_at=NOW, attempts=1
    )
    scene.append((1, ev.Launched(handle="h")), (1, ev.MachineUp(since=NOW)))
    assert moving_on(scene.view, NOW + HOUR).elapsed == HOUR
