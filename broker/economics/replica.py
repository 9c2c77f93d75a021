"""One serving replica with continuous batching: how many sequences fit, how fast it answers. Times seconds.

A step of generation reads the weights and each sequence's KV cache once and exchanges activations between the cards of
the replica; prompts are read at the compute rate in between. Sources: Yu et al., Orca (OSDI 2022), for iteration-level
scheduling; Kwon et al., vLLM (SOSP 2023), for the KV cache as the limit of the batch; Pope et al., Efficiently Scaling
Transformer Inference (MLSys 2023), for the costs of a step and of the exchange.
"""

from dataclasses import dataclass, replace

from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Method, Precision
from broker.economics.memory import ModelUse, ParallelLayout, elementwise_bytes, estimate, prefill_bytes, usable_gib
from broker.economics.model import ModelShape
from broker.economics.throughput import all_reduce_seconds, inference_flops, peak_tflops
from broker.economics.units import GB, GIB, TERA, fraction, not_negative, positive, share, whole

_MOST_TOKENS = 1e8  # of one request


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model for serving: ``parameters`` in total and ``active`` per token, its shape, and the precision of weights
    and KV cache.

    A request has ``prompt_tokens``, of which a prefix cache knows ``cached_share``, and ``output_tokens`` generated.
    ``context``: tokens reserved in the KV cache, if more than both. ``eager``: operations run one by one, as in
    plain PyTorch, not fused as in serving engines.
    """

    parameters: float
    active: float
    shape: ModelShape
    precision: Precision
    prompt_tokens: float
    output_tokens: float
    kv_precision: Precision = Precision.FP16
    cached_share: float = 0.0
    context: float = 0.0
    eager: bool = False

    def __post_init__(self) -> None:
        positive("parameters", self.parameters)
        positive("active parameters", self.active, most=self.parameters)
        not_negative("prompt tokens", self.prompt_tokens, most=_MOST_TOKENS)
        positive("output tokens", self.output_tokens, most=_MOST_TOKENS)
        share("cached share of prompts", self.cached_share)
        not_negative("context", self.context, most=_MOST_TOKENS)

    @property
    def room(self) -> float:
        """Tokens of KV cache reserved for a sequence."""
        return max(self.context, self.prompt_tokens + self.output_tokens)

    @property
    def lookup_parameters(self) -> int:
        """Parameters of the input embedding that a token does not use: it reads one row."""
        return 0 if self.shape.tied else (self.shape.vocabulary or 0) * self.shape.hidden

    @property
    def layers_active(self) -> float:
        """The active parameters of the layers, without the output layer: all but the last token of a prompt use only
        these."""
        return max(self.active - self.shape.embedding_parameters, 0.5 * self.active)


@dataclass(frozen=True, slots=True)
class ReplicaSpeed:
    """A replica of ``gpus`` cards at full load: sequences at once, requests and output tokens per second.

    ``time_to_first_token_s``: of a request that does not wait, its prompt read alone; ``time_per_token_s``: between
    two tokens of one answer at full load. ``prefill_share``: of the time, for reading prompts.
    """

    gpus: int
    batch: int
    requests_per_second: float
    tokens_per_second: float
    time_to_first_token_s: float
    step_s: float
    time_per_token_s: float
    prefill_share: float


def replica_speed(
    model: ServedModel, card: Accelerator, gpus: int, batch: int | None = None, assumptions: Assumptions = DEFAULTS
) -> ReplicaSpeed | None:
    """The speed of a replica; None where it does not hold the model with one sequence, or the card's peak is unknown.

    ``batch``: sequences at once; None for as many as the free memory holds, at most those an engine schedules
    (`Assumptions.serving_most_sequences`). With b sequences a request takes its prompt's time of the whole replica,
    which gives its first token, and step(b) ÷ b for each further one, so that requests per second are one over the sum.
    """
    for name in ("prefill_efficiency", "decode_efficiency", "matrix_efficiency", "attention_efficiency",
                 "cache_efficiency"):  # fmt: skip
        fraction(name, getattr(assumptions, name))
    positive("serving_pace", assumptions.serving_pace)
    peak = peak_tflops(card, model.precision)
    max_sequences = sequences(model, card, gpus, assumptions)
    if peak is None or max_sequences < 1 or (batch is not None and whole("batch", batch) > max_sequences):
        return None
    active = min(max_sequences, assumptions.serving_most_sequences) if batch is None else batch
    step = step_seconds(model, card, gpus, active, assumptions)
    prompt = prompt_seconds(model, card, gpus, assumptions)
    remaining_tokens = model.output_tokens if not prompt else max(0.0, model.output_tokens - 1)
    request_seconds = prompt + remaining_tokens * step / active
    prefill = prompt / request_seconds
    return ReplicaSpeed(
        gpus=gpus,
        batch=active,
        requests_per_second=1 / request_seconds,
        tokens_per_second=model.output_tokens / request_seconds,
        time_to_first_token_s=prompt + assumptions.serving_step_s if prompt else step,
        step_s=step,
        time_per_token_s=step / (1 - prefill) if remaining_tokens else step,
        prefill_share=prefill,
    )


def sequences(model: ServedModel, card: Accelerator, gpus: int, assumptions: Assumptions = DEFAULTS) -> int:
    """The number of sequences (prompt and output) that fit into the replica's memory next to the weights, a chunk of a
    prompt and the share kept free; 0 if the model does not fit."""
    use = ModelUse(
        model.parameters, Method.INFERENCE, model.precision, context=max(1, round(model.room)), shape=model.shape,
        kv_precision=model.kv_precision,
    )  # fmt: skip
    needs = estimate(use, ParallelLayout(gpus, gpus), assumptions)
    chunk = prefill_bytes(model.shape, assumptions.prefill_chunk_tokens) / GIB / gpus
    cache = needs.on(needs.layout) - needs.weights_gib / gpus  # of one sequence on one card
    free = usable_gib(card.memory_gib, assumptions.memory_headroom) - needs.weights_gib / gpus - chunk
    return max(0, int(free / cache))


def step_seconds(
    model: ServedModel, card: Accelerator, gpus: int, batch: int, assumptions: Assumptions = DEFAULTS
) -> float:
    """Seconds to generate one token for each of ``batch`` sequences: the matrices, at the slower of reading and
    computing; the KV cache, read after them, layer by layer; the exchange between cards; starts and ends of kernels.

    The input embedding is not read. Half of the output is in the cache on average. A mixture of experts reads the
    experts that the batch uses: all of them from a few sequences on.
    """
    peak = peak_tflops(card, model.precision)
    assert peak is not None
    bandwidth = gpus * card.bandwidth_gb_s * GB
    weights = (min(model.parameters, model.active * batch) - model.lookup_parameters) * model.precision.bytes
    flops = batch * inference_flops(model.active - model.lookup_parameters, 1)
    by_memory = weights / (bandwidth * assumptions.decode_efficiency)
    by_compute = flops / (gpus * peak * TERA * assumptions.prefill_efficiency)
    context = model.prompt_tokens + model.output_tokens / 2
    cache = batch * context * model.shape.kv_bytes_per_token(model.kv_precision.bytes)
    reading = cache / (bandwidth * assumptions.cache_efficiency)
    overhead = (
        all_reduce_seconds(model.shape, card, gpus, batch, assumptions) + model.shape.layers * assumptions.layer_step_s
    )
    return (max(by_memory, by_compute) + reading + overhead + assumptions.serving_step_s) / assumptions.serving_pace


def prompt_seconds(model: ServedModel, card: Accelerator, gpus: int, assumptions: Assumptions = DEFAULTS) -> float:
    """Seconds to read one prompt on the whole replica: the layers' matrices (2 FLOPs per active parameter and token),
    the attention's scores (2 × layers × query width × tokens², causal, in 16 bits), what all other operations move
    (`elementwise_bytes`), and the exchange between cards. For a long prompt most of it is attention, for a small model
    most is moving data, so the achieved share of the peak follows from model and prompt."""
    new_tokens = model.prompt_tokens * (1 - model.cached_share)
    if not new_tokens:
        return 0.0
    peak = peak_tflops(card, model.precision)
    assert peak is not None
    queries = model.shape.heads * model.shape.head_dim
    matrices = inference_flops(model.layers_active, new_tokens) / (peak * TERA * assumptions.matrix_efficiency)
    scores = 2 * model.shape.layers * queries * model.prompt_tokens * new_tokens
    attention = scores / ((card.tflops_16bit or peak) * TERA * assumptions.attention_efficiency)
    moved = elementwise_bytes(model.shape, eager=model.eager) * new_tokens
    moving = moved / (card.bandwidth_gb_s * GB * assumptions.decode_efficiency)
    seconds = (matrices + attention + moving) / gpus
    if model.eager:
        seconds = max(seconds, model.shape.layers * assumptions.eager_layer_s)
    return (seconds + all_reduce_seconds(model.shape, card, gpus, new_tokens, assumptions)) / assumptions.serving_pace


def with_measured_pace(model: ServedModel, card: Accelerator, assumptions: Assumptions) -> tuple[Assumptions, int]:
    """The assumptions with the `serving_pace` at which finished runs of a model of this size worked on the card,
    and the number of those runs; the assumptions as they are and 0 without any.

    The pace is their tokens per second of a GPU over the estimate for 16-bit weights (or the model's, where those fit
    on no machine) and as many sequences as fit, at their own share of generated tokens, where they reported it, else at
    that of ``model``. Runs without enough requests make the pace too low.

    A stated speed of a replica (`replica_tokens_per_second`) comes first, at the stated ``gpus_per_replica``.
    """
    if assumptions.replica_tokens_per_second is not None:
        stated = replica_speed(model, card, assumptions.gpus_per_replica, assumptions.batch, assumptions)
        if stated is None:
            return assumptions, 0
        pace = assumptions.serving_pace * assumptions.replica_tokens_per_second / stated.tokens_per_second
        return replace(assumptions, serving_pace=pace), 0
    measured = assumptions.served_on(card.name, model.parameters)
    if measured is None:
        return assumptions, 0
    speed, generated, runs = measured
    as_measured = model
    if generated is not None:
        prompts = model.output_tokens * (1 / generated - 1)
        as_measured = replace(model, prompt_tokens=prompts, cached_share=0.0)
    for precision in (Precision.FP16, model.precision):
        gpus = 1
        while gpus <= assumptions.gpus_per_node:
            replica = replica_speed(replace(as_measured, precision=precision), card, gpus, assumptions=assumptions)
            if replica is not None:
                estimated = replica.requests_per_second * (as_measured.prompt_tokens + as_measured.output_tokens) / gpus
                return replace(assumptions, serving_pace=assumptions.serving_pace * speed / estimated), runs
            gpus *= 2
    return assumptions, 0
