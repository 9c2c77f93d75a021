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

    def __init__(self, *nodes: str, ours: str = "", jobs: str = "") -> None:
        self.nodes, self.ours, self.jobs = nodes, ours, jobs

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[0] == "squeue":
            return self.ours
        if "jobs" in arguments:
            return self.jobs
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
    assert found["slurm/lab:gpu/h100:1/H100:1/owned"].slots == free


def on_card(node: str, shards: int, card: int) -> str:
    return f"JobId=7 JOB_GRES=shard:{shards} Nodes={node} CPU_IDs=6 Mem=0 GRES=shard:{shards}(IDX:{card}) Power=\n"


@pytest.mark.parametrize(
    ("used", "jobs", "quarters", "halves"),
    [
        ("gpu:h100:0(IDX:N/A),shard:h100:0(IDX:N/A)", "", 8, 4),
        ("gpu:h100:1(IDX:0),shard:h100:0(IDX:N/A)", "", 4, 2),
        ("gpu:h100:0(IDX:N/A),shard:h100:1(IDX:1)", on_card("n1", 1, 1), 7, 3),
        ("gpu:h100:0(IDX:N/A),shard:h100:1(IDX:1)", on_card("n1", 1, 1) + on_card("n1", 3, 1), 4, 2),
        ("gpu:h100:0(IDX:N/A),shard:h100:2(IDX:0-1)", on_card("n1", 2, 0) + on_card("other", 2, 1), 2, 1),
    ],
)
def test_shards_of_one_card_are_parts_that_software_shares(used: str, jobs: str, quarters: int, halves: int) -> None:
    """A card is full that is in use without a job that is seen to use it: other users' jobs may be hidden."""
    found = offers(SlurmAnswers(node("n1", gres="gpu:h100:2,shard:h100:8", used=used), jobs=jobs))
    slots = {one.machine: one.slots for one in found.values() if one.zone == "lab:gpu" and "shared" in one.machine}
    assert slots == {"H100-1of4-shared:1": quarters, "H100-1of2-shared:1": halves}
    assert found["slurm/lab:gpu/shard:h100:2/H100-1of2-shared:1/owned"].cpus == pytest.approx(15.5)


def test_more_shards_than_parts_have_names_are_offered_as_larger_parts() -> None:
    found = offers(SlurmAnswers(node("n1", gres="gpu:h100:1,shard:h100:80")))
    parts = [
        int(one.machine.split("1of")[1].split("-")[0])
        for one in found.values()
        if one.zone == "lab:gpu" and "shared" in one.machine
    ]
    assert sorted(parts) == [2, 4, 5, 8, 10, 16, 20, 40]


@pytest.mark.parametrize(
    "gres",
    ["gpu:h100:2,shard:7", "gpu:h100:1,gpu:a100:1,shard:8", "shard:8", "gpu:h100_1g.10gb:7,shard:h100_1g.10gb:14"],
)
def test_shards_that_cannot_be_told_apart_by_card_are_not_offered(gres: str) -> None:
    found = offers(SlurmAnswers(node("n1", gres=gres)))
    assert not [one for one in found.values() if "shared" in one.machine]


def test_slices_are_offered_by_their_memory_and_never_cost_more_than_their_card() -> None:
    settings = SlurmProviderSettings(price_per_gpu_hour=Money(2_000_003), mig_card="H100-80GB")
    bare, full = node("n1", gres="gpu:1g.10gb:7"), node("n2", gres="gpu:nvidia_h100_80gb_hbm3_3g.40gb:2")
    found = {one.accelerator: one for one in offers(SlurmAnswers(bare, full), settings).values()}
    assert {name: (one.count, one.slots, one.price) for name, one in found.items() if name} == {
        "H100-1g.10gb": (1, 7, Money(250_000)),
        "H100-3g.40gb": (1, 2, Money(1_000_001)),
    }
    assert "gpu:1g.10gb" in f"gpu:{found['H100-1g.10gb'].instance_type}"
    assert not [one for one in offers(SlurmAnswers(bare)).values() if one.accelerator], "of which card is unknown"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("a100_1g.10gb", "A100-80GB-1g.10gb"),
        ("nvidia_a100-sxm4-40gb_1g.10gb", "A100-1g.10gb"),
        ("a100_1g.5gb", "A100-1g.5gb"),
        ("h100_1g.10gb", "H100-1g.10gb"),
    ],
)
def test_a_slice_is_of_the_card_that_its_cluster_says_if_its_type_may_mean_it(kind: str, name: str) -> None:
    found = offers(SlurmAnswers(node("n1", gres=f"gpu:{kind}:7")), SlurmProviderSettings(mig_card="A100-80GB"))
    assert {one.accelerator for one in found.values()} == {name, None}


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
