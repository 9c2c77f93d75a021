"""Shapes inferred from the size: published ones as they are, others between their neighbours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.economics.families import PublishedModel, published_models, shape_for
from broker.economics.model import ModelShape


@pytest.mark.parametrize("family", published_models(), ids=lambda family: family.name)
def test_each_published_shape_has_its_published_size(family: PublishedModel) -> None:
    """Embeddings and matrices of the dense ones add up to the parameters: a wrong figure in the table shows."""
    shape = family.shape
    assert family.source
    assert shape.width
    if not family.dense:
        return
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    mlp = (3 if shape.gated else 2) * shape.hidden * shape.width
    assert shape.embedding_parameters + shape.layers * (attention + mlp) == pytest.approx(family.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("parameters", "layers", "name"),
    [
        (8e9, 32, "Llama 3.1 8B"),
        (70e9, 80, "Llama 3.1 70B"),
        (405e9, 126, "Llama 3.1 405B"),
        (671e9, 61, "DeepSeek-V3"),
    ],
)
def test_the_nearest_is_named(parameters: float, layers: int, name: str) -> None:
    shape, where = shape_for(parameters)
    assert shape.layers == layers
    assert name in where


def test_between_two_sizes_the_shape_lies_between() -> None:
    shape, where = shape_for(50e9)
    assert "interpolated between Yi 34B and Llama 3.1 70B" in where
    assert 60 < shape.layers < 80
    assert 7168 < shape.hidden < 8192


def test_latent_attention_caches_its_latent_values() -> None:
    """DeepSeek-V3: 61 layers of 576 values in BF16 are 70,272 bytes a token (arXiv:2505.09343, table 1)."""
    shape, _ = shape_for(671e9)
    assert shape.kv_bytes_per_token(2) == 70_272


@given(st.floats(1e6, 1e13), st.floats(1, 3))
def test_any_size_has_a_shape(parameters: float, factor: float) -> None:
    shape, _ = shape_for(parameters)
    assert isinstance(shape, ModelShape)
    assert shape.heads % shape.kv_heads == 0
