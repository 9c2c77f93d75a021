"""Assembles the reconciler of a broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from broker.app.billing.anomalies import UnusualJobs
from broker.app.billing.budgets import StoppingBudgets
from broker.app.jobs.approval_reevaluation import ApprovalReevaluation
from broker.app.jobs.queue import QueuePlanner
from broker.app.jobs.sealed_secrets import JobSecrets
from broker.app.market.market import market_for
from broker.app.market.strategy_history import record_market
from broker.app.runs_root import run_folders
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import OwnerOnly
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.engines.runfolder.run_folders import RunFolders
from broker.placement.planner import PlanInputs
from broker.procurement.bought_offers import leave_at, orders_of
from broker.reconciler.admission.launch_check import Rejudging, Validity
from broker.reconciler.controller import Controller
from broker.reconciler.controllers.arrays import RunningArrays
from broker.reconciler.controllers.continuation import CapacityEnd, Continuation
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.controllers.strategy_advice import Moving, Strategist
from broker.reconciler.controllers.top_up import TopUp, TopUpPace
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.loop import Reconciler
from broker.reconciler.ports import Controllers, ReconcilerPorts, Timing

_REST_FACTOR = 4.0  # times the duration of the last check for moves: checks take at most a fifth of the time
_JUDGE_EVERY = timedelta(seconds=5)  # wall-clock time between two judgments of a running job


@dataclass(frozen=True, slots=True)
class JudgeControllers:
    """The controllers that judge jobs by the policies in force. ``what_runs``: called in this order for a job that
    needs no other step; the first one stops jobs that may not continue."""

    placing: PlacementController
    check: Rejudging
    enforcement: Enforcement
    what_runs: tuple[Controller, ...]
    secrets: JobSecrets


def make_controllers(broker: Broker, folders: RunFolders, rest: float = _REST_FACTOR) -> JudgeControllers:
    """The controllers for the jobs of this broker's store, for its reconciler and for rehearsals. ``rest``: as in
    `Moving`."""
    scale, now = broker.clock.scale, broker.clock.now
    strategist = Strategist(partial(record_market, broker.store))
    secrets = JobSecrets(broker)
    queue_planner = QueuePlanner(broker, secrets.missing)

    def market(job: Job) -> PlanInputs:
        return market_for(broker, job)

    placing = PlacementController(
        broker.store,
        market,
        broker.policy,
        secrets.missing,
        strategist.place,
        queue_planner.decision,
        queue_planner.refused,
    )
    unusual = UnusualJobs(broker)
    enforcement = Enforcement(
        broker.store,
        broker.policy,
        now,
        folders.usage,
        every=_JUDGE_EVERY * scale,
        over=StoppingBudgets(broker),
        unusual=unusual,
    )
    check = Rejudging(broker.store, market, broker.policy, now, Validity().scaled(scale))
    what_runs = (
        enforcement,
        CapacityEnd(broker.store, lambda offer: leave_at(offer, broker.store.purchases(closed=True), now())),
        Continuation(broker.store, broker.policy, placing.plans, over=StoppingBudgets(broker), unusual=unusual),
        ApprovalReevaluation(broker),
        TopUp(broker.store, broker.policy, TopUpPace().scaled(scale)),
        Moving(broker.store, strategist, lambda view, now: placing.plans(view, broker.policy(), now), rest=rest),
    )
    return JudgeControllers(placing, check, enforcement, what_runs, secrets)


def reconciler(broker: Broker, calls: EngineCalls | None = None) -> Reconciler:
    """A reconciler over this broker's store, engines and policies. ``calls``: how engines are called; None: one call
    after another within a pass."""
    folders = run_folders(broker)
    judges = make_controllers(broker, folders)
    return Reconciler(
        ReconcilerPorts(
            broker.store,
            broker.engine,
            folders,
            broker.clock,
            calls or EngineCalls(),
            store_id(broker.store),
            lambda offer: orders_of(offer, broker.store.purchases(), broker.clock.now()),
        ),
        Controllers(
            judges.placing, judges.what_runs, tasks=RunningArrays(broker.store, broker.policy, judges.placing.plans)
        ),
        judges.check,
        limits=judges.enforcement,
        secrets=partial(launch_secrets, broker, folders, judges.secrets),
        closing=judges.secrets.erase,
        timing=Timing(settle_every=timedelta(seconds=broker.settings.settle_every)).scaled(broker.clock.scale),
    )


def launch_secrets(broker: Broker, folders: RunFolders, secrets: JobSecrets, view: JobView) -> Mapping[str, str]:
    """The secrets that the launch of the job's newest attempt passes to its nodes without storing them: the job's
    secrets, as `JobSecrets.of`, and the key of the attempt.

    Raises `OwnerOnly` if the job's commands would run on this machine under another person's account than the owner's.
    """
    latest = view.latest
    account = broker.account
    is_other_user = view.user != account.user and not account.for_others
    if is_other_user and latest is not None and not broker.engine(latest.engine).remote:
        raise OwnerOnly(view.user, account.user)
    attempt_key = folders.variables(view, latest) if latest is not None else {}
    return {**secrets.of(view, account), **attempt_key}
