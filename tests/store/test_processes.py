"""Several real processes over one store."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from broker.core.events.events import CancelRequested, Submitted
from broker.core.job.jobs import Job
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
START = f"""
import sys, time
from datetime import UTC, datetime
from broker.core.values.clock import SystemClock
from broker.core.events.events import CancelRequested, Submitted
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Movement, Tags, move
from broker.store import open_store
NOW = datetime.fromisoformat({NOW.isoformat()!r})
me, url = sys.argv[1:]
submitted = Submitted(job=Job(name="llama", run="true"), user="ada", max_duration_seconds=1.0)
print("ready", flush=True)
sys.stdin.readline()
store = open_store(url, clock=SystemClock())
"""


def start(program: str, me: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + program, me, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.system
def test_processes_that_start_at_once_make_one_store_and_lose_nothing(url: str, clock: ManualClock) -> None:
    program = """
for number in range(5):
    with store.writing() as journal:
        journal.append(f"own-{me}-{number}", [(None, submitted)], NOW)
    with store.writing() as journal:
        first = [] if journal.job("shared") else [(None, submitted)]
        journal.append("shared", [*first, (None, CancelRequested(by=me))], NOW)
"""
    processes = [start(program, str(number), url) for number in range(3)]
    assert [line(process) for process in processes] == ["ready"] * 3
    for process in processes:
        go(process)
    assert [process.wait(240) for process in processes] == [0, 0, 0]
    store = open_store(url, clock=clock)
    with store.reading() as journal:
        assert len(journal.jobs()) == 3 * 5 + 1
        events = journal.events("shared")
    assert [event.seq for event in events] == list(range(1, 17))
    assert sorted(e.body.by for e in events if isinstance(e.body, CancelRequested)) == sorted("012" * 5)
    store.close()


@pytest.mark.system
def test_a_writer_killed_in_its_transaction_leaves_nothing_and_blocks_nobody(store: Store, url: str) -> None:
    program = """
with store.writing() as journal:
    journal.append("j1", [(None, submitted)], NOW)
    journal.post(move(Movement.HOLD, Money(5), movement_id="m", money=MoneyKind.CASH, at=NOW,
                      covers=(NOW, NOW), tags=Tags("j1", "ada")))
    print("inside", flush=True)
    sys.stdin.readline()
"""
    process = start(program, "victim", url)
    go(process)
    assert [line(process), line(process)] == ["ready", "inside"]
    with store.reading() as journal:
        assert journal.jobs() == []  # not committed, not seen
    process.kill()
    process.wait(240)
    with store.writing() as journal:
        assert journal.jobs() == []
        assert journal.entries() == []
        journal.append(
            "j1", [(None, Submitted(job=Job(name="b", run="true"), user="bob", max_duration_seconds=1))], NOW
        )
    with store.reading() as journal:
        assert [view.user for view in journal.jobs()] == ["bob"]


def test_threads_of_one_process_take_turns(store: Store) -> None:
    with store.writing() as journal:
        journal.append("j1", [(None, Submitted(job=Job(name="b", run="x"), user="bob", max_duration_seconds=1))], NOW)

    def cancel(number: int) -> None:
        with store.writing() as journal:
            journal.append("j1", [(None, CancelRequested(by=str(number)))], NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cancel, range(24)))
    with store.reading() as look:
        events = look.events("j1")
    assert [event.seq for event in events] == list(range(1, 26))
    assert len({e.body.by for e in events[1:] if isinstance(e.body, CancelRequested)}) == 24


def test_a_reader_keeps_its_look_while_others_write(store: Store) -> None:
    with store.reading() as journal:
        assert journal.jobs() == []
        with store.writing() as other:
            other.append("j1", [(None, Submitted(job=Job(name="b", run="x"), user="bob", max_duration_seconds=1))], NOW)
        assert journal.jobs() == []
    with store.reading() as journal:
        assert len(journal.jobs()) == 1
