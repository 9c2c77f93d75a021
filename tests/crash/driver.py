"""A broker that kills itself with SIGKILL at a chosen point at which it touches the world. Run as a program:

    python -m tests.crash.driver

reads one `BrokerLife` a line from its input, forks a process that lives it, and answers with that process's exit
status. (Forked, because importing everything anew would be most of the work of some hundreds of lives. The parent has
no threads, no store and no connections to pass on.)

A life submits the job (unless the store has one) and reconciles until nothing is left to do. Points stand before and
after every write and commit of any database, and every call of an engine or of a run folder. They are found by
listening to the database and wrapping the objects, not by listing methods, so a call that is added later has its
points, too. A point's name says what is written and how often that was done before: ``before commit of hold, submitted
#1``. Each is written to the life's trace first.
"""

import inspect
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from broker.agent.formats import Intervals
from broker.app.jobs.job_input import read_job
from broker.app.jobs.submit import submit
from broker.app.runs_root import attempt_keys
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoveAdvantage, MovesElsewhere
from broker.engines.runfolder.run_folders import RunFolders
from broker.reconciler.controllers.strategy_advice import Moving
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS

# Agents look often, so that a life takes seconds.
BRISK = Intervals(scan=0.05, mail=0.1, log=1.0, metrics=60.0, notice=1.0, patience=30.0)
# An hour of the sandbox in six seconds.
SPEED = 600.0


@dataclass(frozen=True)
class BrokerLife:
    """One life of a broker: where, what it submits, and the point at which it dies ("": none). ``pace``: 1.0, or that
    of a sandbox that runs faster. ``moves``: the job moves once, to a machine that is started beside."""

    home: str
    job: str
    dies_at: str
    trace: str
    pace: float = 1.0
    moves: bool = False

    @property
    def log(self) -> Path:
        return Path(self.trace).with_suffix(".log")


class Fuse:
    """Names points, and burns through at one of them."""

    def __init__(self, dies_at: str, trace: Path) -> None:
        self._dies_at, self._trace, self._seen = dies_at, trace.open("a", buffering=1), Counter[str]()

    def point(self, label: str) -> None:
        self._seen[label] += 1
        name = f"{label} #{self._seen[label]}"
        self._trace.write(name + "\n")
        if name == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Fused:
    """An object whose every public call has a point before and after it."""

    def __init__(self, real: Any, name: str, fuse: Fuse) -> None:
        self._real, self._name, self._fuse = real, name, fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value) or inspect.isgeneratorfunction(value):
            return value
        label = f"{self._name}.{name}"

        def called(*args: Any, **kwargs: Any) -> Any:
            self._fuse.point(f"before {label}")
            result = value(*args, **kwargs)
            self._fuse.point(f"after {label}")
            return result

        return called


def fuse_databases(fuse: Fuse) -> None:
    """Points around every statement that changes something and every commit of one, whichever database it is."""
    written: list[str] = []

    def labels_of(statement: str, context: Any) -> list[str]:
        """One, or one for each kind of event: which news arrive together, differs from life to life."""
        words = statement.split()
        if words[0].upper() not in ("INSERT", "UPDATE", "DELETE", "REPLACE"):
            return []
        table = next(word for word in words[1:] if word.upper() not in ("INTO", "FROM", "OR", "IGNORE", "REPLACE"))
        rows = context.compiled_parameters if context is not None and context.compiled else []
        kinds = dict.fromkeys(row[key] for row in rows for key in ("movement", "kind") if row.get(key))
        if table == "attempt_event" and kinds:
            return [f"{words[0].lower()} {table} {kind}" for kind in kinds]
        return [" ".join([words[0].lower(), table, *map(str, kinds)])]

    @event.listens_for(Engine, "before_cursor_execute")
    def before(_c: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        for label in labels_of(statement, context):
            fuse.point(f"before {label}")

    @event.listens_for(Engine, "after_cursor_execute")
    def after(_c: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        for label in labels_of(statement, context):
            written.append(label)
            fuse.point(f"after {label}")

    @event.listens_for(Engine, "rollback")
    def rolled_back(_c: Any) -> None:
        written.clear()

    real = DefaultDialect.do_commit

    def commit(dialect: Any, connection: Any) -> None:
        what = ", ".join(dict.fromkeys(written))
        written.clear()
        if what:
            fuse.point(f"before commit of {what}")
        real(dialect, connection)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
        if what:
            fuse.point(f"after commit of {what}")

    DefaultDialect.do_commit = commit  # type: ignore[method-assign]  # a fault is put in


class FusedBroker(Broker):
    """A broker whose engines are fused."""

    def __init__(self, settings: Settings, fuse: Fuse) -> None:
        super().__init__(settings, registries(), EVERYBODYS)
        self._fuse = fuse

    def engine(self, name: str) -> Any:
        return Fused(super().engine(name), name, self._fuse)


def settings_in(home: Path) -> Settings:
    """The settings of every broker over the store in ``home``."""
    return Settings(
        home=home,
        store=f"sqlite:///{home / 'store.db'}",
        runs=(home / "runs").as_uri(),
        policy="",
        providers={"sandbox": {"scenario": "demo", "seed": 7}},
        reconcile_every=0.02,
        settle_every=60,
    )


class OneMove:
    """A strategy that moves the first attempt once it has saved, beside, to a machine of the same kind."""

    def __init__(self, history: object) -> None:
        """It needs none."""

    def place(self, view: JobView, plans: object, now: datetime) -> None:
        """By the plan."""

    def moves(self, view: JobView, plans: object, now: datetime) -> MovesElsewhere | None:
        latest = view.latest
        if latest is None or latest.number > 1 or view.checkpoint is None:
            return None
        pool = latest.placement.offer.pool
        return MovesElsewhere(advantage=MoveAdvantage.STRATEGY, to=None, pool=pool, beside=True)

    def forget(self, job_id: str) -> None:
        """Nothing is remembered."""


def live(life: BrokerLife) -> None:
    """In this process, which may die of it."""
    fuse = Fuse(life.dies_at, Path(life.trace))
    broker = FusedBroker(settings_in(Path(life.home)), fuse)
    folders: Callable[[Broker], Any] = lambda made_for: Fused(  # noqa: E731  # one expression, used once
        RunFolders(made_for.settings.runs_url, made_for.clock, BRISK, attempt_keys(made_for)),
        "folders",
        fuse,
    )
    vars(passes)["run_folders"] = folders  # a fault is put in
    if life.moves:
        vars(passes)["Strategist"] = OneMove
        vars(passes)["Moving"] = partial(Moving, every=timedelta(seconds=0.2))
    assert broker.store is not None  # opened and up to date: only what the job causes is to be hit
    fuse_databases(fuse)
    if life.pace != 1.0 and broker.store.setting("clock") is None:
        broker.set_clock(life.pace, datetime.now(UTC))
    with broker.store.reading() as look:
        known = look.jobs(limit=1)
    if not known:
        submit(broker, read_job(Path(life.job), broker.clock.now()), by=ANN)
    passes.run(broker)


def _forked(life: BrokerLife) -> int:
    """Live it in a child; the child's exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        log = os.open(life.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        live(life)
        status = 0
    except BaseException:  # noqa: BLE001  # told to whoever asked for this life, through its log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ask(life: BrokerLife) -> str:
    return json.dumps(asdict(life)) + "\n"


if __name__ == "__main__":
    for line in sys.stdin:
        print(_forked(BrokerLife(**json.loads(line))), flush=True)
