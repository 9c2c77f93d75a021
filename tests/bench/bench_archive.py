"""Moving the events of old jobs to the archive: CPU seconds, sizes, and reading one job's events back.
Run: python -m tests.bench.bench_archive [JOBS]

Not part of `make bench`: filling a store takes a while.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from broker.app.jobs import jobs
from broker.app.jobs.past_events import story
from broker.app.service.archiving import archive_history
from broker.app.wiring import Broker
from broker.core.values.clock import ManualClock
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS, ROOT, with_clock
from tests.past import analyse, fill

JOBS = 20_000
NOW = datetime.now(UTC).replace(microsecond=0)
KEEP = timedelta(days=120)
_Found = TypeVar("_Found")


def timed(what: str, call: Callable[[], _Found]) -> _Found:
    began = time.process_time()
    found = call()
    print(f"{what:<52} {time.process_time() - began:8.3f} s CPU", flush=True)
    return found


def main(number: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        settings = Settings(home=home, store=f"sqlite:///{home / 'store.db'}", runs=(home / "runs").as_uri())
        clock = ManualClock(NOW)
        broker = with_clock(Broker(settings, registries(), EVERYBODYS), clock)
        fill(broker.store, NOW, closed=number)
        analyse(broker.store)
        broker.store.compact()
        before = Path(broker.store.where).stat().st_size
        done = timed(f"{number:,} closed jobs: events archived", lambda: archive_history(
            broker, keep_events=KEEP, by=ROOT
        ))  # fmt: skip
        again = timed("once more: nothing is due", lambda: archive_history(broker, keep_events=KEEP, by=ROOT))
        files = broker.store.archive.files()
        after = timed("the store compacted", broker.store.compact).after
        rows, size = sum(file.rows for file in files), sum(file.size for file in files)
        print(f"{done.events:,} events of {done.jobs:,} jobs in {len(files)} files; {again.events} left")
        print(f"store {before / 1e6:,.1f} MB, then {after / 1e6:,.1f} MB; archive {size / 1e6:.1f} MB, {rows:,} rows")
        with broker.store.reading() as look:
            oldest = next(iter(look.submitted_before(NOW - 2 * KEEP)))
        view = jobs.find(broker, oldest.id)
        found = timed("the events of one archived job", lambda: story(broker, view))
        assert len(found.events) == view.seq, found.missing


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else JOBS)
