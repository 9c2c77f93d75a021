"""A broker that kills itself with SIGKILL at the n-th point at which it touches the world. Run as a program:

    python -m tests.crash.driver HOME JOB.yaml POINT TRACE

Submits the job (unless the store has one), reconciles until nothing is left to do, and dies at point number POINT
(0: never). Points stand before and after every call of the store, of an engine and of a run folder, and around every
write and commit inside a transaction. They are found by wrapping the objects, not by listing their methods, so a call
that is added later has its points, too. Each point is written to TRACE first.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker.app import background, launching
from broker.app.submit import read_job, submit
from broker.app.wiring import Broker
from broker.settings import Settings


class Fuse:
    """Counts points, and burns through at one of them."""

    def __init__(self, point: int, trace: Path) -> None:
        self._left, self._trace = point, trace.open("a", buffering=1)

    def point(self, label: str) -> None:
        self._trace.write(label + "\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Fused:
    """An object whose every public call has a point before and after it; transactions have more inside."""

    def __init__(self, real: Any, name: str, fuse: Fuse) -> None:
        self._real, self._name, self._fuse = real, name, fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value
        label = f"{self._name}.{name}"
        if name == "writing":
            return self._writing
        if name == "reading" or inspect.isgeneratorfunction(value):
            return value

        def called(*args: Any, **kwargs: Any) -> Any:
            self._fuse.point(f"before {label}")
            result = value(*args, **kwargs)
            self._fuse.point(f"after {label}")
            return result

        return called

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        self._fuse.point("before transaction")
        with self._real.writing() as tx:
            yield Fused(tx, "tx", self._fuse)
            self._fuse.point("before commit")
        self._fuse.point("after commit")


class FusedBroker(Broker):
    """A broker all of whose parts that touch the world are fused."""

    def __init__(self, settings: Settings, fuse: Fuse) -> None:
        from cli import registries

        super().__init__(settings, registries())
        self._fuse = fuse
        self.__dict__["store"] = Fused(Broker.store.func(self), "store", fuse)  # type: ignore[attr-defined]

    def engine(self, name: str) -> Any:
        return Fused(super().engine(name), name, self._fuse)


def main(home: Path, job_file: Path, point: int, trace: Path) -> None:
    fuse = Fuse(point, trace)
    settings = Settings(
        home=home,
        store=f"sqlite:///{home / 'store.db'}",
        runs=(home / "runs").as_uri(),
        policy="",
        providers={"sandbox": {"scenario": "demo", "seed": 7}},
        reconcile_every=0.05,
        settle_every=60,
    )
    broker = FusedBroker(settings, fuse)
    real_folders: Callable[[Broker], Any] = launching.run_folders
    launching.run_folders = lambda made_for: Fused(real_folders(made_for), "folders", fuse)  # type: ignore[assignment]
    if broker.store.setting("clock") is None and "sandbox" in job_file.name:
        broker.set_clock(3600.0, datetime.now(UTC))
    with broker.store.reading() as look:
        known = look.jobs(limit=1)
    if not known:
        submit(broker, read_job(job_file, broker.clock.now()))
    background.run(broker)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
