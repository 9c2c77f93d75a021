"""The background reconciler: one process per store, started by any command that needs it; it ends when no work is left.

The process holds the store's leader lock. The lock ends with the process, however that ends, so any command can see
whether a reconciler runs, and start another.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.jobs.runs_root import root
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import OwnerMustStart, SecretsMissing
from broker.core.market.offers import MoneyKind
from broker.settings import as_environment, variable

if TYPE_CHECKING:
    from broker.reconciler.loop import Tick
    from broker.store.jobs.reading import StoreReading

log = logging.getLogger(__name__)

_IDLE_TICKS = 3  # idle passes before the process ends; a job submitted meanwhile finds it still running
_CALLS_BESIDE = 8  # concurrent calls (launches, removals) of one engine
_SLOWEST_LOOK = 60.0  # seconds of the wall clock between two passes while the store does not answer
_MOST_DOUBLINGS = 16  # of the time between passes; after them `_SLOWEST_LOOK` applies anyhow

# The newest requested turn: a token. A process with another one steps down, so that a process with other secrets in its
# environment may lead. A process gets its own turn in the variable.
_TURN = "reconciler_turn"
_OWN_TURN = "GPUBROKER_RECONCILER_TURN"
_MOST_PATIENCE = 300  # tries to take the lead from a process that steps down
_BETWEEN_LOOKS = 0.2  # seconds between these tries
_LAUNCH_TAKES = timedelta(minutes=1)  # a launch that is not made for this long may lack its secrets

_START_UP = 5.0  # seconds of the wall clock that a reconciler may take to start
_started_at: dict[str, float] = {}  # by store URL: when this process last started a reconciler


def running(broker: Broker) -> bool:
    """Whether a process reconciles this store's jobs now."""
    return broker.store.is_led()


def ensure(broker: Broker, for_secrets_of: JobView | None = None) -> bool:
    """Start the background reconciler unless one runs; returns whether one was started.

    ``for_secrets_of``: a job whose secrets are in this process's environment, or that only processes of its owner may
    start on this machine. A running reconciler cannot receive them, so it is asked to step down after its next pass,
    and the new one takes over. Jobs whose secrets only the old one had then wait, and report that.

    Safe to call at any time: a second process finds the lead taken and ends.
    """
    turn = ""
    if running(broker):
        wanted = for_secrets_of
        if wanted is None or not (wanted.job.secrets or isinstance(wanted.waiting, OwnerMustStart)):
            return False
        turn = secrets.token_hex(8)
        broker.store.set_setting(_TURN, turn)
    home = broker.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {**os.environ, **as_environment(broker.settings), variable("runs"): root(broker), _OWN_TURN: turn}
    with open(home / "reconciler.out", "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        subprocess.Popen(  # noqa: S603  # gpubroker itself, by its full path; no shell, no input from others
            [*broker.registries.command, "reconcile"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=home,
            start_new_session=True,
            close_fds=True,
        )
    _started_at[broker.settings.store_url] = time.monotonic()
    return True


def step_down(broker: Broker) -> None:
    """Ask a background reconciler to end after its next pass. `gpubroker serve` continues."""
    broker.store.set_setting(_TURN, secrets.token_hex(8))


def work_left(broker: Broker) -> bool:
    """Whether a reconciler has work: an open job that can proceed without a person."""
    people, now = (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET), broker.clock.now()
    with broker.store.reading() as look:
        return any(
            view.state not in people
            or view.cancel_requested
            or (view.asked is not None and view.asked.expired(now))
            or _policies_changed(broker, look, view)
            or not all(a.over for a in view.attempts)
            for view in look.unclosed()
        )


def _policies_changed(broker: Broker, look: StoreReading, view: JobView) -> bool:
    """Whether the policies changed since the job's open request was judged, or since a policy stopped the job.
    Unreadable policies change nothing."""
    from broker.app.jobs import approval_reevaluation  # needed only if something waits for people
    from broker.reconciler.controllers import going_on

    try:
        policy = broker.policy(look)
        return approval_reevaluation.is_due(look, view, policy) or going_on.is_due(look, view, policy)
    except BrokerError:
        return False


def revive(broker: Broker) -> None:
    """Start a reconciler if the last one ended with work left, and replace one that lacks secrets which this process
    has. Any command may call this at any time. Raises `StoreProblem`."""
    with broker.store.reading() as look:
        if not look.has_open_jobs():
            return  # then it does not matter whether one runs
    # A reconciler that this process has just started needs a moment to take the lead.
    if time.monotonic() - _started_at.get(broker.settings.store_url, -_START_UP) < _START_UP:
        return
    if not running(broker):
        if work_left(broker):
            ensure(broker)
    elif waiting := _waits_for_what_is_here(broker):
        ensure(broker, for_secrets_of=waiting)


def _waits_for_what_is_here(broker: Broker) -> JobView | None:
    """A job of this user that waits for secrets which this process has, or for a process of this user."""
    states = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED, JobState.LAUNCHING)
    with broker.store.reading() as look:
        mine = look.jobs(states=[state.value for state in states], users=[broker.account.user], with_tasks=True)
    now = broker.clock.now()
    for view in mine:
        if isinstance(view.waiting, OwnerMustStart):
            return view  # another person's process leads and must not run this user's commands under its account
        latest, wanted = view.latest, view.job.secrets
        unlaunched = latest is not None and latest.state is AttemptState.REQUESTED
        lacks = isinstance(view.waiting, SecretsMissing)
        waits = now - latest.requested_at > _LAUNCH_TAKES if latest and unlaunched else lacks
        if wanted and waits and all(name in os.environ for name in wanted):
            return view
    return None


def run(broker: Broker, *, forever: bool = False) -> bool:
    """Reconcile until no work is left, or another process should take over; with ``forever`` until the process ends.
    Returns False if another process reconciles already; a process that was started to take over first waits for that
    one to step down."""
    own = os.environ.pop(_OWN_TURN, "")  # child processes must not inherit it
    patience = _MOST_PATIENCE if own else 0
    while True:
        with broker.store.lead() as still_leading:
            if still_leading is not None:
                patience = 0
                if _until_idle(broker, still_leading, own, forever=forever):
                    return True
            elif not patience:
                return False
        if patience:
            patience -= 1
            broker.clock.sleep(_BETWEEN_LOOKS)
            continue
        # A job may have been submitted after the last pass while the lead was still taken, so check again without it.
        if not work_left(broker):
            return True


def _until_idle(broker: Broker, still_leading: Callable[[], bool], own: str, *, forever: bool) -> bool:
    """Reconcile until no work is left; returns whether it ended because another process is to take over. ``own``: see
    `_TURN`."""
    own = own or broker.store.setting(_TURN) or ""
    idle = 0
    for look in looks(broker, still_leading, broker.clock.sleep):
        if forever or look.brought is None:
            continue
        idle = idle + 1 if look.brought.idle else 0
        try:
            if (broker.store.setting(_TURN) or "") != own:
                return True
        except BrokerError as error:  # the next pass reports it if it persists
            log.warning("%s (%s)", error, error.hint)
        if idle >= _IDLE_TICKS:
            return False
    return False


@dataclass(frozen=True, slots=True)
class Look:
    """One pass over all jobs. ``brought``: the result; None if the store did not answer. ``seconds``: wall clock."""

    brought: Tick | None
    seconds: float


def looks(broker: Broker, still_leading: Callable[[], bool], pause: Callable[[float], object]) -> Iterator[Look]:
    """Reconcile in passes while ``still_leading`` returns True, and yield each. If the store does not answer (locked,
    full, unreachable), the error is logged and the pass repeated. ``pause`` waits the given seconds of the wall clock
    between two passes, longer while the store does not answer."""
    # Slow to import, and most commands do not reconcile.
    from broker.app.billing.budgets import Alerting
    from broker.app.market.market import freshen
    from broker.app.service.reconciler_setup import reconciler
    from broker.reconciler.engine_calls import EngineCalls

    worker, alerting = reconciler(broker, EngineCalls(_CALLS_BESIDE)), Alerting(broker)
    failed = 0
    try:
        while still_leading():
            tick, began = None, time.monotonic()
            try:
                if _sandbox_runs(broker):
                    freshen(broker, sandbox=True)  # costs at simulated spot prices are settled at observed prices
                tick = worker.tick()
                alerting()
                failed = 0
            except BrokerError as error:
                failed += 1
                log.warning("%s (%s)", error, error.hint)
            yield Look(tick, time.monotonic() - began)
            pause(min(broker.settings.reconcile_every * 2 ** min(failed, _MOST_DOUBLINGS), _SLOWEST_LOOK))
    finally:
        worker.close()


def _sandbox_runs(broker: Broker) -> bool:
    with broker.store.reading() as look:
        return any(attempt.money is MoneyKind.SANDBOX for attempt in look.live_attempts())


def log_to_file(home: Path) -> None:
    """Send the reconciler's log to a private file of bounded size under ``home``."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home / "reconciler.log"
    path.touch(mode=0o600)
    handler = RotatingFileHandler(path, maxBytes=5_000_000, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("broker").addHandler(handler)
    logging.getLogger("broker").setLevel(logging.INFO)


def this_program() -> tuple[str, ...]:
    """The command that starts this program with the same interpreter, importing nothing from the working directory."""
    return (sys.executable, "-P", "-m", "cli")
