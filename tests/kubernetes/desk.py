"""Somebody with a job for the cluster, and what is verified at its end."""

from __future__ import annotations

from pathlib import Path

from tests.cloud.desk import COUNT
from tests.kubernetes.cluster import GPUS
from tests.kubernetes.lab import PRICES, KubernetesLab
from tests.program import eventually
from tests.skypilot_desk import JOB, SkyDesk

_PACE = 0.5  # seconds a step
_EVERY = 3  # seconds between checkpoints
LOST_AT_MOST = 2 * int(_EVERY / _PACE)  # steps: an interval, and the time that a checkpoint takes to be kept
_POLICY = "version: 1\npolicy: lab\nbudgets: [{name: month, amount: $50, period: month}]\n"


class KubernetesDesk:
    """``folder``: its own, empty."""

    def __init__(self, lab: KubernetesLab, folder: Path) -> None:
        self.lab = lab
        self.sky = SkyDesk(folder, lab.environment)

    def submit(self, steps: int, gpus: int = GPUS) -> None:
        """Hand in a job that counts so many steps on a machine with so many GPUs."""
        script = "".join(f"  {line}\n" for line in COUNT.splitlines())
        job = (
            f"name: {JOB}\nresources: {{accelerators: 'H100:{gpus}', cpus: 1}}\nmax_duration: 1h\nwork: 30s\n"
            f"deadline: 2h\ncheckpoint: {{every: {_EVERY}s, size: 1KB, restart: 5s}}\n"
            f"retry: {{failures: 2, backoff: 0s}}\nconstraints: {{providers: [kubernetes]}}\n"
            f"envs: {{STEPS: '{steps}', PACE: '{_PACE}'}}\nrun: |\n{script}"
        )
        self.sky.submit(_POLICY, job)

    def node(self) -> str:
        """Where the job's pod is."""
        (pod,) = (one for one in self.lab.pods() if "deletionTimestamp" not in one["metadata"])
        return str(pod["spec"]["nodeName"])

    def verify_nothing_left(self) -> None:
        """No pod, no cluster, no hold, no process; every movement balances, and each attempt is billed right."""
        eventually(lambda: not self.lab.pods(), "no pod is left", 60)
        assert "No existing clusters" in self.lab.server.sky("status")
        self.sky.verify_bill(PRICES)
