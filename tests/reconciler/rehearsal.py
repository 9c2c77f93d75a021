"""A rehearsal stage for the reconciler: an engine and run folders in memory, driven by the test, on a manual clock.

Not a stand-in for the real engines (those have their own tests and the contract suite): it makes whole lives of jobs
quick to play, faults and lies included.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import BrokerError, GiveUp
from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted, Restored
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job, Retry, Work
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    CaseResult,
    Facts,
    PolicyName,
    RentedHours,
    Source,
    SpotShare,
    Usage,
    Verdict,
)
from broker.core.ports import BudgetSpec, EngineState, Launch, Observation, PolicyDefaults, PolicySet, Rule
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import Dated, ExitRecord, LeaseGrant, NodeState
from broker.ledger.entries import Movement, Tags, faults
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.admission.launch_check import LaunchCheck, Rejudging, Ruling
from broker.reconciler.admission.records import hold_entries, launch_request
from broker.reconciler.controller import Controller
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.leases import NodeLimits
from broker.reconciler.loop import Reconciler
from broker.reconciler.ports import Controllers, ReconcilerPorts, Timing
from broker.store import Store

MINUTE = timedelta(minutes=1)

_PLAIN_KEY = re.compile(r"[A-Za-z0-9-]{1,40}")


def must_be_plain(key: str) -> None:
    """Raises `GiveUp` for a key that the contract of engines does not accept."""
    if not _PLAIN_KEY.fullmatch(key):
        raise GiveUp(f"{key!r} is no key of an attempt")


@dataclass
class StageMachine:
    launch: Launch
    since: datetime
    gone_at: datetime | None = None
    interrupted: bool = False


@dataclass
class StageEngine:
    """Machines that exist at once and stay until something happens to them. It accepts and answers what the contract of
    engines says (`tests/contracts/engine_contract.py`).

    ``failing``: what the next calls raise, by the name of the call, one each. ``refuse``: the same of ``submit`` alone.
    ``silent``, ``keeps_machines``: what every ``find``, every ``cancel`` raises until it is taken away again.
    """

    clock: ManualClock
    name: str = "stage"
    honours: frozenset[str] = frozenset()
    remote: bool = False
    machines: dict[str, StageMachine] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    refuse: list[BrokerError] = field(default_factory=list)
    lies: dict[str, Observation] = field(default_factory=dict)
    silent: BrokerError | None = None
    keeps_machines: Exception | None = None
    asked_to_end: list[str] = field(default_factory=list)
    failing: dict[str, list[Exception]] = field(default_factory=dict)

    def submit(self, launch: Launch) -> str:
        self._fails("submit")
        if self.refuse:
            raise self.refuse.pop(0)
        must_be_plain(launch.key)
        self.submitted.append(launch.key)
        self.machines.setdefault(launch.key, StageMachine(launch, self.clock.now()))
        return launch.key

    def find(self, key: str) -> str | None:
        self._fails("find")
        if self.silent is not None:
            raise self.silent
        return key if key in self.machines else None

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        self._fails("observe")
        return {handle: self.lies.get(handle) or self.look(handle) for handle in handles}

    def look(self, handle: str) -> Observation:
        machine = self.machines.get(handle)
        if machine is None:
            return Observation(EngineState.LOST)
        state = EngineState.UP if machine.gone_at is None else EngineState.GONE
        evidence = "" if machine.gone_at is None else "the machine is gone"
        return Observation(state, machine.since, machine.gone_at, machine.interrupted, evidence)

    def cancel(self, handle: str) -> None:
        self.asked_to_end.append(handle)
        self._fails("cancel")
        if self.keeps_machines is not None:
            raise self.keeps_machines
        machine = self.machines.get(handle)
        if machine is not None and machine.gone_at is None:
            machine.gone_at = self.clock.now()

    def _fails(self, call: str) -> None:
        if self.failing.get(call):
            raise self.failing[call].pop(0)

    def take_back(self, handle: str) -> None:
        self.machines[handle].gone_at = self.clock.now()
        self.machines[handle].interrupted = True


@dataclass
class StageMailbox:
    """Run folders that the test writes into as the agent would."""

    clock: ManualClock
    nodes: dict[str, NodeState] = field(default_factory=dict)
    leases: dict[str, list[LeaseGrant]] = field(default_factory=dict)
    prepared: list[str] = field(default_factory=list)
    broken: BrokerError | None = None

    def url(self, view: JobView, attempt: AttemptView) -> str:
        return f"memory:///{view.id}/attempts/{attempt.number}"

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        if self.broken is not None:
            raise self.broken
        self.prepared.append(attempt.key)
        self.leases.setdefault(attempt.key, []).append(lease)

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        self.leases.setdefault(attempt.key, []).append(lease)

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        return next(reversed(self.leases.get(attempt.key, [])), None)

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        """These nodes need none."""

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        if self.broken is not None:
            raise self.broken
        node = self.nodes.get(attempt.key, NodeState())
        return replace(node, journal=node.journal[attempt.agent_events :])

    def variables(self, view: JobView, attempt: AttemptView) -> Mapping[str, str]:
        return {}  # as where nothing is signed

    def says(self, key: str, *bodies: ev.EventBody) -> None:
        """Append to the journal of an attempt, and beat its heart."""
        node, now = self.nodes.get(key, NodeState()), self.clock.now()
        journal = (*node.journal, *(Dated(now, body) for body in bodies))
        self.nodes[key] = replace(node, journal=journal, heartbeat_at=now)

    def starts(self, key: str, restored: str | None = None, *, knows_standbys: bool = True) -> None:
        self.says(
            key, Claimed(host="node", knows_standbys=knows_standbys), Restored(checkpoint=restored), CommandStarted()
        )

    def exits(self, key: str, cause: Cause, status: int | None = None) -> None:
        node = self.nodes.get(key, NodeState())
        self.nodes[key] = replace(node, exit=ExitRecord(self.clock.now(), cause, status))


@dataclass
class OpenPolicy:
    """Allows everything, or denies what the test names."""

    denied: frozenset[str] = frozenset()
    version: str = "test"
    defaults: PolicyDefaults = field(default_factory=lambda: PolicyDefaults(grants_cash=True, hold_quantile=100.0))

    needs_usage: bool = False
    needs_anomalies: bool = False
    needs_holdings: bool = False
    counts_live: bool = True
    asks: bool = True
    rules: tuple[Rule, ...] = ()
    teams: frozenset[str] = frozenset()
    names: tuple[PolicyName, ...] = ()
    said_at: Mapping[str, Source] = field(default_factory=dict)
    order_exceptions: tuple[tuple[Any, tuple[str, ...], Source], ...] = ()
    warnings: tuple[str, ...] = ()

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        return ()

    def capacity_order(self, job: Job) -> tuple[str, ...]:
        return ()

    def is_spot_eligible(self, work: RentedHours) -> bool:
        return False

    def spot_shares(self, work: RentedHours, now: datetime, rented: object) -> Mapping[str, SpotShare]:
        return {}

    def when(self, rule: str) -> str:
        return ""

    def warns(self, rule: str) -> bool:
        return False

    def written(self, rule: str) -> Mapping[str, Any]:
        return {}

    def approvers(self, rule: str) -> tuple[str, ...]:
        return ()

    def own_requests(self, rule: str) -> bool:
        return False

    def members(self, team: str) -> tuple[str, ...]:
        return ()

    def try_cases(self, file: str, text: str) -> Sequence[CaseResult]:
        raise AssertionError("no cases are tried on the stage")

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        answer = Answer.DENY if action.kind.value in self.denied else Answer.ALLOW
        return [Verdict(answer, "budget", "test", f"{action.kind} is denied", Source("test.yaml", 1))]


class TrustingGate:
    """Lets every launch be made."""

    def __call__(self, view: JobView, attempt: AttemptView) -> Ruling:
        return Ruling.LAUNCH

    def holds(self, view: JobView, attempt: AttemptView) -> bool:
        return True


class Stage:
    """One store, one engine, one reconciler; time stands still until `pass_time`."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.engine, self.mailbox = StageEngine(clock), StageMailbox(clock)
        self.policy: PolicySet = OpenPolicy()
        self.usage: list[Usage] = []
        self.offers = [offer(clock.now(), "spot-a", CapacityType.SPOT, "1"), offer(clock.now(), "od", price="3")]
        self.restart()

    def restart(self) -> None:
        """A new broker process over the same store: nothing is remembered but what is stored."""
        self.place = PlacementController(self.store, lambda job: self._market(), lambda: self.policy)
        self.enforce = Enforcement(self.store, lambda: self.policy, self.clock.now, lambda view, attempt: self.usage)
        self.begin(self.place, self.enforce)

    def begin(
        self,
        place: Controller,
        *judges: Controller,
        limits: NodeLimits | None = None,
        retry_place: timedelta = timedelta(0),
    ) -> None:
        """Look after the jobs with these controllers from now on. ``limits``: None for those of the stage's policy."""
        self.calls = self.made_calls()
        ports = ReconcilerPorts(self.store, self.engine_of, self.mailbox, self.clock, self.calls)
        self.reconciler = Reconciler(
            ports, Controllers(place, judges), self.judge(), limits=limits or self.enforce,
            timing=Timing(retry_place=retry_place),
        )  # fmt: skip

    def engine_of(self, name: str) -> StageEngine:
        return self.engine

    def made_calls(self) -> EngineCalls:
        return EngineCalls()

    def judge(self) -> LaunchCheck:
        """Who judges launches that were delayed, by the stage's policy and offers as they are then."""
        return Rejudging(self.store, lambda job: self._market(), lambda: self.policy, self.clock.now)

    def _market(self) -> PlanInputs:
        return PlanInputs(self.offers, Conditions(engines={"stage": frozenset()}, sandbox=True), {})

    def submit(self, job: Job | None = None, hold: str = "100", hours: float = 24, job_id: str = "j-1") -> str:
        from broker.placement.planner import make_plan

        job, now = job or Job(name="j", run="x", work=Work(duration=timedelta(hours=2))), self.clock.now()
        plan = make_plan(job, self.offers, now=now, submitted_at=now, conditions=self._market().conditions)
        submitted = ev.Submitted(
            job=job, user="ann", max_duration_seconds=hours * 3600, deadline=job.deadline_at(now),
            work_seconds=7200, on_demand=ev.Baseline(pool="od", rate=Money.usd("3"), throughput=1.0),
        )  # fmt: skip
        window = (now, now + timedelta(hours=hours))
        with self.store.writing() as tx:
            burns = {plan.placements[0].money: Burn.evenly(Money.usd(hold), window)}
            tx.record(
                Decision(
                    now, ActionKind.LAUNCH, "ann", job.name, Answer.ALLOW, self.policy.version, "", job_id=job_id,
                    attempt=1,
                )
            )  # fmt: skip
            tx.post(hold_entries(Tags(job_id, "ann"), {}, burns, Movement.HOLD, 1))
            tx.append(job_id, [(None, submitted), (1, launch_request(job_id, 1, plan.placements[0]))], now)
        return job_id

    def pass_time(self, by: timedelta = timedelta(0), times: int = 1) -> JobView:
        for _ in range(times):
            self.clock.advance(by)
            for key, node in self.mailbox.nodes.items():
                if self.engine.machines[key].gone_at is None and node.exit is None:
                    self.mailbox.nodes[key] = replace(node, heartbeat_at=self.clock.now())
            self.reconciler.tick()
        return self.view

    def decided(self) -> list[Decision]:
        """What was decided about the job since it was admitted, newest first."""
        with self.store.reading() as look:
            return [one for one in look.decisions(job_id="j-1") if one.action is not ActionKind.LAUNCH]

    @property
    def view(self) -> JobView:
        with self.store.reading() as look:
            view = look.job("j-1")
        assert view is not None
        return view

    def attempt(self, number: int) -> AttemptView:
        attempt = self.view.attempt(number)
        assert attempt is not None, f"no attempt {number}"
        return attempt

    def money(self, kind: MoneyKind = MoneyKind.CASH) -> tuple[Money, Money]:
        """Held and spent."""
        with self.store.reading() as look:
            balance = look.balance("j-1")[kind]
        return balance.held, balance.spent


def offer(now: datetime, name: str, capacity: CapacityType = CapacityType.ON_DEMAND, price: str = "1") -> Offer:
    return Offer(
        "stage", "here", name, "box", None, 0, capacity, Money.usd(price), now, "test", cpus=4, memory_gib=16,
        availability=Availability.AVAILABLE, engine="stage", interruption_rate=0.1,
    )  # fmt: skip


def retrying(failures: int) -> Job:
    return Job(name="j", run="x", work=Work(duration=timedelta(hours=2)), retry=Retry(failures=failures))


def running(stage: Stage) -> str:
    """Submitted, launched on the cheaper spot pool, running. Its key."""
    stage.submit()
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    assert stage.pass_time().state is JobState.RUNNING
    return "j-1-1"


def finish(stage: Stage, key: str, cause: Cause = Cause.COMPLETED) -> None:
    stage.mailbox.exits(key, cause, 0)
    stage.pass_time()
    stage.pass_time()


def settled_and_closed(stage: Stage) -> None:
    assert stage.view.closed
    assert stage.money()[0] == Money.ZERO
    with stage.store.reading() as look:
        assert faults(look.entries()) == []
