"""Who reconciles: one background process per store, started by whoever needs it, gone when nothing is left to do.

The store's lead says whether one runs; it goes with the process, however that dies, so any command can tell and start
another.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from broker.app.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events import JobState
from broker.core.offers import MoneyKind
from broker.settings import as_environment

log = logging.getLogger(__name__)

# So many looks without anything to do before the process ends; a job submitted meanwhile finds it still there.
_IDLE_TICKS = 3
_SLOWEST_LOOK = 60.0  # seconds of the wall clock, while the store does not answer


def running(broker: Broker) -> bool:
    """Whether a process looks after this store's jobs now."""
    return broker.store.is_led()


def ensure(broker: Broker) -> bool:
    """Start the background reconciler unless one runs already; whether one was started.

    Harmless to call at any time: a second process finds the lead taken and goes away.
    """
    if running(broker):
        return False
    home = broker.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {**os.environ, **as_environment(broker.settings)}
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
    while True:
        with broker.store.lead() as still_leading:
            if still_leading is None:
                return False
            _until_idle(broker, still_leading, forever=forever)
        # Somebody may have submitted after the last look and seen the lead still taken: look once more without it.
        if not work_left(broker):
            return True


def _until_idle(broker: Broker, still_leading: Callable[[], bool], *, forever: bool) -> None:
    from broker.app.launching import reconciler  # every command looks whether one runs; one process runs it

    worker = reconciler(broker)
    idle = failed = 0
    while (forever or idle < _IDLE_TICKS) and still_leading():
        try:
            if _sandbox_runs(broker):
                freshen(broker, sandbox=True)  # its spot prices are settled as they are observed
            idle = idle + 1 if worker.tick().idle else 0
            failed = 0
        except BrokerError as error:  # a store that is locked, full or away: jobs go on, and so does looking after them
            failed += 1
            log.warning("%s (%s)", error, error.hint)
        broker.clock.sleep(min(broker.settings.reconcile_every * 2**failed, _SLOWEST_LOOK))


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
