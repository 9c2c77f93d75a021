"""What Slurm says of jobs that have not started, as the engine tells it. No cluster is asked."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.slurm import SlurmEngine
from broker.engines.slurm_commands import SqueueRow

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
SOON = START + timedelta(minutes=1)


def submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[SqueueRow], *resources: MachineRequest
) -> tuple[SlurmEngine, str, list[str]]:
    """The engine, the handle of a job on a free node with 16 CPUs, and the words of its submission."""
    offer = Offer(
        "slurm", "loop", "loop:gpu", "cpu", None, 0, CapacityType.OWNED, Money.ZERO, START, "slurm",
        availability=Availability.AVAILABLE, engine="slurm", money=MoneyKind.AMORTISED, cpus=16,
    )  # fmt: skip
    words: list[str] = []

    def run(arguments: Sequence[str], environment: object = None) -> str:
        words.extend(arguments)
        return "17"

    monkeypatch.setattr("broker.engines.slurm.run", run)
    monkeypatch.setattr("broker.engines.slurm.own_jobs", lambda key=None: rows)
    monkeypatch.setattr("broker.engines.slurm.cluster_name", lambda: "loop")
    engine = SlurmEngine(tmp_path / "home", ManualClock(START))
    placement = Placement(offer, 1, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    folder = (tmp_path / "runs" / "j" / "attempts" / "1").as_uri()
    return engine, engine.submit(Launch("j-1", Job(name="j", run="x", resources=resources), placement, folder)), words


def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, started: datetime | None) -> Observation:
    rows: list[SqueueRow] = []
    engine, handle, _ = submitted(tmp_path, monkeypatch, rows)
    rows.append(SqueueRow("17", "j-1", state, started, None, "Priority", "node7" if state == "CONFIGURING" else ""))
    return engine.observe([handle])[handle]


@pytest.mark.parametrize(("cpus", "told"), [(None, 16), (2, 2)])
def test_a_job_gets_all_cpus_of_a_free_node_unless_it_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: float | None, told: int
) -> None:
    assert f"--cpus-per-task={told}" in submitted(tmp_path, monkeypatch, [], MachineRequest(cpus=cpus))[2]


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "REQUEUED"])
def test_what_waits_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    # Slurm tells when it expects a waiting job to start: that is no start.
    seen = look(tmp_path, monkeypatch, state, SOON)
    assert (seen.state, seen.since) == (EngineState.QUEUED, None)
    assert "Priority" in seen.evidence


def test_nodes_that_are_being_booted_for_it_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = look(tmp_path, monkeypatch, "CONFIGURING", SOON)
    assert (seen.state, seen.since) == (EngineState.PENDING, SOON)
