"""Who reconciles: one background process per store, started by whoever needs it, gone when nothing is left to do.

A lock file beside the data says whether one runs; the lock goes with the process, however it dies, so any command can
tell and start another.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from filelock import FileLock, Timeout

from broker.app.market import freshen
from broker.app.wiring import Broker
from broker.core.events import JobState
from broker.core.offers import MoneyKind

log = logging.getLogger(__name__)

# So many looks without anything to do before the process ends; a job submitted meanwhile finds it still there.
_IDLE_TICKS = 3


def lock_path(broker: Broker) -> Path:
    """The lock of this store's reconciler. One per store URL and user; several stores may share a home."""
    store = hashlib.sha256(broker.settings.store_url.encode()).hexdigest()[:12]
    return broker.settings.home / f"reconciler-{store}.lock"


def running(broker: Broker) -> bool:
    """Whether a reconciler for this store holds the lock now."""
    if not lock_path(broker).exists():
        return False
    lock = FileLock(lock_path(broker))
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True


def ensure(broker: Broker) -> bool:
    """Start the background reconciler unless one runs already; whether one was started.

    Harmless to call at any time: a second process finds the lock taken and goes away.
    """
    if running(broker):
        return False
    home = broker.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = dict(os.environ)
    environment["GPUBROKER_HOME"] = str(home.absolute())
    environment["GPUBROKER_STORE"] = broker.settings.store_url
    environment["GPUBROKER_RUNS"] = broker.settings.runs_url
    with (home / "reconciler.out").open("ab") as out:
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
    return True


def work_left(broker: Broker) -> bool:
    """Whether a job is open that time alone could move on."""
    people = (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)
    with broker.store.reading() as look:
        return any(
            view.state not in people or view.cancel_requested or not all(a.over for a in view.attempts)
            for view in look.unclosed()
        )


def revive(broker: Broker) -> None:
    """Any command may call this: a reconciler that died with work left is started again."""
    if not running(broker) and work_left(broker):
        ensure(broker)


def run(broker: Broker, *, forever: bool = False) -> bool:
    """Reconcile until nothing is left to do (or ``forever``). False when another process does it already."""
    broker.settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(lock_path(broker), mode=0o600)
    while True:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        try:
            _until_idle(broker, forever=forever)
        finally:
            lock.release()
        # Somebody may have submitted after the last look and seen the lock still taken: look once more without it.
        if not work_left(broker):
            return True


def _until_idle(broker: Broker, *, forever: bool) -> None:
    from broker.app.launching import reconciler  # every command looks whether one runs; one process runs it

    worker = reconciler(broker)
    idle = 0
    while forever or idle < _IDLE_TICKS:
        if _sandbox_runs(broker):
            freshen(broker, sandbox=True)  # its spot prices are settled as they are observed
        tick = worker.tick()
        idle = idle + 1 if tick.idle else 0
        broker.clock.sleep(broker.settings.reconcile_every)


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
