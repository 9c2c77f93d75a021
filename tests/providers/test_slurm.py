"""Slurm partitions as offers: by hand-written answers of its commands, and on a real cluster."""

from collections.abc import Sequence

import pytest

from broker.core.errors import NoLogin, RetryLater
from broker.core.market.offers import Availability, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock, SystemClock
from broker.core.values.money import Money
from providers.slurm import SlurmProvider, SlurmProviderSettings, parse_nodes
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.slurm_cluster import own_cluster

CONFIG = (
    "Configuration data as of 2026-11-21T12:00:00\nCluster\nClusterName             = lab\nSlurmUser = slurm(64030)\n"
)


def node(name: str, *, gres: str = "gpu:h100:8", used: str = "gpu:h100:0(IDX:N/A)", state: str = "IDLE") -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=62 CPUTot=64 CPULoad=0.10 "
        f"Gres={gres} GresDrain=N/A GresUsed={used} NodeAddr={name} OS=Linux 6.1.0 #1 SMP RealMemory=512000 AllocMem=0 "
        f"State={state} ThreadsPerCore=1 Partitions=gpu,all  BootTime=2026-11-01T00:00:00 Reason=none"
    )


class SlurmAnswers:
    """What the commands print."""

    def __init__(self, *nodes: str, ours: str = "") -> None:
        self.nodes, self.ours = nodes, ours

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[0] == "squeue":
            return self.ours
        return CONFIG if "config" in arguments else "\n".join(self.nodes) + "\n"


def offers(cluster: SlurmAnswers, settings: SlurmProviderSettings | None = None) -> dict[str, Offer]:
    provider = SlurmProvider(clock=ManualClock(NOW), settings=settings, run=cluster)
    return {row.pool: row for row in provider.offers(OfferQuery()) if isinstance(row, Offer)}


class TestSlurmProvider(ProviderContract):
    plugin = "slurm"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> SlurmProvider:
        return SlurmProvider(
            clock=clock, run=SlurmAnswers(node("n1"), node("n2", used="gpu:h100:8(IDX:0-7)", state="MIXED"))
        )


@pytest.mark.parametrize(
    ("used", "free"),
    [
        ("gpu:h100:0(IDX:N/A),shard:h100:2(IDX:0-1)", 6),
        ("gpu:h100:1(IDX:0),shard:h100:3(IDX:1,3-4)", 4),
        ("gpu:h100:0(IDX:N/A),shard:8(IDX:0-7)", 0),
        ("gpu:h100:2(IDX:0-1),shard:h100:0(IDX:N/A)", 6),
    ],
)
def test_cards_that_carry_shards_are_not_free(used: str, free: int) -> None:
    found = offers(SlurmAnswers(node("n1", gres="gpu:h100:8,shard:h100:32", used=used)))
    assert {one.slots for one in found.values() if one.zone == "lab:gpu" and one.count == 1} == {free}


def test_every_count_that_a_node_can_give_is_an_offer() -> None:
    found = offers(SlurmAnswers(node("n1"), node("n2", used="gpu:h100:6(IDX:0-5)", state="MIXED")))
    slots = {one.count: one.slots for one in found.values() if one.zone == "lab:gpu" and one.accelerator == "H100"}
    assert slots == {1: 10, 2: 5, 4: 2, 8: 1}
    big = found["slurm/lab:gpu/h100:8/H100:8/owned"]
    assert (big.region, big.engine, big.cpus, big.memory_gib) == ("lab", "slurm", 62.0, 500.0)
    assert found["slurm/lab:gpu/cpu/cpu/owned"].slots == 2


def test_what_is_in_use_is_unavailable_and_says_so() -> None:
    found = offers(SlurmAnswers(node("n1", used="gpu:h100:8(IDX:0-7)", state="ALLOCATED")))
    busy = found["slurm/lab:gpu/h100:8/H100:8/owned"]
    assert (busy.availability, busy.slots) == (Availability.UNAVAILABLE, 0)
    assert "in use" in busy.unavailable_because


def test_what_our_own_jobs_occupy_counts_as_a_slot_that_the_planner_takes_off() -> None:
    pool = "slurm/lab:gpu/h100:8/H100:8/owned"
    nodes = (node("n1"), node("n2", used="gpu:h100:8(IDX:0-7)", state="ALLOCATED"))
    assert offers(SlurmAnswers(*nodes, ours=f"{pool}|1\n(null)|3\n"))[pool].slots == 2
    assert offers(SlurmAnswers(*nodes))[pool].slots == 1


@pytest.mark.parametrize("state", ["DOWN", "IDLE+DRAIN", "IDLE*", "DOWN*+DRAIN", "IDLE+MAINTENANCE"])
def test_a_node_that_takes_no_jobs_is_counted_and_not_offered(state: str) -> None:
    nodes, skipped = parse_nodes(f"{node('n1', state=state)}\n{node('n2')}")
    assert [one.name for one in nodes] == ["n2"]
    assert [row.reason for row in skipped] == ["node_takes_no_jobs"]


def test_gpus_without_a_type_or_of_an_unknown_one_are_told() -> None:
    provider = SlurmProvider(
        clock=ManualClock(NOW), run=SlurmAnswers(node("n1", gres="gpu:4(S:0-1)"), node("n2", gres="gpu:mystery:2"))
    )
    rows = list(provider.offers(OfferQuery()))
    reasons = [row.reason for row in rows if isinstance(row, SkippedRow)]
    assert sorted(set(reasons)) == ["gpu_without_type", "unknown_accelerator"]
    assert {row.machine for row in rows if isinstance(row, Offer)} == {"cpu"}


def test_the_price_is_that_of_its_gpus_and_partitions_can_be_chosen() -> None:
    settings = SlurmProviderSettings(
        price_per_gpu_hour=Money.usd("0.25"), amortised_per_gpu_hour=Money.usd("1.10"), partitions=("all",)
    )
    found = offers(SlurmAnswers(node("n1")), settings)
    assert {one.zone for one in found.values()} == {"lab:all"}
    big = found["slurm/lab:all/h100:8/H100:8/owned"]
    assert (big.price, big.amortised) == (Money.usd("2"), Money.usd("8.80"))


def test_no_slurm_here_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NoLogin, match="scontrol cannot be run"):
        list(SlurmProvider(clock=SystemClock()).offers(OfferQuery()))


@pytest.mark.system
def test_a_real_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = SlurmProvider(clock=SystemClock())
    with own_cluster() as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)

        def free() -> dict[str, int | None]:
            found = [row for row in provider.offers(OfferQuery()) if isinstance(row, Offer)]
            return {row.machine: row.slots for row in found if row.zone == "loop:gpu"}

        assert free() == {"H100:1": 4, "H100:2": 2, "cpu": 2}
        cluster.run("sbatch", "--wrap", "sleep 60", "--gres=gpu:h100:1", "--output=/dev/null", "--chdir=/")
        cluster.until(lambda: free() == {"H100:1": 3, "H100:2": 1, "cpu": 1}, "the job occupies one GPU")
        cluster.stop("slurmctld")
        with pytest.raises(RetryLater, match="scontrol"):
            free()
