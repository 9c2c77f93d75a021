"""Memory of a training step besides weights and states: stored activations, the loss, the active layer. Bytes.

Sources: Korthikanti et al., Reducing Activation Recomputation (MLSys 2023), for what a layer stores; the code of
Transformers for what its RMSNorm stores; PEFT's `lora.Linear`, which casts its input to the adapter's precision;
PyTorch's eager cross-entropy for the loss: logits in 16 bits, their FP32 copy, the log-softmax and its gradient.
"""

from dataclasses import dataclass

from broker.economics.kinds import AdaptedLayers, Recomputation
from broker.economics.model import ModelShape
from broker.economics.units import not_negative, whole


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
