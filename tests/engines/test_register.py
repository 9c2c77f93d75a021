"""What of a machine is given to jobs, over all brokers on it."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import RetryLater
from broker.core.market.shares import MachineShare, total
from broker.engines.register import AssignedPart, Inventory, MachineRegister

GIB = 1024
WHOLE = MachineShare(4000, 8 * GIB, (("H100", 2),))
THERE = Inventory(WHOLE, (0, 1, 2, 3), (0, 1))
ONE_GPU = MachineShare(1000, GIB, (("H100", 1),))


@contextmanager
def held(
    folder: Path, name: str, share: MachineShare, there: Inventory = THERE, *, free_cpus: bool = False
) -> Iterator[AssignedPart]:
    """Given, and held by a descriptor of its own as long as the context lasts, as a job's agent holds it."""
    with MachineRegister(folder).assign(name, share, there, "store", free_cpus=free_cpus) as (part, lock):
        mine = os.dup(lock)
    try:
        yield part
    finally:
        os.close(mine)


def given_of(folder: Path) -> dict[str, AssignedPart]:
    return MachineRegister(folder).given()


def test_each_gpu_is_given_once_and_the_next_waits(tmp_path: Path) -> None:
    with held(tmp_path / "r", "a", ONE_GPU) as a, held(tmp_path / "r", "b", ONE_GPU) as b:
        assert (a.gpus, b.gpus) == ((0,), (1,))
        assert set(a.cpus).isdisjoint(b.cpus)
        with pytest.raises(RetryLater, match=r"2 CPUs, 6 GiB, 0 GPUs free now, and the job needs 1 CPU, 1 GiB, 1 × H"):
            held(tmp_path / "r", "c", ONE_GPU).__enter__()
        assert set(given_of(tmp_path / "r")) == {"a", "b"}
    assert given_of(tmp_path / "r") == {}
    with held(tmp_path / "r", "c", ONE_GPU) as c:
        assert c.gpus == (0,)


def test_one_that_may_use_free_cpus_gets_them_and_keeps_its_share_alone(tmp_path: Path) -> None:
    small, three = MachineShare(1000, GIB), MachineShare(3000, GIB)
    with held(tmp_path, "a", small, free_cpus=True) as a, held(tmp_path, "b", small, free_cpus=True) as b:
        assert [len(part.cpus) for part in (a, b)] == [4, 3]
        with pytest.raises(RetryLater, match="2 CPUs"):
            held(tmp_path, "c", three).__enter__()
    with held(tmp_path, "c", three) as c, held(tmp_path, "d", small, free_cpus=True) as d:
        assert (c.cpus, d.cpus) == ((0, 1, 2), (3,))
        with pytest.raises(RetryLater):
            held(tmp_path, "e", small, free_cpus=True).__enter__()


@pytest.mark.parametrize("share", [MachineShare(4001, GIB), MachineShare(1000, 8 * GIB + 1)])
def test_what_is_more_than_there_is_is_never_given(tmp_path: Path, share: MachineShare) -> None:
    with pytest.raises(RetryLater, match="this machine has 4 CPUs, 8 GiB free now"):
        held(tmp_path / "r", "a", share).__enter__()


def test_what_nobody_took_over_is_free_again(tmp_path: Path) -> None:
    """The broker dies, or fails, before anything was started."""
    register = MachineRegister(tmp_path / "r")
    with pytest.raises(OSError, match="no fork"), register.assign("a", ONE_GPU, THERE, "s"):
        raise OSError("no fork")
    assert register.given() == {}


def test_jobs_of_other_users_can_be_read(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with held(tmp_path / "r", "a", ONE_GPU):
            modes = {path.name: path.stat().st_mode & 0o7777 for path in [tmp_path / "r", *(tmp_path / "r").iterdir()]}
    finally:
        os.umask(before)
    assert modes == {"r": 0o1777, "a.given": 0o644, "mutex": 0o644}


def test_files_of_others_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with held(folder, "a", ONE_GPU):
        (folder / "dead.given").write_text("{}")
        (folder / "link.given").symlink_to("/etc/passwd")
        os.mkfifo(folder / "pipe.given")
        with (folder / "odd.given").open("w") as odd:
            odd.write('{"share": {"milli_cpus": -5, "mib": 1, "gpus": {}}, "cpus": [], "gpus": [], "store": ""}')
            odd.flush()
            fcntl.flock(odd, fcntl.LOCK_EX)
            assert set(given_of(folder)) == {"a"}


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "r").symlink_to(tmp_path / "there")
    with pytest.raises(RetryLater, match="a link or a file") as refused:
        held(tmp_path / "r", "a", ONE_GPU).__enter__()
    assert "[engines.local] register" in (refused.value.hint or "")


def test_many_at_once_never_get_the_same(tmp_path: Path) -> None:
    """Each has a register of its own, as brokers of several users have."""
    with ExitStack() as stack:

        def take(number: int) -> AssignedPart | None:
            try:
                return stack.enter_context(held(tmp_path / "r", f"j{number}", ONE_GPU))
            except RetryLater:
                return None

        with ThreadPoolExecutor(8) as pool:
            found = [part for part in pool.map(take, range(24)) if part is not None]
        assert sorted(part.gpus for part in found) == [(0,), (1,)]


_TAKES = """
import sys, time
from pathlib import Path
from broker.core.errors import RetryLater
from broker.core.market.shares import MachineShare
from broker.engines.register import Inventory, MachineRegister
whole = MachineShare(4000, 8192, (("H100", 2),))
try:
    with MachineRegister(Path(sys.argv[1])).assign(
        sys.argv[2], MachineShare(1000, 1024, (("H100", 1),)), Inventory(whole, (0, 1, 2, 3), (0, 1)), "s"
    ) as (part, lock):
        import os
        os.dup(lock)
        print(part.gpus[0], flush=True)
except RetryLater:
    print("none", flush=True)
sys.stdin.read()
"""


@pytest.mark.system
def test_processes_that_race_get_each_gpu_once_and_sigkill_gives_it_back(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _TAKES, str(tmp_path / "r")]
    racing = [
        subprocess.Popen([*words, f"j{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(4)
    ]
    try:
        said = {one: (one.stdout.readline().strip() if one.stdout else "") for one in racing}
        assert sorted(said.values()) == ["0", "1", "none", "none"]
        killed = next(one for one, what in said.items() if what == "1")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert [part.gpus for part in given_of(tmp_path / "r").values()] == [(0,)]
        with held(tmp_path / "r", "next", ONE_GPU) as part:
            assert part.gpus == (1,)
    finally:
        for one in racing:
            one.kill()
            one.communicate()


@given(
    st.lists(
        st.tuples(st.integers(1, 6000), st.integers(1, 10 * GIB), st.integers(0, 3), st.none() | st.integers(0, 5)),
        max_size=12,
    )
)
def test_whatever_comes_and_goes_no_more_is_given_than_there_is(asked: list[tuple[int, int, int, int | None]]) -> None:
    with TemporaryDirectory() as name:
        folder, whole = Path(name) / "r", THERE.has
        running: list[ExitStack] = []
        for number, (cpus, mib, gpus, leaves) in enumerate(asked):
            if leaves is not None and running:
                running.pop(leaves % len(running)).close()
            share = MachineShare(cpus, mib, (("H100", gpus),) if gpus else ())
            before = total(part.share for part in given_of(folder).values())
            one = ExitStack()
            try:
                one.enter_context(held(folder, f"j{number}", share))
            except RetryLater:
                assert whole < before + share, "there was room"
            else:
                running.append(one)
            now = given_of(folder).values()
            assert whole >= total(part.share for part in now)
            numbers = [gpu for part in now for gpu in part.gpus]
            assert len(numbers) == len(set(numbers))
            assert all(len(part.gpus) == part.share.gpu_count for part in now)
        for one in running:
            one.close()
