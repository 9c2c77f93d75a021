"""The reconciler of a broker, and its passes: until no work is left, or as long as the process lives; and its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.billing.anomalies import UnusualJobs
from broker.app.billing.budgets import StoppingBudgets
from broker.app.jobs.approval_reevaluation import ApprovalReevaluation
from broker.app.jobs.background import OWN_TURN, TURN, has_work_left
from broker.app.jobs.queue import QueuePlanner
from broker.app.jobs.sealed_secrets import JobSecrets
from broker.app.market.market import market_for
from broker.app.market.strategy_history import record_market
from broker.app.runs_root import run_folders
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, OwnerOnly
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
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

if TYPE_CHECKING:
    from broker.reconciler.loop import Tick


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
        Moving(
            broker.store,
            strategist,
            lambda view, now: placing.plans(view, broker.policy(), now),
            rest=rest,
            stand_by=placing.stand_by,
        ),
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
    newest = view.attempts[-1] if view.attempts else None
    account = broker.account
    is_other_user = view.user != account.user and not account.for_others
    if is_other_user and newest is not None and not broker.engine(newest.engine).remote:
        raise OwnerOnly(view.user, account.user)
    attempt_key = folders.variables(view, newest) if newest is not None else {}
    return {**secrets.of(view, account), **attempt_key}


log = logging.getLogger(__name__)

_IDLE_TICKS = 3  # idle passes before the process ends; a job submitted meanwhile finds it still running
_MAX_ENGINE_CALLS = 8  # concurrent calls (launches, removals) of one engine
_MAX_PAUSE = 60.0  # seconds of the wall clock between two passes while the store does not answer
_MAX_DOUBLINGS = 16  # of the time between passes; after them `_MAX_PAUSE` applies anyhow
_MAX_LEAD_TRIES = 300  # tries to take the lead from a process that steps down
_LEAD_RETRY_SECONDS = 0.2  # seconds between these tries


def run(broker: Broker, *, forever: bool = False) -> bool:
    """Reconcile until no work is left, or another process should take over; with ``forever`` until the process ends.
    Returns False if another process reconciles already; a process that was started to take over first waits for that
    one to step down."""
    own_turn = os.environ.pop(OWN_TURN, "")  # child processes must not inherit it
    tries_left = _MAX_LEAD_TRIES if own_turn else 0
    while True:
        with broker.store.lead() as still_leading:
            if still_leading is not None:
                tries_left = 0
                if _run_until_idle(broker, still_leading, own_turn, forever=forever):
                    return True
            elif not tries_left:
                return False
        if tries_left:
            tries_left -= 1
            broker.clock.sleep(_LEAD_RETRY_SECONDS)
            continue
        # A job may have been submitted after the last pass while the lead was still taken, so check again without it.
        if not has_work_left(broker):
            return True


def _run_until_idle(broker: Broker, still_leading: Callable[[], bool], own_turn: str, *, forever: bool) -> bool:
    """Reconcile until no work is left; returns whether it ended because another process is to take over. ``own_turn``:
    see `TURN`."""
    own_turn = own_turn or broker.store.setting(TURN) or ""
    idle_passes = 0
    for reconcile_pass in reconcile_passes(broker, still_leading, broker.clock.sleep):
        if forever or reconcile_pass.brought is None:
            continue
        idle_passes = idle_passes + 1 if reconcile_pass.brought.idle else 0
        try:
            if (broker.store.setting(TURN) or "") != own_turn:
                return True
        except BrokerError as error:  # the next pass reports it if it persists
            log.warning("%s (%s)", error, error.hint)
        if idle_passes >= _IDLE_TICKS:
            return False
    return False


@dataclass(frozen=True, slots=True)
class ReconcilePass:
    """One pass over all jobs. ``brought``: the result; None if the store did not answer. ``seconds``: wall clock."""

    brought: Tick | None
    seconds: float


def reconcile_passes(
    broker: Broker, still_leading: Callable[[], bool], pause: Callable[[float], object]
) -> Iterator[ReconcilePass]:
    """Reconcile in passes while ``still_leading`` returns True, and yield each. If the store does not answer (locked,
    full, unreachable), the error is logged and the pass repeated. ``pause`` waits the given seconds of the wall clock
    between two passes, longer while the store does not answer."""
    # Slow to import, and most commands do not reconcile.
    from broker.app.billing.budgets import Alerting
    from broker.app.market.market import freshen
    from broker.reconciler.engine_calls import EngineCalls

    worker, alerting = reconciler(broker, EngineCalls(_MAX_ENGINE_CALLS)), Alerting(broker)
    failures = 0
    try:
        while still_leading():
            tick, started = None, time.monotonic()
            try:
                if _has_sandbox_attempts(broker):
                    freshen(broker, sandbox=True)  # costs at simulated spot prices are settled at observed prices
                tick = worker.tick()
                alerting()
                failures = 0
            except BrokerError as error:
                failures += 1
                log.warning("%s (%s)", error, error.hint)
            yield ReconcilePass(tick, time.monotonic() - started)
            pause(min(broker.settings.reconcile_every * 2 ** min(failures, _MAX_DOUBLINGS), _MAX_PAUSE))
    finally:
        worker.close()


def _has_sandbox_attempts(broker: Broker) -> bool:
    with broker.store.reading() as reader:
        return any(attempt.money is MoneyKind.SANDBOX for attempt in reader.live_attempts())


class _LogFile(RotatingFileHandler):
    """Leaves out a line that a full disk does not take, instead of printing a traceback for each."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def log_to_file(
    home: Path,
    name: str = "reconciler.log",
    logger: str = "broker",
    line: str = "%(asctime)s %(levelname)s %(name)s: %(message)s",
    *,
    earlier: int = 2,
) -> None:
    """Send a logger's lines to a private file of 5 MB under ``home``, and keep so many earlier ones."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home / name
    path.touch(mode=0o600)
    handler = _LogFile(path, maxBytes=5_000_000, backupCount=earlier)
    handler.setFormatter(logging.Formatter(line))
    logging.getLogger(logger).addHandler(handler)
    logging.getLogger(logger).setLevel(logging.INFO)
