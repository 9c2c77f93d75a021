"""`gpubroker logs --follow` while the job runs: on this machine, in the sandbox, and on a real Slurm."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.program import eventually, run, start
from tests.slurm_cluster import missing, own_cluster

pytestmark = pytest.mark.system

PATIENCE = 120.0
SCENARIO = """
name = "quick"
boot_seconds = [1, 2]
[behaviours.steady]
machines = [8, 8]
[[zones]]
name = "sandbox-a"
region = "sandbox-region"
spot = "steady"
on_demand = "steady"
[[machines]]
instance_type = "sandbox-cpu"
cpus = 2
memory_gib = 4
on_demand = "1.00"
spot = "0.30"
"""


class Following:
    """A `logs --follow` under way, and the lines it has printed so far."""

    def __init__(self, job: str, home: Path, settings: Mapping[str, str]) -> None:
        self.process = start("logs", job, "--follow", home=home, env=settings)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def has_begun(self) -> bool:
        return self.lines == ["one"]

    def end(self) -> int:
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status


@contextmanager
def slurm() -> Iterator[Mapping[str, str]]:
    """A cluster, as settings; nothing where it cannot be had."""
    if missing():
        yield {}
        return
    with own_cluster() as cluster:
        yield {"GPUBROKER_PROVIDERS__SLURM__PARTITIONS": "gpu", **cluster.environment}


def test_lines_come_while_the_job_runs(tmp_path: Path) -> None:
    """The first line is there while the job runs, the second after it was let go on; then the end."""
    home, go, scenario = tmp_path / "home", tmp_path / "go", tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    script = f"echo one; while [ ! -e '{go}' ]; do sleep 0.1; done; echo two; printf three"
    with slurm() as cluster:
        settings = {"GPUBROKER_PROVIDERS__SANDBOX__SCENARIO": str(scenario), **cluster}
        jobs = ["owned", "sandbox", *(["slurm"] if cluster else [])]
        for provider in jobs:
            job = tmp_path / f"{provider}.yaml"
            job.write_text(f"name: on-{provider}\nconstraints: {{providers: [{provider}]}}\nrun: |\n  {script}\n")
            done = run("submit", str(job), "--yes", "--detach", home=home, timeout=PATIENCE, env=settings)
            assert done.returncode == 0, done.stderr
        following = [Following(f"on-{provider}", home, settings) for provider in jobs]
        for one in following:
            eventually(one.has_begun, "the first line comes", PATIENCE)
            assert one.process.poll() is None
        go.touch()
        assert [one.end() for one in following] == [0] * len(jobs)
        assert [one.lines for one in following] == [["one", "two", "three"]] * len(jobs)
        tail = run("logs", "on-owned", "--follow", "--tail", "1", home=home, timeout=PATIENCE, env=settings)
        assert (tail.returncode, tail.stdout) == (0, "three\n")
