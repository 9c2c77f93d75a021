"""Memory estimates against the ZeRO paper, published model figures and the sizes the field quotes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS
from broker.economics.kinds import AdaptedLayers, Method, Precision, Recomputation
from broker.economics.memory import (
    ModelUse,
    ParallelLayout,
    activation_bytes,
    estimate,
    kv_cache_bytes,
    lower_bound_cards,
    usable_gib,
)
from broker.economics.model import ModelShape
from broker.economics.units import GB, GIB

LLAMA_70B = ModelShape(layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128)
PARAMETERS = st.floats(1e6, 1e13)
TRAINING = st.sampled_from([Method.ADAMW, Method.SGD, Method.LORA, Method.QLORA])


@pytest.mark.parametrize(
    ("shape", "kib_per_token"),
    [
        (ModelShape(32, 4096, 32, 32, 128), 512),  # Llama 2 7B
        (ModelShape(32, 4096, 32, 8, 128), 128),  # Llama 3 8B, Mistral 7B
        (LLAMA_70B, 320),  # Llama 2 and 3 70B
        (ModelShape(126, 16384, 128, 8, 128), 504),  # Llama 3.1 405B
    ],
)
def test_kv_cache_of_one_token(shape: ModelShape, kib_per_token: float) -> None:
    assert kv_cache_bytes(shape, batch=1, context=1) / 1024 == kib_per_token


@pytest.mark.parametrize(
    ("precision", "gigabytes"),
    [
        (Precision.FP32, 28),
        (Precision.BF16, 14),
        (Precision.FP16, 14),
        (Precision.FP8, 7),
        (Precision.INT8, 7),
        (Precision.INT4, 3.5),
    ],
)
def test_weights_of_7b_for_inference(precision: Precision, gigabytes: float) -> None:
    needs = estimate(ModelUse(7e9, Method.INFERENCE, precision))
    assert needs.total_gib * GIB / GB == pytest.approx(gigabytes)
    assert (needs.gradients_gib, needs.optimizer_gib, needs.activations_gib) == (0, 0, 0)


def test_the_other_rules_of_thumb_come_out() -> None:
    plain = replace(DEFAULTS, activations_per_weight=0)
    fp32 = estimate(ModelUse(1e9, Method.ADAMW, Precision.FP32), assumptions=plain)
    assert fp32.total_gib * GIB / GB == pytest.approx(16), "16 GB per billion parameters in FP32 Adam"
    assert estimate(ModelUse(1e9), assumptions=plain).total_gib * GIB / GB == pytest.approx(18), "18 bytes a parameter"
    assert estimate(ModelUse(1e9, Method.SGD)).optimizer_gib * GIB / GB == pytest.approx(4)


def test_activations_from_the_architecture() -> None:
    """Korthikanti et al.: GPT-3 175B at sequence 2048, micro-batch 1 has a·s/h of 80·... = 5·96·2048/12288 = 80."""
    gpt3 = ModelShape(layers=96, hidden=12288, heads=96, kv_heads=96, head_dim=128)
    unit = 2048 * 12288 * 96
    assert activation_bytes(gpt3, 1, 2048, Recomputation.NONE) == unit * (34 + 80)
    assert activation_bytes(gpt3, 1, 2048, Recomputation.SELECTIVE) == unit * 34
    assert activation_bytes(gpt3, 1, 2048, Recomputation.FULL) == unit * 2
    modelled = estimate(ModelUse(175e9, batch=1, context=2048, shape=gpt3, recomputation=Recomputation.FULL))
    assert modelled.activations_gib * GIB == pytest.approx(unit * 2)


def test_batch_and_context_always_count() -> None:
    """Issue: an 8B QLoRA of 8 × 4096 tokens was said to fit a T4; its logits alone take 14 GiB."""
    needs = estimate(ModelUse(8e9, Method.QLORA, batch=8, context=4096))
    assert needs.activations_gib == pytest.approx(32 * 8 * 4096 * 4096 * 2 / GIB), "full recomputation: layers' inputs"
    assert needs.loss_gib == pytest.approx(8 * 4096 * 128256 * 14 / GIB)
    assert "Llama 3.1 8B" in " ".join(needs.assumptions)
    longer = estimate(ModelUse(8e9, Method.QLORA, batch=8, context=8192))
    assert longer.total_gib - needs.total_gib > 0.9 * (needs.activations_gib + needs.loss_gib)
    only_batch = estimate(ModelUse(8e9, Method.QLORA, batch=8))
    assert "2,048 tokens" in " ".join(only_batch.assumptions)
    assert only_batch.loss_gib == pytest.approx(needs.loss_gib / 2)


def test_adapters_store_their_inputs_in_32_bits() -> None:
    """A layer of Llama 2 7B under PEFT, by what autograd keeps: two norms' inputs in FP32 (8h), Q, K, V and the output
    of attention (8h), gate, its SiLU and up (6w), and an FP32 input for each of seven adapters (4 · (6h + w))."""
    llama = ModelShape(32, 4096, 32, 32, 128, vocabulary=32000, width=11008)
    by_hand = 8 * 4096 + 8 * 4096 + 6 * 11008 + 4 * (6 * 4096 + 11008)
    use = ModelUse(6.74e9, Method.LORA, batch=1, context=2048, shape=llama)
    assert estimate(use).activations_gib * GIB == 32 * 2048 * by_hand
    assert "8.7 GiB of them are inputs of adapters on all linear layers, 4 bytes a value" in estimate(use).assumptions
    attention = estimate(replace(use, adapted=AdaptedLayers.ATTENTION))
    assert attention.activations_gib * GIB == 32 * 2048 * (by_hand - 4 * (4 * 4096 + 11008))
    dropout = estimate(use, assumptions=replace(DEFAULTS, adapter_input_bytes=5))
    assert dropout.activations_gib * GIB == 32 * 2048 * (by_hand + 6 * 4096 + 11008)
    mixture = replace(llama, active_experts=2)
    stored = estimate(replace(use, shape=mixture)).activations_gib * GIB / (32 * 2048)
    assert stored == 8 * 4096 + 8 * 4096 + 6 * 2 * 11008 + 4 * 4 * 4096, "fused experts have no adapter"


def test_tensor_ranks_gather_the_last_hidden_vectors() -> None:
    needs = estimate(ModelUse(70.6e9, context=8192, batch=2, recomputation=Recomputation.FULL))
    split = needs.on(ParallelLayout(8, tensor=8))
    passing = (needs.activations_gib + needs.loss_gib + needs.working_gib) / 8
    states = (needs.weights_gib + needs.gradients_gib + needs.optimizer_gib) / 8
    assert split - states - passing - needs.runtime_gib == pytest.approx(2 * 8192 * 8192 * 2 / GIB)


def test_inference_from_the_size_alone_counts_the_cache() -> None:
    serving = estimate(ModelUse(70e9, Method.INFERENCE, Precision.FP16, batch=32, context=8192))
    assert serving.kv_cache_gib * GIB / GB == pytest.approx(85.9, abs=0.05), "as with layers and heads given"
    assert serving.total_gib == pytest.approx(serving.weights_gib + serving.kv_cache_gib)


def test_qlora_keeps_embeddings_in_more_bits() -> None:
    small = estimate(ModelUse(8.03e9, Method.QLORA, context=512))
    kept = 2 * 128256 * 4096
    assert small.weights_gib * GIB == pytest.approx((8.03e9 - kept) * 0.516 + 4 * kept)
    assert "embeddings of 1.1B parameters keep 32 bits" in small.assumptions


def test_fsdp_holds_two_layers_whole() -> None:
    needs = estimate(ModelUse(70e9, Method.LORA, context=2048))
    shared = needs.weights_gib / 8 + needs.gradients_gib / 8 + needs.optimizer_gib / 8
    passing = needs.activations_gib + needs.loss_gib + needs.working_gib + needs.runtime_gib
    extra = needs.on(ParallelLayout(8, zero=3)) - shared - passing
    assert extra == pytest.approx(2 / 80 * needs.weights_gib * 7 / 8)


def test_usable_memory_keeps_headroom() -> None:
    assert usable_gib(80, 0.10) == pytest.approx(72)
    with pytest.raises(InvalidInput, match="headroom"):
        usable_gib(80, 1.0)


def test_what_was_assumed_is_said() -> None:
    assert "2 × the weights" in " ".join(estimate(ModelUse(7e9)).assumptions)
    assert "no KV cache" in " ".join(estimate(ModelUse(7e9, Method.INFERENCE)).assumptions)
    mixed = estimate(ModelUse(7e9, Method.QLORA, Precision.BF16))
    assert "stores weights in int4" in " ".join(mixed.assumptions)
    shared = estimate(ModelUse(7e9), ParallelLayout(8, zero=3))
    assert "does not share activations" in " ".join(shared.assumptions)


@given(PARAMETERS, st.floats(1, 10), TRAINING)
def test_more_parameters_never_need_less(parameters: float, factor: float, method: Method) -> None:
    less, more = estimate(ModelUse(parameters, method)), estimate(ModelUse(parameters * factor, method))
    assert more.total_gib >= less.total_gib > 0


@given(PARAMETERS, TRAINING, st.integers(1, 3), st.sampled_from([1, 2, 8, 64]))
def test_a_higher_stage_or_more_gpus_never_put_more_on_each(
    parameters: float, method: Method, stage: int, gpus: int
) -> None:
    needs = estimate(ModelUse(parameters, method))
    assert needs.on(ParallelLayout(gpus, zero=stage)) <= needs.on(ParallelLayout(gpus, zero=stage - 1)) * (1 + 1e-12)
    assert needs.on(ParallelLayout(2 * gpus, zero=stage)) <= needs.on(ParallelLayout(gpus, zero=stage)) * (1 + 1e-12)
    assert needs.on(ParallelLayout(gpus, zero=stage)) >= needs.total_gib / gpus * (1 - 1e-12), "nothing is lost"


@given(PARAMETERS, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_a_split_model_divides_evenly(parameters: float, tensor: int, pipeline: int) -> None:
    needs = estimate(ModelUse(parameters))
    layout = ParallelLayout(tensor * pipeline, tensor, pipeline)
    assert needs.on(layout) * layout.gpus == pytest.approx(needs.total_gib)


@given(st.integers(1, 512), st.integers(1, 65_536))
def test_kv_cache_grows_with_batch_and_context(batch: int, context: int) -> None:
    one = kv_cache_bytes(LLAMA_70B, batch, context)
    assert kv_cache_bytes(LLAMA_70B, batch + 1, context) > one < kv_cache_bytes(LLAMA_70B, batch, context + 1)


def test_kv_heads_limit_how_far_the_cache_is_split() -> None:
    serving = ModelUse(70e9, Method.INFERENCE, batch=32, context=8192, shape=LLAMA_70B)
    needs = estimate(serving)
    at16 = needs.on(ParallelLayout(16, tensor=16)) - needs.weights_gib / 16
    assert at16 == pytest.approx(needs.kv_cache_gib / 8)


@pytest.mark.parametrize("parameters", [0, -7e9, 1e18, float("nan"), float("inf"), True])
def test_absurd_sizes_are_refused(parameters: float) -> None:
    with pytest.raises(InvalidInput, match="parameters: expected"):
        ModelUse(parameters)


def test_impossible_combinations_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot do it in int4"):
        ModelUse(7e9, Method.ADAMW, Precision.INT4)
    with pytest.raises(InvalidInput, match="cannot be split"):
        ParallelLayout(gpus=6, tensor=4)
    with pytest.raises(InvalidInput, match="ZeRO stage"):
        ParallelLayout(gpus=8, zero=4)
    with pytest.raises(InvalidInput, match="batch"):
        ModelUse(7e9, batch=0)
    with pytest.raises(InvalidInput, match="divisor"):
        ModelShape(32, 4096, 32, 5, 128)


def test_copies_for_inference_share_nothing() -> None:
    copies = estimate(ModelUse(7e9, Method.INFERENCE), ParallelLayout(8, zero=3))
    assert copies.per_gpu_gib == copies.total_gib


def test_floating_point_dust_asks_for_no_extra_card() -> None:
    assert (0.1 + 0.2) / 0.1 > 3
    assert lower_bound_cards(0.1 + 0.2, 0.1) == 3
    assert lower_bound_cards(0.31, 0.1) == 4
    assert lower_bound_cards(0, 80) == 1


@given(st.floats(1e6, 1e12), st.sampled_from(Method), st.integers(1, 64), st.sampled_from([0, 512, 8192]))
def test_the_parts_are_gib_and_add_up(parameters: float, method: Method, batch: int, context: int) -> None:
    """Units: bytes go in, GiB (2**30) come out, and nothing on the way is a GB (10**9)."""
    shape = ModelShape(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128)
    needs = estimate(ModelUse(parameters, method, batch=batch, context=context, shape=shape))
    parts = (
        needs.weights_gib, needs.gradients_gib, needs.optimizer_gib, needs.activations_gib, needs.loss_gib,
        needs.working_gib, needs.runtime_gib, needs.kv_cache_gib,
    )  # fmt: skip
    assert needs.total_gib == pytest.approx(sum(parts))
    if method is not Method.QLORA or not needs.workload.context:
        assert needs.weights_gib * 2**30 == pytest.approx(parameters * needs.workload.weights.bytes)
    if method is Method.INFERENCE and context:
        assert needs.kv_cache_gib * 2**30 == pytest.approx(kv_cache_bytes(shape, batch, context))


def test_an_offload_leaves_two_layers_and_the_activations_on_the_gpu() -> None:
    workload = ModelUse(70e9, Method.QLORA, batch=1, context=512)
    shared, offloaded = ParallelLayout(2, zero=3), ParallelLayout(2, zero=3, offload=True)
    needs = estimate(workload, offloaded)
    assert needs.per_gpu_gib < estimate(workload, shared).per_gpu_gib / 4
    assert needs.per_gpu_gib > needs.activations_gib + needs.loss_gib + needs.runtime_gib
    states = needs.weights_gib + needs.gradients_gib + needs.optimizer_gib
    assert any(f"{states:,.0f} GiB of host memory" in note for note in needs.assumptions)
    with pytest.raises(InvalidInput, match="ZeRO stage 3"):
        ParallelLayout(2, offload=True)


def test_gradients_that_are_freed_are_not_there_with_the_activations() -> None:
    kept = ModelUse(1.5e9, batch=4, context=1024)
    freed = replace(kept, gradients_freed=True)
    both, apart = estimate(kept), estimate(freed)
    passing = both.activations_gib + both.loss_gib + both.working_gib
    assert both.total_gib - apart.total_gib == pytest.approx(min(both.gradients_gib, passing))
    assert apart.per_gpu_gib == pytest.approx(apart.total_gib)
    spread = ParallelLayout(2)
    assert estimate(freed, spread).per_gpu_gib == estimate(kept, spread).per_gpu_gib, "buckets keep them"
