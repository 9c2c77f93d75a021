"""Published configurations give the published parameter counts."""

from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.economics.memory import layer_bytes
from broker.economics.model import ModelShape, read_config, shape_from


def llama(hidden: int, layers: int, heads: int, kv: int, width: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        **more,
    }


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (llama(4096, 32, 32, 32, 11008, 32000), 6.74),  # Llama 2 7B
        (llama(5120, 40, 40, 40, 13824, 32000), 13.02),  # Llama 2 13B
        (llama(8192, 80, 64, 8, 28672, 32000), 68.98),  # Llama 2 70B
        (llama(4096, 32, 32, 8, 14336, 128256), 8.03),  # Llama 3 8B
        (llama(8192, 80, 64, 8, 28672, 128256), 70.55),  # Llama 3 70B
        (llama(2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True, head_dim=64), 1.236),  # Llama 3.2 1B
        (llama(4096, 32, 32, 8, 14336, 32000, model_type="mistral"), 7.24),  # Mistral 7B
        (
            llama(4096, 32, 32, 8, 14336, 32000, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2),
            46.7,
        ),  # Mixtral 8x7B
        (
            {
                "model_type": "gpt2",
                "n_embd": 768,
                "n_layer": 12,
                "n_head": 12,
                "vocab_size": 50257,
                "n_positions": 1024,
            },
            0.124,
        ),
    ],
)
def test_parameter_counts(config: dict[str, Any], billions: float) -> None:
    assert read_config(config).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_gpt2_as_transformers_computes_it_stores_more() -> None:
    """Its GELU of single operations stores 12 bytes more for each of the MLP's 4 × hidden values."""
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    plain, fused = read_config(gpt2).shape, read_config({**gpt2, "activation_function": "gelu"}).shape
    assert layer_bytes(plain) - layer_bytes(fused) == 12 * 4 * 768
    assert layer_bytes(fused) == 34 * 768


def test_a_mixture_uses_only_some_of_its_parameters() -> None:
    mixtral = llama(4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2)
    assert read_config(mixtral).active_parameters / 1e9 == pytest.approx(12.9, rel=0.01)


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
    "vocab_size": 102400, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_30B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions", "active", "cached_bytes"),
    [
        (DEEPSEEK_V3, 671, 37, 70_272),  # arXiv:2412.19437 (sizes), arXiv:2505.09343, table 1 (cache of a token, BF16)
        (DEEPSEEK_V2_LITE, 15.7, 2.6, 27 * 576 * 2),  # arXiv:2405.04434, appendix B: 15.7B, 2.4B without embeddings
        (QWEN3_30B, 30.5, 3.3, 48 * 2 * 4 * 128 * 2),  # huggingface.co/Qwen/Qwen3-30B-A3B
    ],
    ids=["DeepSeek-V3", "DeepSeek-V2-Lite", "Qwen3-30B-A3B"],
)
def test_latent_attention_and_mixtures(
    config: dict[str, Any], billions: float, active: float, cached_bytes: int
) -> None:
    model = read_config(config)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.03)
    assert model.shape.kv_bytes_per_token(2) == cached_bytes


def test_shape_and_defaults() -> None:
    shape = read_config(llama(8192, 80, 64, 8, 28672, 32000)).shape
    assert (shape.layers, shape.hidden, shape.kv_heads, shape.head_dim, shape.vocabulary) == (80, 8192, 8, 128, 32000)
    old = llama(4096, 32, 32, 32, 11008, 32000)
    del old["num_key_value_heads"]
    assert read_config(old).shape.kv_heads == 32, "without grouped-query attention every head has keys and values"


def test_the_text_part_of_a_multimodal_model() -> None:
    text = llama(4096, 32, 32, 8, 14336, 128256)
    assert read_config({"model_type": "mllama", "text_config": text, "vision_config": {}}) == read_config(text)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "no hidden_size"),
        ({"hidden_size": 4096}, "no num_hidden_layers"),
        (llama(4096, 32, 32, 8, 14336, 0), "vocab_size"),
        (llama(-1, 32, 32, 8, 14336, 32000), "hidden_size"),
        (llama(4096, 32, 32, 8, 14336, 32000, kv_lora_rank=512), "qk_rope_head_dim"),
        ({"hidden_size": "4096"}, "whole number"),
    ],
)
def test_other_files_are_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_config(config)


def test_a_shape_from_what_is_known() -> None:
    cache_only, said = shape_from(layers=80, kv_heads=8, head_dim=128)
    assert (cache_only.layers, cache_only.kv_heads, cache_only.head_dim) == (80, 8, 128)
    assert any("only the KV cache" in note for note in said)
    assert shape_from(layers=80, hidden=8192, heads=64, kv_heads=8)[0] == ModelShape(80, 8192, 64, 8, 128)
    guessed, said = shape_from(layers=32, hidden=4096)
    assert (guessed.heads, guessed.kv_heads, guessed.head_dim) == (32, 32, 128)
    assert len(said) == 2
    with pytest.raises(InvalidInput, match="expected the hidden size"):
        shape_from(layers=32, kv_heads=8)
    with pytest.raises(InvalidInput, match="head dimension"):
        shape_from(layers=32, hidden=4096, head_dim=0)
    with pytest.raises(InvalidInput, match="attention heads"):
        shape_from(layers=32, hidden=64, head_dim=128)
