"""Memory of a training step besides weights and states: stored activations, the loss, the active layer. Bytes.

Sources: Korthikanti et al., Reducing Activation Recomputation (MLSys 2023), for what a layer stores; PyTorch's eager
cross-entropy for the loss: logits in 16 bits, their FP32 copy, the log-softmax and its gradient.
"""

from __future__ import annotations

from enum import StrEnum

from broker.economics.model import ModelShape
from broker.economics.units import not_negative, whole


class Recomputation(StrEnum):
    """The activations that are dropped in the forward pass and recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # attention scores only, as FlashAttention does
    FULL = "full"  # everything but the layers' inputs


def activation_bytes(shape: ModelShape, batch: int, context: int, recomputation: Recomputation) -> float:
    """Activations that one micro-batch of 16-bit training stores for the backward pass.

    Per layer and token: 2 bytes per hidden unit (the layer's input) with full recomputation, otherwise what
    `layer_bytes` says, and without recomputation the attention scores, too (5 bytes per head and token of context).
    """
    tokens = whole("batch", batch) * whole("context", context, most=10**8)
    if recomputation is Recomputation.FULL:
        return tokens * shape.layers * 2.0 * shape.hidden
    scores = 5.0 * shape.heads * context if recomputation is Recomputation.NONE else 0.0
    return tokens * shape.layers * (layer_bytes(shape) + scores)


def layer_bytes(shape: ModelShape) -> float:
    """What one layer stores of one token, 16 bits a value, attention scores not counted.

    34 × hidden for GPT's layer (Korthikanti et al., equation 2). Where the MLP's width is known and it is gated: inputs
    and outputs of two norms (8 × hidden), queries and attention output (4 × their width), keys and values, and four
    vectors of the MLP (gate, up, activation, product) for each expert that works on the token. A GELU that is computed
    operation by operation stores six more values of the MLP's width: under autocast the cube's input, the tangent and
    its successor in 32 bits, and half the input, the output and its copy in 16 to 32, 12 bytes more in all than fused.
    """
    if shape.width is None or not shape.gated:
        widest = shape.width or 4 * shape.hidden
        return 34.0 * shape.hidden + (12.0 * widest if shape.elementwise_gelu else 0.0)
    queries = shape.heads * shape.head_dim
    keys = shape.latent or 2 * shape.kv_heads * shape.head_dim
    return 8.0 * shape.hidden + 4.0 * queries + 2.0 * keys + 8.0 * shape.width * shape.active_experts


def loss_bytes(shape: ModelShape, batch: int, context: int, bytes_per_logit: float) -> float:
    """Logits of a micro-batch and the loss's intermediate values; 0 if the vocabulary is unknown."""
    return not_negative("bytes per logit", bytes_per_logit) * batch * context * (shape.vocabulary or 0)


def prefill_bytes(shape: ModelShape, tokens: int) -> float:
    """What reading ``tokens`` of prompts at once takes in inference: the residual, its norm, and three vectors of the
    MLP of one layer, 16 bits a value. Engines that read prompts in chunks need it for one chunk."""
    wide = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    return tokens * (4.0 * shape.hidden + 6.0 * wide)


def working_bytes(shape: ModelShape, batch: int, context: int) -> float:
    """The layer that is recomputed in the backward pass: its activations, and the gradients of the MLP's two widest
    vectors and of its output."""
    widest = (shape.width or 4 * shape.hidden) * (shape.active_experts if shape.width else 1)
    return batch * context * (layer_bytes(shape) + 4.0 * widest + 2.0 * shape.hidden)
