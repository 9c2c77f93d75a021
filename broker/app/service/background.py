"""Who reconciles: one background process per store, started by whoever needs it, gone when nothing is left to do.

The store's lead says whether one runs; it goes with the process, however that dies, so any command can tell and start
another.
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
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import OwnerMustStart, SecretsMissing
from broker.core.market.offers import MoneyKind
from broker.settings import as_environment, variable

if TYPE_CHECKING:
    from broker.reconciler.loop import Tick
    from broker.store.jobs.journal import StoreReading

log = logging.getLogger(__name__)

# So many looks without anything to do before the process ends; a job submitted meanwhile finds it still there.
_IDLE_TICKS = 3
_CALLS_BESIDE = 8  # calls of one engine (launches, removals) that are under way at the same time
_SLOWEST_LOOK = 60.0  # seconds of the wall clock, while the store does not answer
_MOST_DOUBLINGS = 16  # of the time between looks; beyond that it is `_SLOWEST_LOOK` anyhow

# The newest turn asked for: a process that was not started for it steps down, so that one with another environment
# (secrets) may lead. The process's own turn comes in the variable.
_TURN = "reconciler_turn"
_OWN_TURN = "GPUBROKER_RECONCILER_TURN"
_MOST_PATIENCE = 300  # looks at whether the one before has stepped down
_BETWEEN_LOOKS = 0.2  # seconds
# A launch that is asked for and does not happen for so long may lack its secrets.
_LAUNCH_TAKES = timedelta(minutes=1)


_START_UP = 5.0  # seconds of the wall clock that a reconciler may take to start
_started_at: dict[str, float] = {}  # by store, when this process last started one


def running(broker: Broker) -> bool:
    """Whether a process looks after this store's jobs now."""
    return broker.store.is_led()


def ensure(broker: Broker, for_secrets_of: JobView | None = None) -> bool:
    """Start the background reconciler unless one runs already; whether one was started.

    ``for_secrets_of``: a job whose secrets are in this process's environment, or that only its user's own processes
    may start here. One that runs already cannot be given them, so it is asked to step down after its next look, and the
    one that is started here takes its turn. Jobs whose secrets were in the other's environment alone then wait, and say
    so.

    Harmless to call at any time: a second process finds the lead taken and goes away.
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
        subprocess.Popen(  # noqa: S603  # our own program by its full path; no shell, no foreign input
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


def work_left(broker: Broker) -> bool:
    """Whether a job is open that time alone could move on."""
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
    """Whether other policies came into force since what it waits for was asked, or since it was stopped by one; those
    that cannot be read change nothing."""
    from broker.app.jobs import approval_reevaluation  # only where something waits for people
    from broker.reconciler.controllers import going_on

    try:
        policy = broker.policy(look)
        return approval_reevaluation.is_due(look, view, policy) or going_on.is_due(look, view, policy)
    except BrokerError:
        return False


def revive(broker: Broker) -> None:
    """Any command may call this: a reconciler that died with work left is started again, and one that lacks secrets
    which are in this process's environment gives way to one that has them."""
    with broker.store.reading() as look:
        if not look.has_open_jobs():
            return  # most commands need not ask who leads
    # One that this process has just started needs a moment to take the lead; none is started again meanwhile.
    if time.monotonic() - _started_at.get(broker.settings.store_url, -_START_UP) < _START_UP:
        return
    if not running(broker):
        if work_left(broker):
            ensure(broker)
    elif waiting := _waits_for_what_is_here(broker):
        ensure(broker, for_secrets_of=waiting)


def _waits_for_what_is_here(broker: Broker) -> JobView | None:
    """A job of this user's that waits for secrets which this process has, or for a process of this user's."""
    states = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED, JobState.LAUNCHING)
    with broker.store.reading() as look:
        mine = look.jobs(states=[state.value for state in states], user=broker.account.user)
    now = broker.clock.now()
    for view in mine:
        if isinstance(view.waiting, OwnerMustStart):
            return view  # somebody else's process leads, which must not run the job's commands as that person
        latest, wanted = view.latest, view.job.secrets
        unlaunched = latest is not None and latest.state is AttemptState.REQUESTED
        lacks = isinstance(view.waiting, SecretsMissing)
        waits = now - latest.requested_at > _LAUNCH_TAKES if latest and unlaunched else lacks
        if wanted and waits and all(name in os.environ for name in wanted):
            return view
    return None


def run(broker: Broker, *, forever: bool = False) -> bool:
    """Reconcile until nothing is left to do, or (but for ``forever``) until another process is to take over. False
    when another process does it already; one that was started to take over waits for that one to step down first."""
    own = os.environ.pop(_OWN_TURN, "")  # not for the programs it starts
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
        # Somebody may have submitted after the last look and seen the lead still taken: look once more without it.
        if not work_left(broker):
            return True


def _until_idle(broker: Broker, still_leading: Callable[[], bool], own: str, *, forever: bool) -> bool:
    """Look after the jobs; whether it ended because another process is to take over. ``own``: see `_TURN`."""
    own = own or broker.store.setting(_TURN) or ""
    idle = 0
    for look in looks(broker, still_leading, broker.clock.sleep):
        if forever or look.brought is None:
            continue
        idle = idle + 1 if look.brought.idle else 0
        try:
            if (broker.store.setting(_TURN) or "") != own:
                return True
        except BrokerError as error:  # the next look will find out what is wrong
            log.warning("%s (%s)", error, error.hint)
        if idle >= _IDLE_TICKS:
            return False
    return False


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all jobs. ``brought``: None where the store did not answer. ``seconds``: of the wall clock."""

    brought: Tick | None
    seconds: float


def looks(broker: Broker, still_leading: Callable[[], bool], pause: Callable[[float], object]) -> Iterator[Look]:
    """Look after the jobs again and again while the lead holds. A store that does not answer (locked, full or away)
    ends nothing: jobs go on, and so does looking after them. ``pause`` waits so many seconds of the wall clock between
    two looks, longer the longer the store is in trouble."""
    from broker.app.billing.budgets import Alerting
    from broker.app.service.reconciler_setup import (
        reconciler,  # every command looks whether one runs; one process runs it
    )
    from broker.reconciler.engine_calls import EngineCalls

    worker, alerting = reconciler(broker, EngineCalls(_CALLS_BESIDE)), Alerting(broker)
    failed = 0
    try:
        while still_leading():
            tick, began = None, time.monotonic()
            try:
                if _sandbox_runs(broker):
                    freshen(broker, sandbox=True)  # its spot prices are settled as they are observed
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
    """Send the reconciler's log to a private, bounded file under ``home``."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home / "reconciler.log"
    path.touch(mode=0o600)
    handler = RotatingFileHandler(path, maxBytes=5_000_000, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("broker").addHandler(handler)
    logging.getLogger("broker").setLevel(logging.INFO)


def this_program() -> tuple[str, ...]:
    """How to start this program anew, with the same interpreter and without looking into the working directory."""
    return (sys.executable, "-P", "-m", "cli")
