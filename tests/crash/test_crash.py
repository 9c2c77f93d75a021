"""The broker is killed with SIGKILL before and after everything it does; started again, everything is right.

Right means: the job succeeded, one gang ran per attempt and no attempt more than there had to be, each is billed for
its machine's time and no more, nothing is held, the ledger balances, what people see equals what the events say, and
no machine and no process is left.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause, JobState
from broker.core.ports import EngineState
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from cli import registries
from tests.actors import EVERYBODYS
from tests.billing import metered
from tests.counts import part
from tests.crash.conftest import Drive
from tests.crash.driver import Fused, settings_in

# How many points of each engine's life the full runs of twenty days try, each a twentieth. Every kind of point comes
# before any is repeated; how many kinds there are differs a little from life to life (`survive` says why).
POINTS = {"local": 126, "sandbox": 165, "handover": 165}
DAYS = 20
# How often what is done again at every look is worth being hit.
REPEATS = 3


def check(folder: Path, engine: str) -> None:
    broker = Broker(settings_in(folder / "home"), registries(), EVERYBODYS)
    with broker.store.reading() as look:
        (view,) = look.jobs()
        entries = look.entries()
        balances = look.balance(view.id).values()
        assert view.state is JobState.SUCCEEDED, view.ending
        assert view.closed
        assert faults(entries) == []
        assert all(balance.held == Money.ZERO and balance.balanced for balance in balances)
        for attempt in view.attempts:
            own = [e.amount for e in entries if e.account is Account.SPENT and e.tags.attempt == attempt.number]
            assert sum(own, Money.ZERO) == metered(attempt, datetime.now(UTC), look.price_series), attempt

    causes = [attempt.cause for attempt in view.attempts if attempt.cause is not Cause.PREEMPTED]
    if engine == "handover":
        assert causes == [Cause.MOVED, Cause.COMPLETED], causes
        counted = [int(number) for number in (folder / "marks.counted").read_text().split()]
        assert counted == list(range(1, len(counted) + 1)), "no step is lost"
        old, new = view.attempts
        assert new.ready_at is not None
        assert old.stop_requested_at is not None
        assert new.ready_at <= old.stop_requested_at, "the old one works until the new machine is ready"
    else:
        assert causes in ([Cause.EXIT_STATUS, Cause.COMPLETED], [Cause.COMPLETED]), causes
    if engine != "sandbox":  # where nobody takes machines back
        assert len(view.attempts) == 2
        assert view.attempts[1].resumed_from == view.attempts[0].checkpoints[-1].id

    ran = Counter((folder / "marks").read_text().split())
    assert {number: times for number, times in ran.items() if times > 1} == {}, "attempts that ran more than once"
    assert set(ran) <= {str(attempt.number) for attempt in view.attempts}
    for attempt in view.attempts:
        if attempt.handle is not None:
            seen = broker.engine(attempt.engine).observe([attempt.handle])[attempt.handle]
            assert seen.state in (EngineState.GONE, EngineState.LOST), seen
    assert left_running(folder) == []

    with broker.store.reading() as look:
        before = look.jobs(), look.balance(view.id)
    broker.store.rebuild()
    with broker.store.reading() as look:
        assert (look.jobs(), look.balance(view.id)) == before
    broker.store.close()


def left_running(folder: Path) -> list[str]:
    """Processes that have to do with the folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        try:
            about = [*(process.info["cmdline"] or []), *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(folder) in text for text in about) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def points_of(drive: Drive, engine: str, shared: Path) -> list[str]:
    """The points of a life without a crash, first those that were passed first, then those passed a second time, and
    so on. Lived once for all who ask."""
    kept = shared / f"points-{engine}"
    with FileLock(f"{kept}.lock"):
        if not kept.exists():
            folder = shared / f"life-{engine}"
            folder.mkdir(exist_ok=True)
            status, trace = drive(folder, engine, "")
            assert status == 0
            check(folder, engine)
            often = [(int(name.rpartition("#")[2]), name) for name in trace]
            ordered = sorted((place for place in often if place[0] <= REPEATS), key=lambda place: place[0])
            kept.write_text("\n".join(name for _, name in ordered))
    return kept.read_text().splitlines()


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all the processes of a run."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def worker_id(request: pytest.FixtureRequest) -> str:
    """Also known where tests are not run in parallel."""
    return str(getattr(request.config, "workerinput", {}).get("workerid", "master"))


def survive(drive: Drive, folder: Path, engine: str, point: str) -> bool:
    """Die at ``point``, live again, and be right. False when that life never came to the point, and was right.

    What always happens always has its points; but which of the agent's news arrive together, and with them what a
    commit is called, is different in each life.
    """
    folder.mkdir(exist_ok=True)
    status, trace = drive(folder, engine, point)
    if status:
        assert trace[-1] == point
        again, _ = drive(folder, engine, "")
        assert again == 0
    check(folder, engine)
    return status != 0


@pytest.mark.system
@pytest.mark.parametrize("engine", POINTS)
def test_every_kind_of_point_is_tried(drive: Drive, shared: Path, engine: str) -> None:
    """A life without a crash is right, and whatever it does is done for the first time within the points."""
    points = points_of(drive, engine, shared)
    kinds = [name for name in points if name.endswith("#1")]
    assert len(kinds) <= POINTS[engine] <= len(points), "POINTS must cover all kinds, and there must be as many"
    for expected in (f"{'sandbox' if engine == 'sandbox' else 'local'}.submit #1", "folders.prepare #1"):
        assert {f"before {expected}", f"after {expected}"} <= set(kinds)
    closing = [kind for kind in kinds if "insert attempt_event" in kind and "job_closed" in kind]
    assert {kind.partition(" ")[0] for kind in closing} == {"before", "after"}, "alone or with the end of the attempt"
    if engine == "sandbox":  # this machine costs nothing
        assert "after insert ledger_entry settle #1" in kinds


def test_a_new_call_has_its_points_without_being_listed() -> None:
    class Grown:
        name = "grown"

        def call_of_tomorrow(self, what: str) -> str:
            passed.append("called")
            return what

    class Recorder:
        def point(self, label: str) -> None:
            passed.append(label)

    passed: list[str] = []
    fused = Fused(Grown(), "engine", Recorder())  # type: ignore[arg-type]  # its engine part alone
    assert (fused.call_of_tomorrow("x"), fused.name) == ("x", "grown")
    assert passed == ["before engine.call_of_tomorrow", "called", "after engine.call_of_tomorrow"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("engine", "number"), [(engine, n) for engine, count in POINTS.items() for n in range(count // DAYS + 1)]
)
def test_every_crash_point(drive: Drive, tmp_path: Path, shared: Path, engine: str, number: int) -> None:
    points = points_of(drive, engine, shared)
    point = points[(DAYS * number + part(DAYS)) % len(points)]
    if not survive(drive, tmp_path / "first", engine, point):
        survive(drive, tmp_path / "second", engine, point)
