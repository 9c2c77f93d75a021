"""Chooses parallelism from memory needs, card and interconnect: degrees, and a constraint on offers.

Source of the playbook: Rajbhandari et al. 2020 (ZeRO), Narayanan et al. 2021 (Megatron-LM: tensor parallelism inside a
machine, pipeline and data parallelism across machines).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import HIDDEN, Gib
from broker.economics.fits import describe, smallest_layout, with_copies
from broker.economics.kinds import Method
from broker.economics.memory import MemoryEstimate, ParallelLayout, usable_gib


class Strategy(StrEnum):
    """How the work is divided."""

    DATA = "data_parallel"
    TENSOR = "tensor_parallel"
    FSDP = "fsdp"
    PIPELINE = "pipeline_parallel"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Character:
    """A strategy's consequences in words: memory, throughput, latency, complexity."""

    memory: str
    throughput: str
    latency: str
    complexity: str


PLAYBOOK = {
    Strategy.DATA: Character("full copy each", "near-linear", "low", "simple"),
    Strategy.TENSOR: Character("split", "moderate", "high", "moderate"),
    Strategy.FSDP: Character("split", "moderate", "high", "moderate"),
    Strategy.PIPELINE: Character("split", "high", "high", "moderate"),
    Strategy.HYBRID: Character("moderate", "high", "moderate", "high"),
}


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """The strategy with its degrees, its memory per GPU, and its needs.

    ``interconnect``: ``nvlink``, another link's name, ``pcie`` or ``none`` (any). ``machine`` and ``num_nodes`` as in a
    job file: ``H100:8`` on 4 nodes. ``warnings``: drawbacks and remedies.
    """

    strategy: Strategy
    accelerator: str
    gpus: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero: int
    per_gpu_gib: Gib
    usable_gib: Gib
    interconnect: str
    machine: str
    num_nodes: int
    memory: str
    throughput: str
    latency: str
    complexity: str
    why: Annotated[str, HIDDEN]
    warnings: tuple[str, ...]

    @property
    def title(self) -> str:
        name = self.strategy.value.replace("_", " ").replace("fsdp", "ZeRO-3 / FSDP")
        return f"{name} on {self.gpus} × {self.accelerator}: {self.why}"


def choose(
    needs: MemoryEstimate,
    accelerator: Accelerator,
    *,
    linked: bool | None = None,
    gpus: int | None = None,
    assumptions: Assumptions = DEFAULTS,
) -> ParallelPlan:
    """The parallelism for a workload on one kind of card.

    ``linked``: whether the offered machine joins its cards by NVLink (or the vendor's link); None: as the card allows.
    ``gpus``: how many are wanted for speed; at least as many as needed are used, in whole copies of the smallest group
    that holds the workload. Raises InvalidInput if no number of such cards holds it.
    """
    linked = accelerator.link is not None if linked is None else linked
    layout = smallest_layout(needs, accelerator, assumptions, tensor=linked)
    if layout is None:
        raise InvalidInput(f"{accelerator.name}: {_no_fit_reason(needs, accelerator, assumptions)}")
    group = layout.gpus
    layout = with_copies(layout, gpus)
    per_node = min(layout.gpus, assumptions.gpus_per_node)
    is_multi_node = layout.gpus > assumptions.gpus_per_node
    strategy = _strategy(layout, group, linked, is_multi_node)
    character = PLAYBOOK[strategy]
    link = (accelerator.link or "pcie") if linked else "pcie"
    return ParallelPlan(
        strategy=strategy,
        accelerator=accelerator.name,
        gpus=layout.gpus,
        tensor_parallel=layout.tensor,
        pipeline_parallel=layout.pipeline,
        data_parallel=layout.data,
        zero=layout.zero,
        per_gpu_gib=needs.on(layout),
        usable_gib=usable_gib(accelerator.memory_gib, assumptions.memory_headroom),
        interconnect=link if group > 1 else "none",
        machine=f"{accelerator.name}:{per_node}",
        num_nodes=-(-layout.gpus // per_node),
        memory=character.memory,
        throughput=character.throughput,
        latency=character.latency,
        complexity=character.complexity,
        why=_reason_text(needs, accelerator, layout, group, is_multi_node),
        warnings=_warnings(needs, accelerator, layout, group, linked, is_multi_node, assumptions),
    )


def _strategy(layout: ParallelLayout, group: int, linked: bool, is_multi_node: bool) -> Strategy:
    if group == 1:
        return Strategy.DATA
    if layout.tensor * layout.pipeline == 1:
        return Strategy.FSDP
    if not linked:
        return Strategy.PIPELINE
    return Strategy.HYBRID if is_multi_node or layout.data > 1 else Strategy.TENSOR


def _reason_text(
    needs: MemoryEstimate, accelerator: Accelerator, layout: ParallelLayout, group: int, is_multi_node: bool
) -> str:
    size = f"{needs.total_gib:.1f} GiB"
    if group == 1:
        return f"{size} fit on one {accelerator.name}: full copies side by side are simplest and scale best"
    scope = "across machines" if is_multi_node else "inside one machine"
    return f"{size} do not fit on one {accelerator.name}: {describe(needs, layout)}, {scope}"


def _no_fit_reason(needs: MemoryEstimate, accelerator: Accelerator, assumptions: Assumptions) -> str:
    usable = usable_gib(accelerator.memory_gib, assumptions.memory_headroom)
    if accelerator.consumer:
        return (
            f"{needs.total_gib:.1f} GiB do not fit on one card ({usable:.1f} GiB usable), and consumer cards are for "
            "what fits on one: data parallelism, QLoRA, single-card inference. Take a data-center card, or a smaller "
            "or quantized model"
        )
    return (
        f"{needs.total_gib:.1f} GiB do not fit on any number of them without splitting further "
        f"({usable:.1f} GiB usable): recompute activations, use a smaller micro-batch, or larger cards"
    )


def _warnings(
    needs: MemoryEstimate,
    accelerator: Accelerator,
    layout: ParallelLayout,
    group: int,
    linked: bool,
    is_multi_node: bool,
    assumptions: Assumptions,
) -> tuple[str, ...]:
    notes = []
    if group > 1 and not linked:
        notes.append(
            f"no fast link: exchanges over PCIe are about {assumptions.pcie_allreduce_slowdown:g} times slower than "
            "over NVLink; consider a card that holds the model alone, or a smaller model"
        )
    if accelerator.consumer:
        notes.append(
            f"consumer card: expect to lose about {assumptions.consumer_heat_loss:.0%} of its speed to heat in a dense "
            "rack"
        )
    if is_multi_node and needs.workload.trains:
        notes.append("across machines the network is the limit: use 100 Gb/s or more per machine (RDMA)")
    if needs.workload.method is Method.INFERENCE and layout.pipeline > 1:
        notes.append("pipeline stages add latency to each token: fine for throughput, poor for chat")
    return tuple(notes)
