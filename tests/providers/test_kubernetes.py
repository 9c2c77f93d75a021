"""Kubernetes nodes as offers: by hand-written answers of kubectl. On a real cluster: `tests/kubernetes`."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import GiveUp, LoginMissing, NoLogin, RetryLater
from broker.core.market.offers import Availability, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.kubernetes import KubectlRun, KubernetesProvider, KubernetesProviderSettings, is_available, quantity
from tests.contracts.provider_contract import NOW, ProviderContract

SKYPILOTS = "skypilot.co/accelerator"


def node(
    name: str,
    *,
    gpus: int = 8,
    label: str = SKYPILOTS,
    kind: str = "h100",
    cpu: str = "64",
    ready: str = "True",
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **({label: kind} if gpus else {})}},
        "spec": dict(spec or {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": "512Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def pod(
    on: str | None,
    *,
    gpus: int = 0,
    cpu: str = "1",
    memory: str = "1Gi",
    phase: str = "Running",
    owner: str = "",
    labels: Mapping[str, str] | None = None,
    first: str = "0",
) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"labels": dict(labels or {}), "ownerReferences": [{"kind": owner}] if owner else []},
        "spec": {
            **({"nodeName": on} if on else {}),
            "containers": [{"name": "main", "resources": {"requests": asked}}, {"name": "bare"}],
            "initContainers": [{"name": "first", "resources": {"requests": {"cpu": first}}}],
        },
        "status": {"phase": phase},
    }


class KubectlAnswers:
    def __init__(self, *nodes: dict[str, Any], pods: Sequence[dict[str, Any]] = ()) -> None:
        self.nodes, self.pods, self.asked = nodes, pods, list[Sequence[str]]()

    def __call__(self, arguments: Sequence[str]) -> str:
        self.asked.append(arguments)
        return json.dumps({"items": list(self.nodes if "nodes" in arguments else self.pods)})


def rows(cluster: KubectlAnswers, **more: Any) -> list[Offer | SkippedRow]:
    settings = KubernetesProviderSettings(contexts=("lab",), **more)
    return list(KubernetesProvider(clock=ManualClock(NOW), settings=settings, run=cluster).offers(OfferQuery()))


def offers(cluster: KubectlAnswers, **more: Any) -> dict[str, Offer]:
    return {row.instance_type: row for row in rows(cluster, **more) if isinstance(row, Offer)}


def skipped(cluster: KubectlAnswers) -> dict[str, str]:
    return {row.reason: row.detail for row in rows(cluster) if isinstance(row, SkippedRow)}


class TestKubernetesProvider(ProviderContract):
    plugin = "kubernetes"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> KubernetesProvider:
        answers = KubectlAnswers(node("n1"), node("n2"), node("n3", gpus=0), pods=[pod("n2", gpus=8)])
        return KubernetesProvider(clock=clock, settings=KubernetesProviderSettings(contexts=("lab",)), run=answers)


def test_every_count_that_a_node_can_give_is_an_offer_of_what_is_free() -> None:
    found = offers(KubectlAnswers(node("n1"), node("n2"), node("n3", gpus=0), pods=[pod("n2", gpus=6, cpu="8")]))
    assert {name: one.slots for name, one in found.items()} == {
        "h100:1": 10,
        "h100:2": 5,
        "h100:4": 2,
        "h100:8": 1,
        "cpu": 1,
    }
    big = found["h100:8"]
    assert (big.provider, big.region, big.zone, big.accelerator, big.engine) == (
        "kubernetes", "lab", None, "H100", "skypilot"
    )  # fmt: skip
    assert (big.cpus, big.memory_gib, found["h100:2"].cpus, found["cpu"].accelerator) == (64.0, 512.0, 16.0, None)


def test_no_context_is_offered_that_no_setting_names() -> None:
    answers = KubectlAnswers(node("n1"))
    assert list(KubernetesProvider(clock=ManualClock(NOW), run=answers).offers(OfferQuery())) == []
    assert answers.asked == []
    assert KubernetesProviderSettings.model_validate({"contexts": "a, arn:aws:eks:b/c"}).contexts == (
        "a", "arn:aws:eks:b/c"
    )  # fmt: skip


def test_what_daemons_take_is_not_offered_so_that_a_whole_node_fits() -> None:
    daemons = [pod("n1", cpu="500m", memory="2Gi", owner="DaemonSet"), pod("n1", cpu="250m", owner="Node")]
    big = offers(KubectlAnswers(node("n1"), pods=daemons))["h100:8"]
    assert (big.cpus, big.memory_gib, big.slots) == (63.2, 509.0, 1)


def test_a_node_whose_processors_or_memory_are_taken_has_no_room_for_gpus() -> None:
    found = offers(KubectlAnswers(node("n1"), pods=[pod("n1", cpu="33")]))
    assert (found["h100:8"].slots, found["h100:4"].slots, found["h100:8"].availability) == (
        0,
        0,
        Availability.UNAVAILABLE,
    )
    assert "free" in found["h100:8"].unavailable_because
    assert offers(KubectlAnswers(node("n1"), pods=[pod("n1", memory="300Gi")]))["h100:4"].slots == 0
    assert offers(KubectlAnswers(node("n1"), pods=[pod("n1", cpu="1", first="60")]))["h100:4"].slots == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_ended_and_those_without_a_node_take_nothing(phase: str) -> None:
    found = offers(
        KubectlAnswers(node("n1"), pods=[pod("n1", gpus=8, phase=phase), pod(None, gpus=8, phase="Pending")])
    )
    assert found["h100:8"].slots == 1


def test_what_our_own_jobs_have_counts_as_a_slot_that_the_planner_takes_off() -> None:
    ours = pod("n1", gpus=8, labels={"gpubroker": "01abc-1"})
    nodes = (node("n1"), node("n2"))
    assert offers(KubectlAnswers(*nodes, pods=[ours]))["h100:8"].slots == 2
    assert offers(KubectlAnswers(*nodes, pods=[pod("n1", gpus=8)]))["h100:8"].slots == 1


@pytest.mark.parametrize(
    ("label", "kind", "accelerator"),
    [
        ("skypilot.co/accelerator", "h100", "H100"),
        ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb", "H100"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", "T4"),
        ("karpenter.k8s.aws/instance-gpu-name", "l4", "L4"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", "H100"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", "A100"),
        ("nvidia.com/gpu.product", "Tesla-T4", "T4"),
        ("nebius.com/gpu-name", "H200", "H200"),
    ],
)
def test_labels_by_which_clusters_name_their_gpus(label: str, kind: str, accelerator: str) -> None:
    found = offers(KubectlAnswers(node("n1", label=label, kind=kind)))
    assert {one.accelerator for one in found.values()} == {accelerator}


def test_of_several_kinds_of_labels_the_one_counts_that_skypilot_reads() -> None:
    first = node("n1", kind="h100")
    second = node("n2", label="nvidia.com/gpu.product", kind="NVIDIA-L4")
    assert {one.accelerator for one in offers(KubectlAnswers(first, second)).values()} == {"H100"}
    assert skipped(KubectlAnswers(first, second)) == {
        "gpu_without_type": "n2: no label skypilot.co/accelerator names its GPU"
    }


def cut(resources: Mapping[str, str] | None = None, replicas: str = "", gpus: int = 0) -> dict[str, Any]:
    """A node whose cards are cut into slices, or shared in time."""
    shared = node("n", gpus=gpus)
    shared["status"]["allocatable"].update(resources or {})
    shared["metadata"]["labels"].update({"nvidia.com/gpu.replicas": replicas} if replicas else {})
    return shared


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (cut({"nvidia.com/mig-1g.10gb": "7"}), "gpu_without_type"),
        (cut({"nvidia.com/mig-1g.10gb": "many"}), "malformed_node"),
        (cut(replicas="4", gpus=4), "shared_gpu"),
        (node("n", spec={"unschedulable": True}), "node_takes_no_jobs"),
        (node("n", ready="Unknown"), "node_takes_no_jobs"),
        (node("n", spec={"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}), "node_takes_no_jobs"),
        (node("n", label="colour", kind="blue"), "gpu_without_type"),
        (node("n", kind="mystery"), "unknown_accelerator"),
        (node("n", label="nvidia.com/gpu.product", kind="NVIDIA-A10-SHARED"), "unknown_accelerator"),
        (node("n", cpu="many"), "malformed_node"),
        ({"metadata": {}}, "malformed_node"),
    ],
)
def test_nodes_that_cannot_be_offered_are_told(broken: dict[str, Any], reason: str) -> None:
    assert list(skipped(KubectlAnswers(broken))) == [reason]
    assert not offers(KubectlAnswers(broken))


def test_slices_are_offered_by_their_memory_and_started_by_nobody() -> None:
    sliced = cut({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "0"})
    sliced["metadata"]["labels"][SKYPILOTS] = "h100"
    both = cut({"nvidia.com/mig-3g.40gb": "2"}, gpus=4)
    cluster = KubectlAnswers(sliced, {**both, "metadata": {**both["metadata"], "name": "m"}})
    found = offers(cluster, price_per_gpu_hour=Money.usd("2"))
    assert {name: (one.accelerator, str(one.price), one.engine) for name, one in found.items() if one.count == 1} == {
        "h100-1g.10gb:1": ("H100-1g.10gb", "$0.25", None),
        "h100-3g.40gb:1": ("H100-3g.40gb", "$1.00", None),
        "h100:1": ("H100", "$2.00", "skypilot"),
    }
    refused = found["h100-1g.10gb:1"]
    assert (refused.slots, refused.availability) == (None, Availability.UNKNOWN)
    assert "SkyPilot requests whole cards on Kubernetes" in refused.unavailable_because
    provider = KubernetesProvider(
        clock=ManualClock(NOW), settings=KubernetesProviderSettings(contexts=("lab",)), run=cluster
    )
    assert list(provider.check_access()) == ["context lab: 2 nodes, 4 GPUs, 9 MIG slices"]


def test_where_slices_are_called_gpus_no_whole_card_is_started() -> None:
    """SkyPilot takes such a node for one with whole cards: a job could get a slice in the place of a card."""
    product = "nvidia.com/gpu.product"
    whole = node("n1", label=product, kind="NVIDIA-H100-80GB-HBM3")
    single = node("n2", gpus=7, label=product, kind="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
    other = node("n3", label=product, kind="NVIDIA-L4")
    found = offers(KubectlAnswers(whole, single, other))
    assert {one.accelerator: one.engine for one in found.values()} == {
        "H100": None, "H100-1g.10gb": None, "L4": "skypilot",
    }  # fmt: skip
    assert "does not tell whole cards from the MIG slices" in found["NVIDIA-H100-80GB-HBM3:1"].unavailable_because


def test_whole_cards_with_the_labels_of_sharing_are_cards() -> None:
    assert offers(KubectlAnswers(cut({"nvidia.com/mig-1g.10gb": "0"}, replicas="1", gpus=8)))


def test_the_usual_taint_of_gpu_nodes_and_mere_preferences_bar_nobody() -> None:
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "spare", "effect": "PreferNoSchedule"}]
    assert offers(KubectlAnswers(node("n1", spec={"taints": taints})))["h100:8"].slots == 1


def test_the_price_is_that_of_its_gpus() -> None:
    money = {"price_per_gpu_hour": Money.usd("0.25"), "amortised_per_gpu_hour": Money.usd("1.10")}
    found = offers(KubectlAnswers(node("n1"), node("n2", gpus=0)), price_per_cpu_node_hour=Money.usd("0.4"), **money)
    assert (found["h100:8"].price, found["h100:8"].amortised) == (Money.usd("2"), Money.usd("8.80"))
    assert (found["cpu"].price, found["cpu"].amortised) == (Money.usd("0.40"), None)


@pytest.mark.parametrize(
    ("text", "figure"),
    [("2", "2"), ("3920m", "3.92"), ("15Gi", str(15 * 2**30)), ("1.5k", "1500"), ("129e6", "129000000"), (0, "0")],
)
def test_figures_as_kubernetes_writes_them(text: object, figure: str) -> None:
    assert quantity(text) == Decimal(figure)


@pytest.mark.parametrize("text", ["", "many", "1.2.3", "5Q", "-1", None])
def test_what_is_no_figure(text: object) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        quantity(text)


def test_an_answer_that_is_no_list() -> None:
    settings = KubernetesProviderSettings(contexts=("lab",))
    for printed in ("", "[]", '{"kind": "Status"}'):
        provider = KubernetesProvider(clock=ManualClock(NOW), settings=settings, run=_prints(printed))
        with pytest.raises(GiveUp, match="no list of"):
            list(provider.offers(OfferQuery()))


def _prints(text: str) -> KubectlRun:
    return lambda _: text


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ('error: context "lab" does not exist', NoLogin),
        ('Error from server (Forbidden): pods is forbidden: User "ann" cannot list resource "pods"', LoginMissing),
        ("error: You must be logged in to the server (Unauthorized)", LoginMissing),
        ("The connection to the server 127.0.0.1:6443 was refused", RetryLater),
    ],
)
def test_what_kubectl_refuses(
    said: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'X'\n{said}\nX\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    provider = KubernetesProvider(clock=ManualClock(NOW), settings=KubernetesProviderSettings(contexts=("lab",)))
    with pytest.raises(error) as caught:
        list(provider.offers(OfferQuery()))
    assert type(caught.value) is error


def test_without_kubectl_or_a_kubeconfig_no_cluster_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    provider = KubernetesProvider(clock=ManualClock(NOW), settings=KubernetesProviderSettings(contexts=("lab",)))
    with pytest.raises(NoLogin, match="kubectl cannot be run"):
        list(provider.offers(OfferQuery()))
    (tmp_path / "config").write_text("")
    assert not is_available()
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "kubectl").chmod(0o755)
    assert is_available()
    (tmp_path / "config").unlink()
    assert not is_available()
