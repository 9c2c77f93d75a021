"""What the agent tells of the use of its machine: from the kernel's files, and as an event of a real agent."""

from pathlib import Path

import pytest

from broker.agent import usage
from broker.agent.usage import Usage
from broker.core.events.agent_events import ResourcesUsed
from tests.agent.node import Node

GPU = {"utilisation": 40.0, "memory_used": 9 * 1024.0, "power": 300.0}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 4 processors, two of which are the job's."""
    monkeypatch.setattr(usage, "_own_processors", lambda: {0, 1})
    for folder in ("proc/net", "sys/fs/cgroup"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


class Kernel:
    """``at``: seconds; ``busy`` and ``waiting``: seconds of each of the job's processors so far."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch

    def tells(self, at: float, busy: float, waiting: float = 0, read: int = 0, received: int = 0) -> None:
        self.monkeypatch.setattr("time.monotonic", lambda: at)
        ticks, proc = usage._TICKS, self.root / "proc"
        row = f"{busy * ticks:.0f} 0 0 7 {waiting * ticks:.0f} 0 0 0 0 0"
        proc.joinpath("stat").write_text(f"cpu 9 9 9\ncpu0 {row}\ncpu1 {row}\ncpu2 {10**9} 0 0 0 0 0 0 0 0 0\nintr 7\n")
        proc.joinpath("vmstat").write_text(f"nr_free 1\npgpgin {read}\n")
        proc.joinpath("net/dev").write_text(f"a\nb\n lo: 999999 1\n eth0: {received} 1\n eth1: 0 1\n")
        proc.joinpath("meminfo").write_text(f"MemTotal: {64 * 2**20} kB\nMemAvailable: {40 * 2**20} kB\n")


@pytest.fixture
def kernel(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(machine, monkeypatch)


def test_figures_are_those_of_the_jobs_processors_between_the_samples(kernel: Kernel) -> None:
    use = Usage(kernel.root)
    for at, busy, waiting in ((100, 0, 0), (110, 5, 0), (120, 15, 0), (130, 16, 4)):
        kernel.tells(at, busy, waiting, read=at * 1000, received=at * 3_000_000)
        use.add_sample([GPU, {**GPU, "memory_used": 1024.0}])
    figures = {name: (one["mean"], one["peak"]) for name, one in use.take().items()}
    assert figures == {
        "memory": (24, 24), "cpu": (pytest.approx(53.333, abs=0.01), 100), "disk_read": (1.024, 1.024),
        "network": (3, 3), "gpu": (40, 40), "gpu_idle": (0, 0), "gpu_memory": (9, 9), "power": (600, 600),
        "gpu_waits_cpu": (20, 60), "gpu_waits_disk": (20, 60),
    }  # fmt: skip
    assert use.take() == {}, "each sample is told once"


def test_limits_of_the_control_group_are_those_of_the_job(kernel: Kernel) -> None:
    use, group = Usage(kernel.root), kernel.root / "sys/fs/cgroup"
    group.joinpath("cpu.max").write_text("400000 100000\n")
    group.joinpath("memory.max").write_text("9999\n")
    group.joinpath("memory.stat").write_text(f"anon {2**31}\nfile {2**35}\nshmem {2**30}\n")
    for at in (100, 110, 120):
        kernel.tells(at, 0)
        group.joinpath("cpu.stat").write_text(f"usage_usec {at * 2_000_000}\n")
        use.add_sample([])
    figures = use.take()
    assert figures["cpu"] == {"samples": 2, "mean": 50, "peak": 50}
    assert figures["memory"]["peak"] == 3


def test_without_the_kernels_files_accelerators_are_told(tmp_path: Path) -> None:
    use = Usage(tmp_path)
    for _ in range(2):
        use.add_sample([{"utilisation": 1.0}])
    assert use.take().keys() == {"gpu", "gpu_idle"}


def test_an_agent_tells_the_use_of_its_machine_once_at_the_end(node: Node) -> None:
    assert node.run("sleep 0.5", intervals={"metrics": 0.05}) == 0
    (told,) = [body for body in node.events() if isinstance(body, ResourcesUsed)]
    assert {"memory", "cpu"} <= told.figures.keys()
    assert 0 < told.figures["memory"].mean <= told.figures["memory"].peak


def test_a_short_attempt_tells_nothing(node: Node) -> None:
    assert node.run("true") == 0
    assert not [body for body in node.events() if isinstance(body, ResourcesUsed)]
