"""The reconciler of one broker, put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from broker.app.billing.budgets import OverBudgets
from broker.app.jobs.approval_reevaluation import AskingAnew
from broker.app.jobs.queue import LinedUp
from broker.app.market.market import market_for
from broker.app.market.strategy_history import record
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.actors import ProcessAccount
from broker.core.errors import OwnerOnly, SecretsAbsent
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance
from broker.reconciler.admission.launch_check import Rejudging, Validity
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.controllers.placement import Placing
from broker.reconciler.controllers.strategy_advice import Moving, Strategist
from broker.reconciler.controllers.top_up import Pace, TopUp
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.isolation import isolated
from broker.reconciler.loop import Enforcer, Reconciler, Timing
from broker.runfolder.runfolder import RunFolders

# At most a fifth of the time goes into asking whether what runs should move.
_REST = 4.0

# How often what runs is judged anew, in wall-clock time: time passes, policies and prices change.
_JUDGE_EVERY = timedelta(seconds=5)


def run_folders(broker: Broker) -> RunFolders:
    """The run folders of this broker's jobs."""
    return RunFolders(broker.settings.runs_url, broker.clock)


def reconciler(broker: Broker, calls: EngineCalls | None = None) -> Reconciler:
    """A reconciler over this broker's store, engines and policies. ``calls``: how engines are called; None: one call
    after the other within a look."""
    folders = run_folders(broker)
    settle_every = timedelta(seconds=broker.settings.settle_every)
    strategist = Strategist(partial(record, broker.store))
    line = LinedUp(broker, missing_secrets)
    placing = Placing(
        broker.store,
        lambda job: market_for(broker, job),
        broker.policy,
        broker.clock.now,
        missing_secrets,
        strategist.place,
        line.lot,
        line.refused,
    )
    enforcement = Enforcement(
        broker.store,
        broker.policy,
        broker.clock.now,
        folders.usage,
        every=_JUDGE_EVERY * broker.clock.scale,
        over=OverBudgets(broker),
    )
    moving = Moving(
        broker.store,
        strategist,
        lambda view, now: placing.plans(view, broker.policy(), now),
        broker.clock.now,
        rest=_REST,
    )
    rejudging = Rejudging(
        broker.store,
        lambda job: market_for(broker, job),
        broker.policy,
        broker.clock.now,
        Validity().scaled(broker.clock.scale),
    )
    asking_anew = AskingAnew(broker)
    topping_up = TopUp(broker.store, broker.policy, broker.clock.now, Pace().scaled(broker.clock.scale))
    return Reconciler(
        journal=broker.store,
        engines=broker.engine,
        mailbox=folders,
        clock=broker.clock,
        place=placing,
        check=rejudging,
        timing=Timing(settle_every=settle_every).scaled(broker.clock.scale),
        secrets=partial(passed_on, broker),
        enforce=each_in_turn(
            enforcement,
            lambda view, money: asking_anew(view),
            lambda view, money: topping_up(view),
            lambda view, money: moving(view),
        ),
        max_unattended=enforcement.max_unattended,
        idle_limits=enforcement.idle_limits,
        edges_ahead=enforcement.edges_ahead,
        store_id=store_id(broker.store),
        calls=calls,
    )


def each_in_turn(*judges: Enforcer) -> Enforcer:
    """Asks each in turn until one has changed something. What one of them raises is logged, and the next is asked."""

    def enforce(view: JobView, money: Mapping[MoneyKind, Balance]) -> bool:
        for judge in judges:
            with isolated(f"job {view.id}: judging what runs"):
                if judge(view, money):
                    return True
        return False

    return enforce


def passed_on(broker: Broker, view: JobView) -> Mapping[str, str]:
    """The secrets that the launch of the job's newest attempt takes along, as `secrets_of`.

    Raises `OwnerOnly` where its commands would run on this machine under the account of somebody who only
    happens to look after the store.
    """
    latest = view.latest
    account = broker.account
    others = view.user != account.user and not account.for_others
    if others and latest is not None and not broker.engine(latest.engine).remote:
        raise OwnerOnly(view.user, account.user)
    return secrets_of(view, account)


def missing_secrets(job: Job) -> Sequence[str]:
    """The job's secrets that are not in this process's environment."""
    return [name for name in job.secrets if name not in os.environ]


def secrets_of(view: JobView, account: ProcessAccount) -> Mapping[str, str]:
    """The job's secrets, from this process's environment at launch; they are written nowhere.

    Raises `SecretsAbsent` where some are not there, and for another user's job: one's environment is nobody else's. A
    process that has them may launch the job later.
    """
    if view.job.secrets and view.user != account.user:
        raise SecretsAbsent(view.job.secrets, owner=view.user, process_user=account.user)
    if missing := missing_secrets(view.job):
        raise SecretsAbsent(missing)
    return {name: os.environ[name] for name in view.job.secrets}
