"""Parts of cards on a real Slurm cluster: shards and MIG slices, offered and started."""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from broker.core.job.placements import Placement
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.engines.slurm import SlurmEngine
from providers.slurm import SlurmProvider, SlurmProviderSettings
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.slurm_cluster import SlurmCluster, missing, running_cluster

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    if lacking := missing():
        pytest.skip(lacking)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o711)
    with running_cluster(folder, shards=4, sliced="two") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def offered() -> dict[str, Offer]:
    settings = SlurmProviderSettings(price_per_gpu_hour=Money.usd("2.00"), partitions=("gpu",))
    provider = SlurmProvider(clock=SystemClock(), settings=settings)
    return {row.machine: row for row in provider.offers(OfferQuery()) if isinstance(row, Offer)}


def test_shards_and_slices_are_offered_and_a_job_gets_its_part(cluster: SlurmCluster, tmp_path: Path) -> None:
    found = offered()
    assert {name: (one.slots, str(one.price)) for name, one in found.items() if one.accelerator} == {
        "H100:1": (2, "$2.00"),
        "H100:2": (1, "$4.00"),
        "H100-1of4-shared:1": (8, "$0.50"),
        "H100-1of2-shared:1": (4, "$1.00"),
        "H100-1g.10gb:1": (2, "$0.25"),
    }

    def placed(machine: str) -> Placement:
        return Placement(found[machine], 1, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)

    bench = Bench(
        make=lambda: SlurmEngine(tmp_path / "home", SystemClock()),
        placement=placed("H100-1of4-shared:1"),
        clock=SystemClock(),
        folder=tmp_path,
        doomed=placed("H100-1of4-shared:1"),
        take_away=lambda handle: None,
        numbers=count(1),
    )
    marks: list[Path] = []
    for machine in ("H100-1of4-shared:1", "H100-1of4-shared:1", "H100-1of2-shared:1", "H100-1g.10gb:1"):
        marks.append(tmp_path / f"mark{len(marks)}")
        command = f"echo ${{CUDA_VISIBLE_DEVICES}}:$SLURM_SHARDS_ON_NODE >> {marks[-1]}; exec sleep 300"
        bench.engine.submit(bench.launch(command, placed(machine)))
        eventually(lambda: lines(marks[-1]) or None, f"{machine} runs")
    cards = [lines(mark)[0].split(":") for mark in marks]
    assert [shards for _, shards in cards] == ["1", "1", "2", ""]
    left = {name: one.slots for name, one in offered().items() if one.accelerator and "shared" in name}
    by_card = [sum(int(shards) for card, shards in cards[:3] if card == of) for of in ("0", "1")]
    assert sum(by_card) == 4, "each is on one card"
    ours = {"H100-1of4-shared:1": 2, "H100-1of2-shared:1": 1}  # the planner takes them off
    free = {part: sum((4 - taken) // number for taken in by_card) for part, number in zip(ours, (1, 2), strict=True)}
    assert left == {part: free[part] + ours[part] for part in ours}
