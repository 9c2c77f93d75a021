"""What reports cost over a ledger of a million entries within sixty days, and the export of a million rows as FOCUS.
Run: python -m tests.bench.bench_reports [--entries 1000000] [--database postgresql] [--folder FOLDER]

Not part of `make bench`: filling a store takes minutes. A month of this ledger has half of the entries. Each figure is
the best of two calls; the machine's own time is CPU seconds of this process and of the database's server, so that other
work on the machine does not count.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from broker.app.billing import anomalies, budgets, charges, focus, report, review, showback, units
from broker.app.wiring import Broker
from broker.core.values.clock import ManualClock
from broker.finops.showback import SharingRules
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS, with_clock
from tests.bench.bench_admission import DatabaseProcesses
from tests.bench.bench_million import POLICY, database
from tests.past import analyse, fill

ENTRIES = 1_000_000
PER_JOB = 8
DAYS = 60
AT_MOST = {"sqlite": 5.0, "postgresql": 2.0}
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
"""The months before it are full."""
MONTH = "2026-10"


def reports(broker: Broker) -> dict[str, Callable[[], object]]:
    """Each report by the command that prints it."""
    start, end = report.named_period(MONTH, NOW)
    return {
        "spend --by team": lambda: (
            report.spend(broker, "team", since=start, until=end),
            report.bought_in_advance(broker, since=start, until=end),
        ),
        "spend --by team,user,month": lambda: report.spend(broker, "team,user,month"),
        "spend --by provider": lambda: report.spend(broker, "provider"),
        "units": lambda: units.units(broker, MONTH),
        "showback": lambda: showback.shown(broker, MONTH, SharingRules()),
        "review": lambda: review.review(broker, MONTH),
        "anomalies": lambda: anomalies.spending_anomalies(broker),
        "billed": lambda: charges.billed(broker, start, end),
        "budget list": lambda: budgets.budgets(broker),
        "budget show": lambda: [budgets.spent_on_own(broker, line) for line in budgets.budgets(broker)],
    }


def main(entries: int, kind: str, folder: Path | None) -> None:
    gc.set_threshold(100_000, 20, 20)  # as the program itself does
    slow: list[str] = []
    with tempfile.TemporaryDirectory(dir=folder) as name, database(kind, Path(name)) as url:
        home = Path(name)
        broker = Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
        broker = with_clock(broker, ManualClock(NOW))
        broker.store.activate_policy({"million.yaml": POLICY}, by="bench")
        began = time.perf_counter()
        fill(broker.store, NOW, closed=entries // PER_JOB, days=DAYS)
        if kind != "sqlite":
            analyse(broker.store)
        print(f"{kind}: {entries:,} entries made in {time.perf_counter() - began:.0f} s", flush=True)
        server = DatabaseProcesses(broker)
        for what, call in reports(broker).items():
            figures = []
            for _ in range(2):
                wall, served, cpu = time.perf_counter(), server.seconds, time.process_time()
                call()
                cpu, served = time.process_time() - cpu, server.seconds - served
                figures.append((cpu + served, cpu, served, time.perf_counter() - wall))
            used, cpu, served, wall = min(figures)
            if used > AT_MOST[kind]:
                slow.append(what)
            told = f"{cpu:6.2f} s CPU {served:6.2f} s of the server {wall:6.2f} s by the clock"
            print(f"{what:<30} {told}  (at most {AT_MOST[kind]:g} s)", flush=True)
        export(broker, server, home)
        broker.store.close()
    if slow:
        raise SystemExit(f"too slow: {', '.join(slow)}")


def export(broker: Broker, server: DatabaseProcesses, home: Path) -> None:
    """Both months as FOCUS."""
    for ending in (".csv", ".parquet"):
        wall, served, cpu, rows = time.perf_counter(), server.seconds, time.process_time(), 0
        for month in ("2026-09", MONTH):
            rows += focus.export(broker, "1.2", month, home / f"{month}{ending}").rows
        cpu, served, wall = time.process_time() - cpu, server.seconds - served, time.perf_counter() - wall
        used = f"{cpu:6.2f} s CPU {served:6.2f} s of the server {wall:6.2f} s by the clock"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"focus {ending:<24} {used}, {rows:,} rows, peak of the process so far {peak:,.0f} MiB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made, and deleted afterwards")
    asked = parser.parse_args()
    main(asked.entries, asked.database, asked.folder)
