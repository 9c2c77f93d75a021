"""Memory to train, adapt or serve a model: in total, and on each card.

All sizes GiB (2**30 bytes). Sources: Rajbhandari et al., ZeRO (SC 2020), for the states and their sharding;
Korthikanti et al., Reducing Activation Recomputation (MLSys 2023), for activations from the architecture; Dettmers
et al., QLoRA (NeurIPS 2023).
"""

from dataclasses import dataclass, replace
from typing import Annotated

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.families import shape_for, with_vocabulary
from broker.economics.figures import HIDDEN, Gib
from broker.economics.kinds import AdaptedLayers, Method, Precision, Recomputation
from broker.economics.model import ModelShape
from broker.economics.units import GIB, ceil, fraction, not_negative, parameter_count, positive, whole


@dataclass(frozen=True, slots=True)
class AdapterInputs:
    """What adapters on frozen weights store: ``bytes_per_value`` of the input of each adapted layer."""

    bytes_per_value: float
    adapted: AdaptedLayers = AdaptedLayers.ALL

    def bytes_per_token(self, shape: ModelShape) -> float:
        """Bytes that the adapters of one layer store per token: the inputs of queries, keys, values, attention output
        and the MLP's matrices."""
        values = 2 * shape.hidden
        if self.adapted is AdaptedLayers.ALL:
            values = 3 * shape.hidden + shape.heads * shape.head_dim
            if shape.active_experts == 1:
                gated = shape.gated and shape.width is not None
                values += (2 if gated else 1) * shape.hidden + (shape.width or 4 * shape.hidden)
        return not_negative("adapter input bytes", self.bytes_per_value) * values


def activation_bytes(
    shape: ModelShape,
    batch: int,
    context: int,
    recomputation: Recomputation,
    adapters: AdapterInputs | None = None,
) -> float:
    """Activations that one micro-batch of 16-bit training stores for the backward pass.

    Per layer and token: 2 bytes per hidden unit (the layer's input) with full recomputation, otherwise what
    `layer_bytes` says, and without recomputation the attention scores, too (5 bytes per head and token of context).
    """
    tokens = whole("batch", batch) * whole("context", context, most=10**8)
    if recomputation is Recomputation.FULL:
        return tokens * shape.layers * 2.0 * shape.hidden
    scores = 5.0 * shape.heads * context if recomputation is Recomputation.NONE else 0.0
    return tokens * shape.layers * (layer_bytes(shape, adapters) + scores)


def layer_bytes(shape: ModelShape, adapters: AdapterInputs | None = None) -> float:
    """Bytes that one layer stores per token, 16 bits a value, without attention scores.

    34 × hidden for GPT's layer (Korthikanti et al., equation 2). Where the MLP's width is known and it is gated: two
    norms as Transformers computes them (16 × hidden: the input in 32 bits, the normalized vector, the output), queries
    and attention output (4 × their width), keys and values, and four vectors of the MLP (gate, up, activation, product)
    for each expert that works on the token. A GELU that is computed operation by operation stores six more values of
    the MLP's width: under autocast the cube's input, the tangent and its successor in 32 bits, and half the input, the
    output and its copy in 16 to 32, 12 bytes more in all than fused.

    With ``adapters`` the weights are frozen, so that what only their gradients need is not stored (normalized vectors,
    outputs of norms, the MLP's product); the adapters' inputs are.
    """
    widest = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    if shape.width is None or not shape.gated:
        stored = 34.0 * shape.hidden + (12.0 * widest if shape.elementwise_gelu else 0.0)
        for_gradients = 4.0 * shape.hidden + 2.0 * widest
    else:
        queries = shape.heads * shape.head_dim
        keys = shape.latent or 2 * shape.kv_heads * shape.head_dim
        stored = 16.0 * shape.hidden + 4.0 * queries + 2.0 * keys + 8.0 * widest
        for_gradients = 8.0 * shape.hidden + 2.0 * widest
    return stored if adapters is None else stored - for_gradients + adapters.bytes_per_token(shape)


def loss_bytes(shape: ModelShape, batch: int, context: int, bytes_per_logit: float) -> float:
    """Bytes of a micro-batch's logits and the loss's intermediate values; 0 if the vocabulary is unknown."""
    return not_negative("bytes per logit", bytes_per_logit) * batch * context * (shape.vocabulary or 0)


def prefill_bytes(shape: ModelShape, tokens: int) -> float:
    """Bytes that inference needs to read ``tokens`` of prompts at once: the residual, its norm, and three vectors of
    the MLP of one layer, 16 bits a value. Engines that read prompts in chunks need it for one chunk."""
    wide = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    return tokens * (4.0 * shape.hidden + 6.0 * wide)


def elementwise_bytes(shape: ModelShape, *, eager: bool = False) -> float:
    """Bytes that elementwise operations (all but matrices and attention) read and write per token of a prompt, 16 bits
    a value: with each norm its residual (12 × hidden), the MLP's activation and product (6 × its width), rotation
    and the KV cache (4 × queries, keys and values). ``eager``: each operation by itself, as in plain PyTorch: norms and
    residuals 20 × hidden, 10 × the width, rotation in five passes.
    """
    wide = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if eager:
        return shape.layers * (20.0 * shape.hidden + 10.0 * wide + 20.0 * (queries + keys) + 8.0 * keys + 4.0 * queries)
    return shape.layers * (12.0 * shape.hidden + 6.0 * wide + 4.0 * (queries + 2 * keys))


def working_bytes(shape: ModelShape, batch: int, context: int, adapters: AdapterInputs | None = None) -> float:
    """Bytes of the layer that is recomputed in the backward pass: its activations, and the gradients of the MLP's two
    widest vectors and of its output."""
    widest = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    return batch * context * (layer_bytes(shape, adapters) + 4.0 * widest + 2.0 * shape.hidden)


def gathered_bytes(shape: ModelShape, batch: int, context: int) -> float:
    """Bytes of the last hidden vectors of all tokens, 16 bits a value: sequence parallelism gathers them on each tensor
    rank for the output layer, which holds a part of the vocabulary."""
    return batch * context * 2.0 * shape.hidden


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model and its use.

    ``parameters``: their number. ``precision``: of the weights; None for the method's usual one. ``batch``: sequences
    at once on one card (micro-batch in training, concurrent sequences in inference), ``context``: tokens of each.
    ``shape``: None to infer it from the number of parameters. ``recomputation``: None for the method's usual one.
    ``kv_precision``: of the KV cache. ``gradients_freed``: gradients are freed between steps (PyTorch's default
    ``zero_grad``, one GPU, no accumulation), so they do not coexist with the activations. ``adapted``: layers with an
    adapter. Raises InvalidInput for inconsistent values.
    """

    parameters: float
    method: Method = Method.ADAMW
    precision: Precision | None = None
    batch: int = 1
    context: int = 0
    shape: ModelShape | None = None
    recomputation: Recomputation | None = None
    kv_precision: Precision = Precision.FP16
    gradients_freed: bool = False
    adapted: AdaptedLayers = AdaptedLayers.ALL

    def __post_init__(self) -> None:
        parameter_count(self.parameters)
        whole("batch", self.batch)
        whole("context", self.context, least=0, most=10**8)
        if self.method in (Method.ADAMW, Method.SGD) and self.weights in (Precision.INT8, Precision.INT4):
            raise InvalidInput(
                f"precision: {self.method} updates all weights and cannot do it in {self.weights}",
                hint="train in bf16, fp16, fp8 or fp32, or adapt quantized weights with --method qlora",
            )

    @property
    def trains(self) -> bool:
        return self.method is not Method.INFERENCE

    @property
    def weights(self) -> Precision:
        """The storage precision of the weights. QLoRA stores 4 bits (or 8, if requested), whatever the precision of its
        computation."""
        if self.method is Method.QLORA:
            return Precision.INT8 if self.precision is Precision.INT8 else Precision.INT4
        return self.precision or Precision.BF16

    @property
    def recomputes(self) -> Recomputation:
        """The activations that are recomputed: as requested; by default all for QLoRA (as PEFT does), else
        attention."""
        usual = Recomputation.FULL if self.method is Method.QLORA else Recomputation.SELECTIVE
        return self.recomputation or usual


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that advice is about: ``parameters``, those ``active`` for one token, its ``shape`` if known, and
    ``notes`` on assumed figures. ``kv_only``: the shape is sufficient for the KV cache only."""

    parameters: float
    active: float
    shape: ModelShape | None = None
    notes: tuple[str, ...] = ()
    kv_only: bool = False

    def workload(self, method: Method, assumptions: Assumptions = DEFAULTS) -> ModelUse:
        """A use of the model. A shape that is sufficient for the KV cache only is not used to estimate activations."""
        return ModelUse(
            self.parameters,
            method,
            assumptions.precision,
            assumptions.batch or 1,
            assumptions.context or 0,
            None if self.kv_only and method is not Method.INFERENCE else self.shape,
            assumptions.recomputation,
            assumptions.kv_precision,
            assumptions.gradients_freed,
            assumptions.adapted,
        )


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """The layout over ``gpus`` = tensor × pipeline × data parallel degrees, and the ZeRO stage (0 to 3; 3 is FSDP).
    ``offload``: weights, gradients and optimizer are in the host's memory, and two layers at a time on the GPU
    (ZeRO-Infinity, FSDP's CPU offload). Raises InvalidInput when the degrees do not divide the GPUs, and for an offload
    without ZeRO stage 3.
    """

    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    offload: bool = False

    def __post_init__(self) -> None:
        for name, value in (("gpus", self.gpus), ("tensor degree", self.tensor), ("pipeline degree", self.pipeline)):
            whole(name, value)
        whole("ZeRO stage", self.zero, least=0, most=3)
        if self.offload and self.zero != 3:
            raise InvalidInput(
                "offload: weights in the host's memory need ZeRO stage 3", hint="give --assume zero=3, too"
            )
        if self.gpus % (self.tensor * self.pipeline):
            raise InvalidInput(
                f"gpus: {self.gpus} cannot be split into tensor {self.tensor} × pipeline {self.pipeline} groups"
            )

    @property
    def data(self) -> int:
        """The data-parallel degree: the number of copies (with ZeRO they share their states)."""
        return self.gpus // (self.tensor * self.pipeline)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The memory of a workload, GiB; ``per_gpu_gib`` under its layout.

    ``activations_gib``: stored for the backward pass; ``loss_gib``: logits and the loss's intermediate values;
    ``working_gib``: what the active layer needs beyond that, after the loss; ``runtime_gib``: driver and libraries, on
    each GPU. ``prefill_gib``: in inference, what reading a whole batch of prompts at once takes; not in the total.
    ``workload``: with the shape and context that were used. ``assumptions``: in words, the values assumed for missing
    inputs.
    """

    workload: Annotated[ModelUse, HIDDEN]
    layout: Annotated[ParallelLayout, HIDDEN]
    weights_gib: Gib
    gradients_gib: Gib
    optimizer_gib: Gib
    activations_gib: Gib
    loss_gib: Gib
    working_gib: Gib
    runtime_gib: Gib
    kv_cache_gib: Gib
    prefill_gib: Annotated[Gib, HIDDEN]
    total_gib: Gib
    per_gpu_gib: Gib
    assumptions: tuple[str, ...]

    def on(self, layout: ParallelLayout) -> float:
        """GiB on each GPU under another layout.

        Tensor and pipeline parallelism split everything; ZeRO shares the optimizer (stage 1), the gradients too (2)
        and the weights too (3) among the data-parallel copies, but two layers at a time are whole on each. Activations
        are not shared by ZeRO; each tensor rank gathers the last hidden vectors for its part of the output. The KV
        cache cannot be split among more tensor ranks than there are key-value heads, and that of latent attention not
        at all; the loss is with the last pipeline stage.
        """
        model = layout.tensor * layout.pipeline
        copies = layout.data if self.workload.trains else 1
        optimizer = self.optimizer_gib / model / (copies if layout.zero >= 1 else 1)
        gradients = self.gradients_gib / model / (copies if layout.zero >= 2 else 1)
        weights = self.weights_gib / model / (copies if layout.zero >= 3 else 1)
        shape = self.workload.shape
        kv_ranks = min(layout.tensor, 1 if shape.latent else shape.kv_heads) if shape else layout.tensor
        cache = self.kv_cache_gib / (kv_ranks * layout.pipeline)
        transient = self.activations_gib / model + (self.loss_gib + self.working_gib) / layout.tensor
        if layout.tensor > 1 and shape and self.loss_gib:
            transient += gathered_bytes(shape, self.workload.batch, self.workload.context) / GIB
        if self.workload.gradients_freed and layout.gpus == 1:
            gradients -= min(gradients, transient)
        if layout.offload:
            loaded_share = min(2.0, shape.layers) / shape.layers if shape else 1.0
            return loaded_share * self.weights_gib / model + cache + transient + self.runtime_gib
        if layout.zero >= 3 and copies > 1 and shape and self.loss_gib:
            whole_layers = min(2.0, shape.layers) / shape.layers * self.weights_gib / model
            transient += whole_layers * (1 - 1 / copies)
        return weights + gradients + optimizer + cache + transient + self.runtime_gib


def estimate(
    workload: ModelUse, layout: ParallelLayout | None = None, assumptions: Assumptions = DEFAULTS
) -> MemoryEstimate:
    """The memory of a workload.

    Training: weights in their precision, FP32 gradients, optimizer state, activations; for LoRA and QLoRA gradients
    and optimizer only of the adapter's share of the parameters. Inference: weights and KV cache. Raises InvalidInput.
    """
    layout = layout or ParallelLayout()
    notes: list[str] = []
    workload = _with_shape(workload, assumptions, notes)
    weights = _weights(workload, assumptions, notes)
    gradients, optimizer = _states(workload, assumptions, notes)
    activations, loss, working = (
        _activations(workload, weights, assumptions, notes) if workload.trains else (0.0, 0.0, 0.0)
    )
    cache = 0.0 if workload.trains else _cache(workload, notes)
    runtime = assumptions.runtime_gib * GIB if workload.trains and workload.context else 0.0
    overlap = min(gradients, activations + loss + working) if workload.gradients_freed and layout.gpus == 1 else 0.0
    total = weights + gradients + optimizer + activations + loss + working + runtime + cache - overlap
    prefill = 0.0
    if workload.shape is not None and not workload.trains:
        prefill = prefill_bytes(workload.shape, workload.batch * workload.context)
    if layout.data > 1 and not layout.zero and workload.trains:
        notes.append(f"plain data parallelism: each of the {layout.data} copies holds everything")
    if activations and layout.zero:
        notes.append("ZeRO does not share activations; only tensor and pipeline parallelism split them here")
    if layout.offload:
        states = (weights + gradients + optimizer) / GIB
        notes.append(f"offload: {states:,.0f} GiB of host memory over all machines; each step waits for PCIe")
    needs = MemoryEstimate(
        workload=workload,
        layout=layout,
        weights_gib=weights / GIB,
        gradients_gib=gradients / GIB,
        optimizer_gib=optimizer / GIB,
        activations_gib=activations / GIB,
        loss_gib=loss / GIB,
        working_gib=working / GIB,
        runtime_gib=runtime / GIB,
        kv_cache_gib=cache / GIB,
        prefill_gib=prefill / GIB,
        total_gib=total / GIB,
        per_gpu_gib=0.0,
        assumptions=tuple(notes),
    )
    return replace(needs, per_gpu_gib=needs.on(layout))


def kv_cache_bytes(shape: ModelShape, batch: int, context: int, precision: Precision = Precision.FP16) -> float:
    """KV cache in bytes: batch × context × layers × key-value heads × head dimension × 2 (K and V) × bytes.

    With grouped-query attention only the key-value heads count, not all attention heads.
    """
    whole("batch", batch)
    whole("context", context, most=10**8)
    return batch * context * shape.kv_bytes_per_token(precision.bytes)


def usable_gib(memory_gib: float, headroom: float) -> float:
    """Usable memory of a card, GiB, when ``headroom`` (0 to 1) stays free for the allocator."""
    positive("memory", memory_gib, "GiB")
    not_negative("headroom", headroom, most=0.9)
    return memory_gib * (1 - headroom)


def lower_bound_cards(total_gib: float, usable: float) -> int:
    """The fewest cards of ``usable`` GiB that could hold ``total_gib`` if everything could be split evenly."""
    return max(1, ceil(not_negative("total", total_gib, "GiB") / positive("usable memory", usable, "GiB")))


def _states(workload: ModelUse, assumptions: Assumptions, notes: list[str]) -> tuple[float, float]:
    """Bytes of gradients and optimizer."""
    if not workload.trains:
        return 0.0, 0.0
    trained = workload.parameters
    if workload.method in (Method.LORA, Method.QLORA):
        trained *= fraction("adapter fraction", assumptions.adapter_fraction)
        notes.append(f"adapters of {assumptions.adapter_fraction:.2%} of the parameters")
        if workload.method is Method.QLORA and workload.precision not in (None, workload.weights):
            notes.append(f"QLoRA computes in {workload.precision} and stores weights in {workload.weights}")
    if workload.method is Method.SGD:
        per_parameter = assumptions.sgd_bytes
    elif workload.weights is Precision.FP32:
        per_parameter = assumptions.adamw_fp32_bytes
        notes.append("FP32 weights are their own master copy: the optimizer holds two moments")
    else:
        per_parameter = assumptions.adamw_bytes
    not_negative("gradient bytes", assumptions.gradient_bytes)
    return trained * assumptions.gradient_bytes, trained * not_negative("optimizer bytes", per_parameter)


def _with_shape(workload: ModelUse, assumptions: Assumptions, notes: list[str]) -> ModelUse:
    """The workload with the context and shape to compute with; unchanged if it has no batch and no context."""
    if workload.trains and workload.batch > 1 and not workload.context:
        notes.append(f"context taken as {assumptions.assumed_context:,} tokens, because a batch is given")
        workload = replace(workload, context=assumptions.assumed_context)
    if not workload.context:
        return workload
    if workload.shape is None:
        shape, origin = shape_for(workload.parameters)
        notes.append(origin)
        return replace(workload, shape=shape)
    shape, new_notes = with_vocabulary(workload.shape, workload.parameters) if workload.trains else (workload.shape, ())
    notes += new_notes
    return replace(workload, shape=shape)


def _weights(workload: ModelUse, assumptions: Assumptions, notes: list[str]) -> float:
    """Bytes of the weights. In 4 or 8 bits the embeddings, where the vocabulary is known, keep 16 or 32."""
    unquantized = workload.parameters * workload.weights.bytes
    embeddings = workload.shape.embedding_parameters if workload.shape and workload.context else 0
    if workload.weights not in (Precision.INT8, Precision.INT4) or not 0 < embeddings < workload.parameters:
        return unquantized
    embedding_bytes = assumptions.unquantized_bytes if workload.method is Method.QLORA else Precision.FP16.bytes
    notes.append(f"embeddings of {embeddings / 1e9:.2g}B parameters keep {8 * embedding_bytes:g} bits")
    quantized = workload.weights.bytes + (
        assumptions.quantized_block_bytes if workload.weights is Precision.INT4 else 0.0
    )
    return (workload.parameters - embeddings) * quantized + embeddings * embedding_bytes


def _activations(
    workload: ModelUse, weights: float, assumptions: Assumptions, notes: list[str]
) -> tuple[float, float, float]:
    """Bytes of stored activations, of the loss, and of the active layer beyond the loss."""
    shape, batch, context = workload.shape, workload.batch, workload.context
    if shape is None or not context:
        factor = not_negative("activations per weight byte", assumptions.activations_per_weight)
        notes.append(f"activations taken as {factor:g} × the weights: give the context to compute them")
        return factor * weights, 0.0, 0.0
    recomputed = workload.recomputes
    scale = 2.0 if workload.weights is Precision.FP32 else 1.0  # the formulas count 16-bit activations
    adapters = None
    if workload.method in (Method.LORA, Method.QLORA):
        adapters = AdapterInputs(assumptions.adapter_input_bytes / scale, workload.adapted)
    stored = scale * activation_bytes(shape, batch, context, recomputed, adapters)
    loss = loss_bytes(shape, batch, context, assumptions.logit_bytes)
    working = scale * working_bytes(shape, batch, context, adapters) if recomputed is Recomputation.FULL else 0.0
    notes.append(f"activations of one micro-batch of {batch} × {context} tokens, recomputation {recomputed}")
    if loss:
        notes.append(f"loss of {assumptions.logit_bytes:g} bytes per logit (eager PyTorch); a fused loss needs about 2")
    if adapters and recomputed is not Recomputation.FULL:
        inputs = scale * batch * context * shape.layers * adapters.bytes_per_token(shape) / GIB
        unit_text = f"{assumptions.adapter_input_bytes:g} bytes a value"
        notes.append(
            f"{inputs:,.1f} GiB of them are inputs of adapters on {workload.adapted} linear layers, {unit_text}"
        )
    if recomputed is not Recomputation.FULL:
        full = activation_bytes(shape, batch, context, Recomputation.FULL)
        notes.append(f"with full recomputation the activations are {scale * full / GIB:,.1f} GiB")
    return stored, loss, max(0.0, working - loss)


def _cache(workload: ModelUse, notes: list[str]) -> float:
    if workload.shape is None:
        notes.append("no KV cache counted: give batch and context")
        return 0.0
    if not workload.context:
        notes.append("no KV cache counted: give the context length")
        return 0.0
    return kv_cache_bytes(workload.shape, workload.batch, workload.context, workload.kv_precision)
