"""A month of a million charges as FOCUS, and a provider's file larger than the memory that may be used.
Run: python -m tests.bench.bench_focus [--rows 1000000] [--times 3] [--folder FOLDER]

Not part of `make bench`: filling a store takes minutes. Each command is a process of its own, whose figures are the
operating system's. An export may take 60 s and 300 MB. The file that is compared has the rows of the first export so
many times; the process that reads it may not have `MEMORY` of address space, less than the file is large.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.values.clock import ManualClock
from broker.reconciler.settlement.batch import post_due
from broker.reconciler.settlement.settlement import release
from broker.store import Store
from broker.store.store import open_store
from tests.past import multiply, started

ROWS = 1_000_000
MONTH = "2026-10"
LAST_DAY = datetime(2026, 10, 31, tzinfo=UTC)
DAYS, TEMPLATES, SETTLED = 30, 20, 20
SECONDS, MIB = 60.0, 300
MEMORY = 1024  # MiB of address space
_STEP = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class CommandFigures:
    """A process: seconds by the clock and of the processor, peak memory in MiB, and the document that it printed."""

    wall: float
    cpu: float
    peak: float
    document: Any


def main(rows: int, times: int, folder: Path | None) -> None:
    slow: list[str] = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        home = Path(name)
        began = time.perf_counter()
        # By a process of its own: what a process has used counts as its children's, too.
        filling = get_context("spawn").Process(target=filled, args=(f"sqlite:///{home / 'store.db'}", rows))
        filling.start()
        filling.join()
        if filling.exitcode:
            raise SystemExit("the store could not be filled")
        print(f"a ledger with {rows:,} charges in {MONTH}, made in {time.perf_counter() - began:.0f} s", flush=True)
        for version in ("1.2", "1.4"):
            for ending in (".csv", ".parquet"):
                out = home / f"{version}{ending}"
                done = command(home, "report", "focus", "--version", version, "--month", MONTH, "--out", str(out))
                size = out.stat().st_size / 2**20
                what = f"{version} {ending}: {done.document['rows']:,} rows, {size:,.0f} MiB"
                told(what, done, f"at most {SECONDS:g} s, {MIB} MiB")
                if done.document["rows"] < rows or min(done.wall, done.cpu) > SECONDS or done.peak > MIB:
                    slow.append(what)
        large = repeated(home / "1.2.csv", home / "large.csv", times)
        size = large.stat().st_size / 2**20
        done = command(home, "report", "billed", "--focus", str(large), memory=MEMORY)
        told(f"billed --focus: {times * rows:,} rows, {size:,.0f} MiB", done, f"within {MEMORY:,} MiB")
        total = done.document["total"]
        print(f"{total['attempts']:,} attempts, metered {total['metered']}, billed {total['billed']}")
    if slow:
        raise SystemExit(f"too slow or too large: {', '.join(slow)}")


def filled(url: str, rows: int) -> None:
    """A store with so many settlements in the month, of jobs that were settled twenty times each."""
    with closing(open_store(url, clock=ManualClock(LAST_DAY + DAYS * timedelta(days=1)))) as store:
        ids = [_settled_often(store, number) for number in range(TEMPLATES)]
        multiply(store, ids, -(-rows // (TEMPLATES * SETTLED)) - 1, DAYS)


def _settled_often(store: Store, number: int) -> str:
    """A job whose machine is up for `SETTLED` steps and settled after each."""
    job_id = started(store, number, LAST_DAY + timedelta(hours=1), of="past")
    up = LAST_DAY + timedelta(hours=1, minutes=10)
    for step in range(1, SETTLED + 1):
        now = up + step * _STEP
        with store.writing() as tx:
            view = tx.job(job_id)
            if step == SETTLED:
                view = tx.append(
                    job_id, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=now))], now
                )
            assert view is not None
            post_due(tx, [view], now)
            if step == SETTLED:
                tx.post(release(view, tx.sums([job_id])[job_id], now))
                tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], now)
    return job_id


def repeated(file: Path, out: Path, times: int) -> Path:
    """The file's rows so many times below its header."""
    with file.open("rb") as source, out.open("wb") as target:
        target.write(source.readline())
        begins = source.tell()
        for _ in range(times):
            source.seek(begins)
            shutil.copyfileobj(source, target, 1 << 20)
    return out


def command(home: Path, *words: str, memory: int | None = None) -> CommandFigures:
    """Run `gpubroker` with this home; ``memory``: the most address space, in MiB."""
    environment = {**os.environ, "GPUBROKER_HOME": str(home), "GPUBROKER_STORE": f"sqlite:///{home / 'store.db'}"}

    def limited() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))

    answer = home / "answer.json"
    began = time.perf_counter()
    with answer.open("wb") as out:
        program = subprocess.Popen(
            [sys.executable, "-m", "cli", *words, "--json"], stdout=out, env=environment, preexec_fn=limited
        )
        _, status, used = os.wait4(program.pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"gpubroker {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return CommandFigures(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, json.loads(answer.read_text()))


def told(what: str, done: CommandFigures, limit: str) -> None:
    print(f"{what:<60} {done.wall:6.1f} s ({done.cpu:.1f} s CPU), peak {done.peak:,.0f} MiB  ({limit})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--times", type=int, default=3, help="how often the compared file has the rows")
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made, and deleted afterwards")
    asked = parser.parse_args()
    main(asked.rows, asked.times, asked.folder)
