"""The free GPU nodes of Kubernetes clusters as owned capacity, through kubectl.

Queried before each decision, like this machine. One offer per cluster, kind of GPU and count on a node (powers of two,
and the whole node), one per kind of MIG slice, which no engine starts, and one per cluster for its nodes without GPUs.
A region is a context of the kubeconfig, which is what SkyPilot calls it. Only contexts that a setting names are
offered: a kubeconfig often has clusters that are not meant for training jobs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from broker.core.errors import BrokerError, GiveUp, LoginMissing, NoLogin, RetryLater, UnknownName
from broker.core.market.accelerators import canonical, card_share, is_part, mig_profile
from broker.core.market.capacity import TAG
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer, OfferQuery, SkippedRow, part_price
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.registry import ProviderSettings, split_commas

# Labels that name a node's GPU, in the order in which SkyPilot looks for them (sky/provision/kubernetes/utils.py of
# 0.14): it reads the first that any node has, of all nodes.
_KIND_LABELS = (
    "skypilot.co/accelerator",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "nvidia.com/gpu.product",
    "gpu.nvidia.com/class",
    "nebius.com/gpu-name",
)
_GPU = "nvidia.com/gpu"
_SLICE = "nvidia.com/mig-"
_SINGLE = "-MIG-"  # in the product of a node whose slices are called GPUs
_REPLICAS = "nvidia.com/gpu.replicas"
_MAKER = re.compile(r"^(nvidia-)?(tesla-)?(geforce-)?", re.IGNORECASE)
_SUFFIXES: Mapping[str, Decimal] = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip
_QUANTITY = re.compile(r"(?P<number>[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<suffix>m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_GIB = 2**30
_TIMEOUT = 30.0
_ANSWER_WITHIN = "10s"  # for each request of kubectl
_CUT = "SkyPilot requests whole cards on Kubernetes, and no MIG slices"
_MIXED = "SkyPilot does not tell whole cards from the MIG slices of other nodes of this cluster"
_RIGHTS = "it needs the rights to list nodes, and pods of all namespaces"

KubectlRun = Callable[[Sequence[str]], str]


class KubernetesProviderSettings(ProviderSettings):
    """The clusters, and the cost of an hour on them, in USD.

    ``contexts``: those of the kubeconfig that are offered; none by default. ``price_per_gpu_hour``,
    ``price_per_cpu_node_hour``: extra cost of use over idling, or what an autoscaled node costs.
    ``amortised_per_gpu_hour``: the purchase over its life, for showback only.
    """

    contexts: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = ()
    price_per_gpu_hour: Money = Money.ZERO
    price_per_cpu_node_hour: Money = Money.ZERO
    amortised_per_gpu_hour: Money | None = None


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """CPUs, bytes of memory, and GPUs of a node, or a part of it."""

    cpus: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    gpus: int = 0

    def __add__(self, other: NodeCapacity) -> NodeCapacity:
        return NodeCapacity(self.cpus + other.cpus, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: NodeCapacity) -> NodeCapacity:
        return NodeCapacity(self.cpus - other.cpus, self.memory - other.memory, self.gpus - other.gpus)


@dataclass(frozen=True, slots=True)
class KubernetesNode:
    """A node that takes pods. ``usable``: the capacity for jobs on the empty node, without that of daemons. ``free``:
    the part of it that no pod has requested. ``kind``: its GPU as its label has it, or its MIG slice; empty without
    one. A node with several kinds of slices is listed with each."""

    name: str
    kind: str
    usable: NodeCapacity
    free: NodeCapacity


def is_available() -> bool:
    """Whether kubectl is installed and there is a kubeconfig. Sends no request."""
    places = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return shutil.which("kubectl") is not None and any(
        Path(place).is_file() for place in places.split(os.pathsep) if place
    )


def _command(arguments: Sequence[str]) -> str:
    try:
        result = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            list(arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RetryLater(f"kubectl did not answer within {_TIMEOUT:.0f} s", where="kubernetes") from error
    except OSError as error:
        raise NoLogin(
            f"kubectl cannot be run: {error.strerror or error}", where="kubernetes", hint="install kubectl"
        ) from error
    if result.returncode:
        words = " ".join(result.stderr.split())[:300]
        if "does not exist" in words and "context" in words:
            raise NoLogin(words, where="kubernetes", hint="`kubectl config get-contexts` lists what there is")
        if re.search(r"\b(Forbidden|forbidden|Unauthorized|must be logged in)\b", words):
            raise LoginMissing(words, where="kubernetes", hint=_RIGHTS)
        raise RetryLater(f"kubectl: {words}", where="kubernetes", hint="does `kubectl get nodes` work here?")
    return result.stdout


class KubernetesProvider:
    """The clusters of the contexts that the settings name."""

    name = "kubernetes"
    refresh_before_deciding = True
    Settings: ClassVar = KubernetesProviderSettings

    def __init__(
        self, *, clock: Clock, settings: KubernetesProviderSettings | None = None, run: KubectlRun = _command
    ) -> None:
        """``run`` runs kubectl and returns its output."""
        self._clock = clock
        self._settings = settings or KubernetesProviderSettings()
        self._run = run

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """The offers of all clusters, whatever the query. Read-only. Raises `RetryLater` while an API server is
        unreachable, `NoLogin` if kubectl or the context is missing, `LoginMissing` without the rights, `GiveUp` for an
        invalid answer.
        """
        for context in self._settings.contexts:
            nodes, skipped = parse_nodes(self._list(context, "nodes"), pods := self._list(context, "pods"))
            yield from skipped
            yield from self._cluster_offers(context, nodes, our_pods(pods))

    def check_access(self) -> Iterator[str | BrokerError]:
        """See `broker.core.ports.ChecksAccess`: whether the nodes and pods of each cluster can be listed."""
        contexts = self._settings.contexts
        if not contexts:
            known = self._run(["kubectl", "config", "get-contexts", "--output=name"]).split()
            names = ", ".join(known) or "none"
            hint = f"export GPUBROKER_PROVIDERS__KUBERNETES__CONTEXTS={known[0] if len(known) == 1 else 'CONTEXT'}"
            yield NoLogin(f"no cluster is chosen; contexts of the kubeconfig: {names}", where="kubernetes", hint=hint)
        for context in contexts:
            try:
                nodes, _ = parse_nodes(self._list(context, "nodes"), self._list(context, "pods"))
            except BrokerError as error:
                error.where = error.where if context in error.where else f"kubernetes context {context}"
                yield error
            else:
                number = len({node.name for node in nodes})
                gpus = sum(node.usable.gpus for node in nodes if mig_profile(node.kind) is None)
                slices = sum(node.usable.gpus for node in nodes) - gpus
                parts = f", {slices} MIG slices" if slices else ""
                yield f"context {context}: {number} nodes, {gpus} GPUs{parts}"

    def _list(self, context: str, kind: str) -> list[Any]:
        command = ["kubectl", f"--context={context}", f"--request-timeout={_ANSWER_WITHIN}", "get", kind]
        output = self._run([*command, *(["--all-namespaces"] if kind == "pods" else []), "--output=json"])
        try:
            items = json.loads(output)["items"]
        except (ValueError, KeyError, TypeError) as error:
            raise GiveUp(f"kubectl printed no list of {kind}", where=f"kubernetes context {context}") from error
        return list(items)

    def _cluster_offers(
        self, context: str, nodes: Sequence[KubernetesNode], ours: Mapping[tuple[str, int], int]
    ) -> Iterator[Offer | SkippedRow]:
        gpu_nodes = [node for node in nodes if node.usable.gpus]
        accelerators: dict[str, str] = {}
        for kind in sorted({node.kind for node in gpu_nodes}):
            try:
                accelerators[kind] = canonical(_MAKER.sub("", kind))
            except UnknownName:
                yield SkippedRow("unknown_accelerator", f"{context}: {kind!r} is not in the GPU table")
        mixed = {card_share(name)[0] for kind, name in accelerators.items() if _SINGLE in kind.upper()}
        for kind, accelerator in accelerators.items():
            refusal = _CUT if is_part(accelerator) else _MIXED if accelerator in mixed else ""
            same_kind = [node for node in gpu_nodes if node.kind == kind]
            max_gpus = 1 if is_part(accelerator) else max(node.usable.gpus for node in same_kind)
            names = {node.name for node in same_kind}
            for count in sorted({2**power for power in range(max_gpus.bit_length())} | {max_gpus}):
                candidates = [node for node in same_kind if node.usable.gpus >= count]
                share = min((_share(node.usable, count) for node in candidates), key=lambda size: size.cpus)
                free = sum(_fits(node.free, share) for node in candidates)
                used = sum(number for (node, gpus), number in ours.items() if node in names and gpus == count)
                yield self._offer(context, f"{kind}:{count}", accelerator, share, free, used, refusal)
        if cpu_nodes := [node for node in nodes if not node.usable.gpus]:
            names = {node.name for node in cpu_nodes}
            smallest = min((_share(node.usable, 0) for node in cpu_nodes), key=lambda size: size.cpus)
            free = sum(_fits(node.free, smallest) for node in cpu_nodes)
            used = sum(number for (node, gpus), number in ours.items() if node in names and not gpus)
            yield self._offer(context, "cpu", None, smallest, free, used, "")

    def _offer(
        self,
        context: str,
        machine: str,
        accelerator: str | None,
        share: NodeCapacity,
        free: int,
        ours: int,
        refusal: str,
    ) -> Offer:
        """``ours``: machines of the broker's own jobs, which the planner subtracts from ``slots``. ``refusal``: why no
        engine starts it."""
        settings, amortised = self._settings, self._settings.amortised_per_gpu_hour if accelerator else None
        price = settings.price_per_cpu_node_hour
        if accelerator:
            price = part_price(settings.price_per_gpu_hour, accelerator) * share.gpus
        available = Availability.AVAILABLE if free else Availability.UNAVAILABLE
        return Offer(
            provider=self.name,
            region=context,
            zone=None,
            instance_type=machine,
            accelerator=accelerator,
            count=share.gpus,
            capacity_type=CapacityType.OWNED,
            price=price,
            as_of=self._clock.now(),
            source=self.name,
            amortised=amortised and part_price(amortised, accelerator) * share.gpus,
            cpus=float(share.cpus),
            memory_gib=float(share.memory),
            slots=None if refusal else free + ours,
            availability=Availability.UNKNOWN if refusal else available,
            unavailable_because=refusal or ("" if free else "no node has enough free capacity"),
            engine=None if refusal else "skypilot",
            money=MoneyKind.AMORTISED,
        )


def _share(usable: NodeCapacity, count: int) -> NodeCapacity:
    """The size of a machine with ``count`` GPUs on such a node (memory in GiB), rounded down so that whole nodes
    fit."""
    part = Decimal(count) / usable.gpus if usable.gpus else Decimal(1)
    return NodeCapacity(_floor_tenth(usable.cpus * part), _floor_tenth(usable.memory * part / _GIB), count)


def _floor_tenth(figure: Decimal) -> Decimal:
    return figure.quantize(Decimal("0.1"), rounding="ROUND_FLOOR")


def _fits(free: NodeCapacity, share: NodeCapacity) -> int:
    """How many such machines fit into the free part of a node."""
    rooms = [int(free.cpus / share.cpus) if share.cpus else 0]
    rooms += [int(free.memory / _GIB / share.memory) if share.memory else 0]
    rooms += [free.gpus // share.gpus] if share.gpus else []
    return max(min(rooms), 0)


def parse_nodes(nodes: Sequence[Any], pods: Sequence[Any]) -> tuple[list[KubernetesNode], list[SkippedRow]]:
    """The nodes that accept pods, from ``kubectl get nodes`` and ``get pods``; other nodes and invalid ones as skipped
    rows."""
    daemons, others = _requests_by_node(pods)
    label = _kind_label(nodes)
    parsed: list[KubernetesNode] = []
    skipped: list[SkippedRow] = []
    for node in nodes:
        try:
            name = str(node["metadata"]["name"])
            allocatable = node["status"]["allocatable"]
            capacity = NodeCapacity(
                quantity(allocatable["cpu"]), quantity(allocatable["memory"]), int(quantity(allocatable.get(_GPU, 0)))
            )
            labels = node["metadata"].get("labels") or {}
            slices = _slices(allocatable)
            reason = _pod_refusal(node)
        except (KeyError, TypeError, ValueError, AttributeError):
            skipped.append(SkippedRow("malformed_node", "a node without a name, or a count of CPUs or memory"))
            continue
        if reason:
            skipped.append(SkippedRow("node_takes_no_jobs", f"{name}: {reason}"))
        elif (replicas := str(labels.get(_REPLICAS) or "1")).isdecimal() and int(replicas) > 1:
            detail = f"{name}: {_REPLICAS}={replicas}: several jobs share a card, which gpubroker does not do there"
            skipped.append(SkippedRow("shared_gpu", detail))
        elif (capacity.gpus or slices) and not labels.get(label):
            skipped.append(SkippedRow("gpu_without_type", f"{name}: no label {label or _KIND_LABELS[0]} names its GPU"))
        else:
            for profile, count in slices.items():
                part = NodeCapacity(capacity.cpus, capacity.memory, count)
                parsed.append(KubernetesNode(name, f"{labels[label]}-{profile}", part, part))
            if slices and not capacity.gpus:
                continue
            usable = capacity - daemons.get(name, NodeCapacity())
            free = usable - others.get(name, NodeCapacity())
            parsed.append(KubernetesNode(name, str(labels[label]) if capacity.gpus else "", usable, free))
    return parsed, skipped


def our_pods(pods: Sequence[Any]) -> Counter[tuple[str, int]]:
    """How many pods of the broker's jobs are on each node, by their number of GPUs."""
    counts: Counter[tuple[str, int]] = Counter()
    for pod in pods:
        if _is_running(pod) and TAG in (pod["metadata"].get("labels") or {}):
            counts[pod["spec"]["nodeName"], _pod_request(pod).gpus] += 1
    return counts


def quantity(text: object) -> Decimal:
    """A figure as Kubernetes writes it, such as ``3920m`` or ``15Gi``. Raises `ValueError`."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"no quantity: {text!r}")
    try:
        return Decimal(match["number"]) * _SUFFIXES.get(match["suffix"] or "", Decimal(1))
    except InvalidOperation as error:
        raise ValueError(f"no quantity: {text!r}") from error


def _kind_label(nodes: Sequence[Any]) -> str:
    """The label by which SkyPilot knows the GPUs of this cluster; empty if no node has one."""
    present = {
        key for node in nodes for key, value in ((node.get("metadata") or {}).get("labels") or {}).items() if value
    }
    return next((label for label in _KIND_LABELS if label in present), "")


def _slices(allocatable: Mapping[str, Any]) -> dict[str, int]:
    """How many MIG slices of each profile the node has. A node of slices alone would look like one without GPUs."""
    counts = {key.removeprefix(_SLICE): int(quantity(of)) for key, of in allocatable.items() if key.startswith(_SLICE)}
    return {profile: count for profile, count in sorted(counts.items()) if count}


def _pod_refusal(node: Any) -> str:
    """The reason why the node accepts no pods of jobs; empty if it does. Pods with GPUs tolerate the taint of GPU
    nodes."""
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    readiness = [item.get("status") for item in node["status"].get("conditions", []) if item.get("type") == "Ready"]
    if readiness != ["True"]:
        return "not ready"
    taints = node.get("spec", {}).get("taints") or []
    bars = sorted(item["key"] for item in taints if item.get("effect") != "PreferNoSchedule" and item["key"] != _GPU)
    return f"tainted with {', '.join(bars)}" if bars else ""


def _requests_by_node(pods: Sequence[Any]) -> tuple[dict[str, NodeCapacity], dict[str, NodeCapacity]]:
    """The requests of pods by node: those of daemons, which jobs cannot use, and the others."""
    daemons: dict[str, NodeCapacity] = {}
    others: dict[str, NodeCapacity] = {}
    for pod in filter(_is_running, pods):
        owners = {str(owner.get("kind")) for owner in pod["metadata"].get("ownerReferences") or []}
        requests = daemons if owners & {"DaemonSet", "Node"} else others
        node = pod["spec"]["nodeName"]
        requests[node] = requests.get(node, NodeCapacity()) + _pod_request(pod)
    return daemons, others


def _is_running(pod: Any) -> bool:
    """Whether the pod runs on a node and uses its capacity."""
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not is_finished and bool(pod.get("spec", {}).get("nodeName"))


def _pod_request(pod: Any) -> NodeCapacity:
    """The pod's request: its containers together, or the largest of those that run before them."""
    spec = pod["spec"]
    running = sum((_container_request(item) for item in spec.get("containers") or []), NodeCapacity())
    init_requests = [_container_request(item) for item in spec.get("initContainers") or []]
    return NodeCapacity(
        max([running.cpus, *(item.cpus for item in init_requests)]),
        max([running.memory, *(item.memory for item in init_requests)]),
        max([running.gpus, *(item.gpus for item in init_requests)]),
    )


def _container_request(container: Any) -> NodeCapacity:
    resources = container.get("resources") or {}
    requested = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    try:
        return NodeCapacity(
            quantity(requested.get("cpu", 0)),
            quantity(requested.get("memory", 0)),
            int(quantity(requested.get(_GPU, 0))),
        )
    except ValueError:
        return NodeCapacity()
