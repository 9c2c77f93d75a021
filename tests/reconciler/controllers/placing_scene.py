"""A job on a store that is placed by `PlacementController`, for tests: offers, a policy that answers as told, and its
records.

Machines cost $12 an hour; the job may run ten hours: $12 × (10 h + a minute billed at once + two minutes to stop) is
$120.60."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, Work
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Action, Answer, Facts, Source, Verdict
from broker.core.ports import PolicyDefaults
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Movement, Tags
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.admission.records import hold_entries, launch_request
from broker.reconciler.controller import ControllerResult, DecideAnew, JobContext, RetryReason, TryLater
from broker.reconciler.controllers.placement import PlacementController
from broker.store import Store
from tests.reconciler.rehearsal import OpenPolicy

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
CASH, PAID = MoneyKind.CASH, MoneyKind.AMORTISED
TAGS = Tags("j-1", "ann")
ANEW, LATER = DecideAnew(), TryLater(RetryReason.NO_PLACE)


@dataclass
class StoredJob:
    """The job ``j-1`` of a store."""

    store: Store

    def append(self, *items: tuple[int | None, EventBody]) -> None:
        with self.store.writing() as tx:
            tx.append("j-1", list(items), NOW)

    @property
    def view(self) -> JobView:
        with self.store.reading() as look:
            view = look.job("j-1")
        assert view is not None
        return view


@dataclass
class Says(OpenPolicy):
    """A policy set that says what the test wants about each zone, and remembers what it judged."""

    says: dict[str, Answer] = field(default_factory=dict)
    rule: str = "hours"
    judged: list[Action] = field(default_factory=list)
    version: str = "v1"
    defaults: PolicyDefaults = field(default_factory=lambda: PolicyDefaults(hold_quantile=100.0))
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
class Scene(StoredJob):
    """A job that waits for a place, with the offers there are."""

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
        about = JobContext(self.view, now)
        markets = {about.view.job.name: self.market()}
        placing = PlacementController(
            self.store, lambda job: markets[job.name], lambda: policy,
            refused=lambda view: self.turned_away.append(view.id), **self.options,
        )  # fmt: skip
        assert placing.goes_by(about) is True
        return placing.reconcile(about)

    def market(self) -> PlanInputs:
        return PlanInputs(self.offers, Conditions(engines={"stage": frozenset()}, sandbox=True), {})

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


def waits_once(scene: Scene, reason: object) -> None:
    """The job waits, which is recorded once."""
    assert [scene.place(), scene.place(NOW + MINUTE)] == [LATER, LATER]
    (note,) = scene.said()
    assert isinstance(note, ev.NothingFeasible)
    assert note.reason == reason


def occupied(scene: Scene) -> Offer:
    """The only machine of our own, which somebody needs for another hour."""
    own = sold("own", "0", capacity=CapacityType.OWNED, money=PAID, slots=1)
    there = Placement(own, 1, Money.ZERO, Money.ZERO, (), HOUR, NOW + HOUR, 1.0, 1.0, 0.0)
    with scene.store.writing() as tx:
        other = ev.Submitted(job=Job(name="k", run="x"), user="bob", max_duration_seconds=36000)
        tx.append("j-9", [(None, other), (1, launch_request("j-9", 1, there))], NOW)
    scene.offers.append(own)
    return own
