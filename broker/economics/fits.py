"""Which accelerators hold a workload, how many are needed, and the layout.

Rules used (each returned as a caveat): a share of each card stays free; consumer cards only hold what fits on one of
them; FlashAttention-2 needs CUDA compute capability 8.0 and 4-bit kernels 7.5; tensor parallelism stays inside a
machine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import HIDDEN, Gib
from broker.economics.kinds import Method, Precision
from broker.economics.memory import MemoryEstimate, ParallelLayout, lower_bound_cards, usable_gib

FLASH_ATTENTION_2 = (8, 0)
FOUR_BIT_KERNELS = (7, 5)
MAX_GPUS = 4096


@dataclass(frozen=True, slots=True)
class Fit:
    """``gpus`` of an accelerator that hold the workload in this layout.

    ``per_gpu_gib`` of ``usable_gib`` are used on each GPU. ``lower_bound``: cards if everything split evenly, GiB
    divided by GiB; ``gpus`` is larger because not everything splits, and because of the sizes of machines.
    """

    accelerator: str
    gpus: int
    per_gpu_gib: Gib
    usable_gib: Gib
    layout: str
    caveats: tuple[str, ...]
    lower_bound: Annotated[int, HIDDEN]
    tensor_parallel: Annotated[int, HIDDEN]
    pipeline_parallel: Annotated[int, HIDDEN]
    data_parallel: Annotated[int, HIDDEN]
    zero: Annotated[int, HIDDEN]


def find_fits(
    needs: MemoryEstimate,
    accelerators: Iterable[Accelerator],
    *,
    fixed: bool = False,
    assumptions: Assumptions = DEFAULTS,
) -> tuple[Fit, ...]:
    """The smallest arrangement of each accelerator that holds the workload, fewest cards first; accelerators that
    cannot hold it are left out. ``fixed``: keep the layout the estimate was made for instead of looking for one; else
    there are as many whole copies as the ``gpus`` of the assumptions have room for."""
    results = []
    for accelerator in accelerators:
        if needs.workload.trains and accelerator.inference_only:
            continue
        layout = needs.layout if fixed else smallest_layout(needs, accelerator, assumptions)
        if layout is not None and not fixed:
            layout = with_copies(layout, assumptions.gpus)
        usable = usable_gib(accelerator.memory_gib, assumptions.memory_headroom)
        if layout is None or needs.on(layout) > usable or (caveats := _caveats(needs, accelerator, layout)) is None:
            continue
        results.append(
            Fit(
                accelerator=accelerator.name,
                gpus=layout.gpus,
                tensor_parallel=layout.tensor,
                pipeline_parallel=layout.pipeline,
                data_parallel=layout.data,
                zero=layout.zero,
                per_gpu_gib=needs.on(layout),
                usable_gib=usable,
                lower_bound=lower_bound_cards(needs.total_gib, usable),
                layout=describe(needs, layout),
                caveats=caveats,
            )
        )
    return tuple(sorted(results, key=lambda fit: (fit.gpus, fit.usable_gib, fit.accelerator)))


def smallest_layout(
    needs: MemoryEstimate, accelerator: Accelerator, assumptions: Assumptions = DEFAULTS, *, tensor: bool = True
) -> ParallelLayout | None:
    """The arrangement with the fewest cards that holds the workload; None when none does.

    A consumer card holds the whole model, except in QLoRA, which FSDP spreads over the cards of one workstation.

    Cards come as 1, 2, 4, ... up to a machine, then in whole machines. For training, ZeRO-3 is preferred to splitting
    the model, and of splits the smallest. ``tensor`` False: without tensor parallelism, for cards without a fast link.
    """
    usable = usable_gib(accelerator.memory_gib, assumptions.memory_headroom)
    for count in _machine_sizes(assumptions.gpus_per_node):
        if accelerator.consumer and count > _max_consumer_cards(needs, assumptions):
            return None
        for layout in _layouts(count, needs, assumptions.gpus_per_node, tensor):
            if accelerator.consumer and layout.tensor * layout.pipeline > 1:
                continue
            if needs.on(layout) <= usable:
                return layout
    return None


def with_copies(layout: ParallelLayout, gpus: int | None) -> ParallelLayout:
    """The layout in as many whole copies as at least ``gpus`` have room for; ZeRO shares among all of them."""
    copies = max(1, -(-(gpus or layout.gpus) // layout.gpus))
    return ParallelLayout(layout.gpus * copies, layout.tensor, layout.pipeline, layout.zero)


def _max_consumer_cards(needs: MemoryEstimate, assumptions: Assumptions) -> int:
    return assumptions.consumer_cards_per_machine if needs.workload.method is Method.QLORA else 1


def describe(needs: MemoryEstimate, layout: ParallelLayout) -> str:
    """The layout in words, with its effect on activations."""
    if layout.gpus == 1:
        return "one card, states in the host's memory" if layout.offload else "one card"
    if not needs.workload.trains:
        split = layout.tensor * layout.pipeline
        words = f"one copy over {split} cards" if split > 1 else "a full copy on each card"
        return f"{words} (tensor {layout.tensor} × pipeline {layout.pipeline})"
    copies = "one copy" if layout.data == 1 else f"{layout.data} full copies"
    sharing = f"ZeRO-{layout.zero} over {layout.data}" if layout.zero else copies
    if layout.offload:
        sharing += ", states in the host's memory"
    if layout.tensor * layout.pipeline == 1:
        return f"{sharing}; activations whole on each card"
    return f"tensor {layout.tensor} × pipeline {layout.pipeline}, {sharing}; the split also divides the activations"


def _machine_sizes(per_node: int) -> Iterator[int]:
    """1, 2, 4, ... up to a machine, then 2, 3, 4, 6, 8, 12, ... machines."""
    size = 1
    while size < per_node:
        yield size
        size *= 2
    nodes = 1
    while nodes * per_node <= MAX_GPUS:
        yield nodes * per_node
        if nodes >= 2 and nodes & (nodes - 1) == 0 and nodes * 3 // 2 * per_node <= MAX_GPUS:
            yield nodes * 3 // 2 * per_node
        nodes *= 2


def _layouts(count: int, needs: MemoryEstimate, per_node: int, tensor: bool) -> Iterator[ParallelLayout]:
    if not needs.workload.trains:
        degree = min(count, per_node) if tensor else 1
        if count % degree == 0:
            yield ParallelLayout(count, degree, count // degree, 0)
        return
    zero = 3 if count > 1 else 0
    split = 1
    while split <= count:
        tensor_degree = min(split, per_node) if tensor else 1
        if split % tensor_degree == 0 and count % split == 0:
            yield ParallelLayout(count, tensor_degree, split // tensor_degree, zero if count > split else 0)
        split *= 2


def _caveats(needs: MemoryEstimate, accelerator: Accelerator, layout: ParallelLayout) -> tuple[str, ...] | None:
    """Caveats of this card for the workload; None if it cannot be used."""
    workload = needs.workload
    capability = accelerator.compute_capability
    notes = []
    if workload.weights is Precision.INT4 and workload.method is Method.QLORA and capability is None:
        notes.append("4-bit training kernels are CUDA's: expect porting work")
    if capability is not None:
        if workload.weights is Precision.INT4 and capability < FOUR_BIT_KERNELS:
            return None
        if workload.context and capability < FLASH_ATTENTION_2:
            notes.append("no FlashAttention-2 (needs compute capability 8.0): attention takes more memory than shown")
    if workload.weights is Precision.BF16 and accelerator.tflops_bf16 is None:
        notes.append("no BF16: use FP16 with loss scaling")
    if workload.weights is Precision.FP8 and accelerator.tflops_fp8 is None:
        notes.append("no FP8 units: FP8 saves memory here, not time")
    if accelerator.consumer and layout.gpus > 1:
        notes.append("FSDP-QLoRA: sharded 4-bit weights over PCIe, cards in one workstation")
    if layout.tensor > 1 and accelerator.link is None:
        notes.append("no NVLink: tensor parallelism over PCIe is slow")
    if accelerator.vendor != "nvidia":
        notes.append(f"{accelerator.vendor} software stack: porting work (maturity {accelerator.maturity} of 5)")
    return tuple(notes)
