"""A transformer's shape, from which its memory is computed together with the number of parameters; read from its
``config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.core.errors import InvalidInput
from broker.economics.units import parameter_count, whole

_TWO_MATRIX_MLP = {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "mpt", "starcoder2", "bert"}
_LEARNED_POSITIONS = {"gpt2", "opt", "bert"}
_TIED_BY_DEFAULT = {"gpt2", "opt", "bloom", "gemma", "gemma2", "gemma3_text", "bert"}

USUAL_HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Layers, hidden size, attention heads, key-value heads, dimension of a head; further fields if known.

    ``vocabulary``: tokens; ``tied``: input and output share one embedding. ``width``: of the MLP, of one expert in a
    mixture, of which ``active_experts`` work on a token; ``gated``: three matrices, not two. ``latent``: with
    multi-head latent attention, the values that the KV cache holds of a token in a layer, instead of keys and values.
    ``elementwise_gelu``: Transformers computes its GELU operation by operation (``gelu_new``), each of which is stored.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int | None = None
    width: int | None = None
    gated: bool = True
    tied: bool = False
    latent: int | None = None
    active_experts: int = 1
    elementwise_gelu: bool = False

    def __post_init__(self) -> None:
        whole("layers", self.layers, most=10_000)
        whole("hidden size", self.hidden, most=10**6)
        whole("attention heads", self.heads, most=10**4)
        whole("key-value heads", self.kv_heads, most=10**4)
        whole("head dimension", self.head_dim, most=10**5)
        for name, value in (("vocabulary", self.vocabulary), ("MLP width", self.width), ("latent", self.latent)):
            if value is not None:
                whole(name, value)
        whole("active experts", self.active_experts, most=10**4)
        if self.heads % self.kv_heads:
            raise InvalidInput(f"key-value heads: expected a divisor of the {self.heads} heads, got {self.kv_heads}")

    def kv_bytes_per_token(self, bytes_per_value: float) -> float:
        """KV cache of one token of one sequence, bytes: layers × key-value heads × head dimension × 2 (K and V); with
        latent attention layers × latent values."""
        values = self.latent or self.kv_heads * self.head_dim * 2
        return self.layers * values * bytes_per_value

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embeddings of input and output, which quantization leaves unchanged; 0 if unknown."""
        return (self.vocabulary or 0) * self.hidden * (1 if self.tied else 2)


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
    DeepSeek, GPT-2, GPT-NeoX and similar); of a multimodal file, its ``text_config``.

    The count is the sum of the matrices (attention, MLP, embeddings, experts), within 1 % of the published one for
    those families. Raises InvalidInput, naming the missing key, for other models.
    """
    text_config = config.get("text_config")
    if isinstance(text_config, Mapping):
        config = text_config
    hidden = _integer(config, where, "hidden_size", "n_embd", "d_model")
    layers = _integer(config, where, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    heads = _integer(config, where, "num_attention_heads", "n_head", "n_heads")
    kv_heads = _optional(config, where, "num_key_value_heads") or (1 if config.get("multi_query") else heads)
    vocabulary = _integer(config, where, "vocab_size")
    kind = str(config.get("model_type", ""))
    tied = bool(config.get("tie_word_embeddings", kind in _TIED_BY_DEFAULT))
    head_dim = _optional(config, where, "head_dim") or hidden // heads
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    latent = None
    if "kv_lora_rank" in config:
        latent, attention = _latent_attention(config, where, hidden, heads)
    mlp = _mlp(config, where, kind, hidden, layers)
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        width=mlp.width,
        gated=kind not in _TWO_MATRIX_MLP,
        tied=tied,
        latent=latent,
        active_experts=mlp.experts_per_token,
        elementwise_gelu=_activation(config, kind) in ("gelu_new", "gelu_fast"),
    )
    embeddings = shape.embedding_parameters
    if kind in _LEARNED_POSITIONS:
        embeddings += (_optional(config, where, "n_positions", "max_position_embeddings") or 0) * hidden
    common = embeddings + layers * attention
    return ModelConfig(shape, parameter_count(common + mlp.parameters), parameter_count(common + mlp.active_parameters))


def _activation(config: Mapping[str, Any], kind: str) -> object:
    """The name of the activation function, Transformers' default for GPT-2 and its relatives included."""
    default = "gelu_new" if kind in ("gpt2", "gptj", "gpt_neo") else ""
    return config.get("activation_function") or config.get("hidden_act") or default


@dataclass(frozen=True, slots=True)
class _Mlp:
    """The MLPs of all layers; ``width`` and ``experts_per_token`` as in `ModelShape`."""

    width: int
    experts_per_token: int
    parameters: float
    active_parameters: float


def _mlp(config: Mapping[str, Any], where: str, kind: str, hidden: int, layers: int) -> _Mlp:
    """Dense, or a mixture with routed and shared experts after some dense layers (DeepSeek)."""
    dense_width = _optional(config, where, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    matrix = (2 if kind in _TWO_MATRIX_MLP else 3) * hidden
    experts = _optional(config, where, "num_local_experts", "num_experts", "n_routed_experts") or 1
    if experts == 1:
        total = float(layers * matrix * dense_width)
        return _Mlp(dense_width, 1, total, total)
    width = _optional(config, where, "moe_intermediate_size") or dense_width
    shared = (_optional(config, where, "n_shared_experts") or 0) * width
    shared += _optional(config, where, "shared_expert_intermediate_size") or 0
    active = min(_optional(config, where, "num_experts_per_tok") or experts, experts)
    dense = min(_optional(config, where, "first_k_dense_replace") or 0, layers)
    common = dense * matrix * dense_width + (layers - dense) * (matrix * shared + hidden * experts)

    def count(routed: int) -> float:
        return float(common + (layers - dense) * matrix * width * routed)

    return _Mlp(width, active + round(shared / width), count(experts), count(active))


def _latent_attention(config: Mapping[str, Any], where: str, hidden: int, heads: int) -> tuple[int, int]:
    """The number of values cached per token and layer, and of parameters of a layer's attention (DeepSeek-V2,
    arXiv:2405.04434)."""
    rank = _integer(config, where, "kv_lora_rank")
    rotary = _integer(config, where, "qk_rope_head_dim")
    plain = _integer(config, where, "qk_nope_head_dim")
    value = _integer(config, where, "v_head_dim")
    query_rank = _optional(config, where, "q_lora_rank")
    queries = heads * (plain + rotary)
    down = hidden * queries if query_rank is None else query_rank * (hidden + queries)
    return rank + rotary, down + hidden * (rank + rotary) + rank * heads * (plain + value) + heads * value * hidden


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
