"""A transformer's shape: what its memory needs beyond the number of parameters, read from its ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.core.errors import InvalidInput
from broker.economics.units import parameter_count, whole

_TWO_MATRIX_MLP = {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "mpt", "starcoder2", "bert"}
_LEARNED_POSITIONS = {"gpt2", "opt", "bert"}
_TIED_UNLESS_SAID = {"gpt2", "opt", "bloom", "gemma", "gemma2", "gemma3_text", "bert"}

USUAL_HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Layers, hidden size, attention heads, key-value heads, dimension of a head; ``vocabulary`` if known."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        whole("layers", self.layers, most=10_000)
        whole("hidden size", self.hidden, most=10**6)
        whole("attention heads", self.heads, most=10**4)
        whole("key-value heads", self.kv_heads, most=10**4)
        whole("head dimension", self.head_dim, most=10**5)
        if self.heads % self.kv_heads:
            raise InvalidInput(f"key-value heads: expected a divisor of the {self.heads} heads, got {self.kv_heads}")

    def kv_bytes_per_token(self, bytes_per_value: float) -> float:
        """KV cache of one token of one sequence, bytes: layers × key-value heads × head dimension × 2 (K and V)."""
        return self.layers * self.kv_heads * self.head_dim * 2 * bytes_per_value


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape and number of ``parameters`` from a Hugging Face ``config.json``.

    ``active_parameters``: those used per token, fewer than all in a mixture of experts.
    """

    shape: ModelShape
    parameters: float
    active_parameters: float


def shape_from(
    *,
    layers: int,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
) -> tuple[ModelShape, tuple[str, ...]]:
    """A shape from partial inputs, and the assumptions in words.

    The size of the KV cache needs layers, key-value heads and head dimension; activations need the hidden size. Raises
    InvalidInput when neither the hidden size nor key-value heads and head dimension are given.
    """
    notes = []
    if hidden is None and (kv_heads is None or head_dim is None):
        raise InvalidInput("architecture: expected the hidden size, or key-value heads and head dimension")
    if head_dim is None:
        head_dim = hidden // heads if hidden and heads else USUAL_HEAD_DIM
        if not heads:
            notes.append(f"head dimension taken as {head_dim}")
    whole("head dimension", head_dim, most=10**5)
    if heads is None:
        heads = hidden // head_dim if hidden else kv_heads
    if hidden is None:
        hidden = (heads or 1) * head_dim
        notes.append("hidden size not given: only the KV cache can be computed")
    if kv_heads is None:
        kv_heads = heads
        notes.append("every head taken to have its own keys and values")
    return ModelShape(layers, hidden, heads or 0, kv_heads or 0, head_dim), tuple(notes)


def read_config(config: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
    """Shape and parameter count from the parsed ``config.json`` of a decoder (Llama, Mistral, Qwen, Gemma, Mixtral,
    GPT-2, GPT-NeoX and similar); of a multimodal file, its ``text_config``.

    The count is the sum of the matrices (attention, MLP, embeddings, experts), within 1 % of the published one for
    those families. Raises InvalidInput, naming the missing key, for other models.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = inner
    if "kv_lora_rank" in config:
        raise InvalidInput(
            "multi-head latent attention is not modelled: give parameters, layers, kv-heads and head-dim", where=where
        )
    hidden = _integer(config, where, "hidden_size", "n_embd", "d_model")
    layers = _integer(config, where, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    heads = _integer(config, where, "num_attention_heads", "n_head", "n_heads")
    kv_heads = _optional(config, where, "num_key_value_heads") or (1 if config.get("multi_query") else heads)
    vocabulary = _integer(config, where, "vocab_size")
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_optional(config, where, "head_dim") or hidden // heads,
        vocabulary=vocabulary,
    )
    kind = str(config.get("model_type", ""))
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings", kind in _TIED_UNLESS_SAID) else 2)
    if kind in _LEARNED_POSITIONS:
        embeddings += (_optional(config, where, "n_positions", "max_position_embeddings") or 0) * hidden
    attention = 2 * hidden * shape.head_dim * (heads + kv_heads)
    width = _optional(config, where, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    matrices = 2 if kind in _TWO_MATRIX_MLP else 3
    experts = _optional(config, where, "num_local_experts", "num_experts") or 1
    if experts > 1:
        width = _optional(config, where, "moe_intermediate_size") or width
    used = min(_optional(config, where, "num_experts_per_tok") or experts, experts)
    mlp = matrices * hidden * width

    def count(expert_count: int) -> float:
        return embeddings + layers * (attention + expert_count * mlp + (hidden * experts if experts > 1 else 0))

    return ModelConfig(shape, parameter_count(count(experts)), parameter_count(count(used)))


def _optional(config: Mapping[str, Any], where: str, *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"{key}: expected a whole number above 0, got {value!r}", where=where)
        return value
    return None


def _integer(config: Mapping[str, Any], where: str, *keys: str) -> int:
    value = _optional(config, where, *keys)
    if value is None:
        raise InvalidInput(
            f"no {keys[0]} in it: not the configuration of a transformer decoder",
            where=where,
            hint="give --parameters, --layers, --hidden, --kv-heads and --head-dim instead",
        )
    return value
