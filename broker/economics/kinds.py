"""The choices that advice offers: what is done with a model, how weights are stored, what bounds the work."""

from enum import StrEnum


class Method(StrEnum):
    """The use of a model."""

    ADAMW = "adamw"
    SGD = "sgd"
    LORA = "lora"
    QLORA = "qlora"
    INFERENCE = "inference"


class Precision(StrEnum):
    """The storage precision of weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        """Bytes per parameter."""
        return _BYTES[self]


_BYTES = {
    Precision.FP32: 4.0,
    Precision.BF16: 2.0,
    Precision.FP16: 2.0,
    Precision.FP8: 1.0,
    Precision.INT8: 1.0,
    Precision.INT4: 0.5,
}


class Recomputation(StrEnum):
    """The activations that are dropped in the forward pass and recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # attention scores only, as FlashAttention does
    FULL = "full"  # everything but the layers' inputs


class AdaptedLayers(StrEnum):
    """The linear layers that have an adapter."""

    ALL = "all"  # in a mixture of experts those of attention alone: Transformers fuses experts into tensors
    ATTENTION = "attention"  # queries and values, PEFT's default


class BoundBy(StrEnum):
    """The bound of the work's speed: compute for training, memory bandwidth for small-batch inference."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"


class Goal(StrEnum):
    """The purpose of a deployment."""

    FINE_TUNE = "fine-tune"
    PRETRAIN = "pretrain"
    SERVE = "serve"


class Fact(StrEnum):
    """What holds of the work already, or must hold."""

    EXACT_OUTPUT = "exact-output"
    QUANTIZED = "quantized"
    BATCHED = "batched"
    INTERRUPTIBLE = "interruptible"
    CHECKPOINTED = "checkpointed"
    ON_SPOT = "on-spot"
    COMMITTED = "committed"
    AUTOSCALED = "autoscaled"
    MOVES_DATA = "moves-data"
