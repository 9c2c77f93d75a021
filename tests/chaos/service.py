"""The broker as it is served, among liars: `python -m tests.chaos.service serve …` is `gpubroker serve …` with engines
that do not tell the truth, a clock that jumps, and less patience, so that minutes are enough."""

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import cli
from broker.agent.formats import Intervals
from broker.app.runs_root import attempt_keys
from broker.app.service import passes
from broker.app.wiring import Broker, Registries
from broker.core.events import lifecycle
from broker.core.values.clock import SystemClock
from broker.engines.runfolder.run_folders import RunFolders
from broker.reconciler.interpret import Patience
from broker.reconciler.ports import Timing
from tests.chaos.control import Control
from tests.chaos.lying import Lying

BRISK = Intervals(scan=0.2, mail=1.0, log=2.0, metrics=60.0, notice=0.2, patience=120.0)
PATIENCE = Patience(start=timedelta(seconds=60), heartbeat=timedelta(seconds=15))
SHORT_REST = mock.patch.object(lifecycle, "_FIRST_REST", timedelta(seconds=15))
"""Ten minutes for one pool would outlast the run. Whoever folds the events again does it with the same rest."""
JUMPS = ("clock_forward", "clock_backward", "clock_over_midnight")


class JumpyClock:
    """The machine's clock, set by somebody now and then."""

    scale = 1.0

    def __init__(self, control: Control) -> None:
        self._control = control
        self._seen: set[float] = set()

    def now(self) -> datetime:
        at = datetime.now(UTC)
        for jump in JUMPS:
            if (told := self._control.now(jump)) is not None:
                if told["until"] not in self._seen:
                    self._seen.add(told["until"])
                    self._control.struck(jump)
                at += timedelta(seconds=told["by"])
        return at

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def among_liars(control: Control) -> None:
    """From now on in this process."""
    real_engine, timing = Broker.engine, Timing(
        settle_every=timedelta(seconds=2),
        patience=PATIENCE,
        grace=timedelta(seconds=10),
        retry_place=timedelta(seconds=1),
    )  # fmt: skip

    def engine(broker: Broker, name: str) -> Any:
        known: dict[str, Any] = broker.__dict__.setdefault("_liars", {})
        if name not in known:
            real = real_engine(broker, name)
            if name == "sandbox":  # a cloud has a clock of its own: what it boots comes up, whatever time it is here
                vars(real)["_clock"] = SystemClock()
            known[name] = Lying(real, control)
        return known[name]

    Broker.engine = engine  # type: ignore[method-assign,assignment]  # a fault is put in
    Broker.clock = JumpyClock(control)  # type: ignore[assignment]  # a fault is put in
    vars(passes)["run_folders"] = lambda broker: RunFolders(
        broker.settings.runs_url, broker.clock, BRISK, attempt_keys(broker)
    )
    vars(passes)["Timing"] = lambda **given: timing  # a fault is put in
    SHORT_REST.start()


def registries() -> Registries:
    """The real ones; a background process started from here is one of us."""
    return replace(cli.registries(), command=(sys.executable, "-P", "-m", "tests.chaos.service"))


if __name__ == "__main__":
    from broker.cli.program import run

    told = Control.from_environment()
    assert told is not None, "started by a chaos run only"
    among_liars(told)
    sys.exit(run(sys.argv[1:], registries))
