"""Embedding: compute, vectors and patches by hand."""

from dataclasses import replace

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS
from broker.economics.images import embedding_speed, encoder_of, index_gb, patches, tokens_of, vectors_gb

DOCUMENTS = replace(DEFAULTS, tokens_per_item=256)


def test_a_billion_documents_by_hand() -> None:
    card = lookup("H100")
    found = embedding_speed(340e6, 1e9, card, DOCUMENTS)
    assert found is not None
    assert card.tflops_fp16 is not None
    flops = 2 * 340e6 * 256 + 4 * 24 * 1024 * 256**2  # BERT large
    assert found.items_per_second == pytest.approx(card.tflops_fp16 * 1e12 * DEFAULTS.prefill_efficiency / flops)
    assert found.gpu_hours == pytest.approx(1e9 / found.items_per_second / 3600)
    assert vectors_gb(1e9, DOCUMENTS) == 4096
    assert index_gb(1e9, DOCUMENTS) == pytest.approx(4096 + 256)


def test_an_image_is_its_patches() -> None:
    assert tokens_of(replace(DEFAULTS, image_size=224)) == 257  # ViT-H/14
    with pytest.raises(InvalidInput, match="at most the image's 224"):
        patches(224, 300)


def test_a_model_that_does_not_fit_has_no_speed() -> None:
    assert embedding_speed(70e9, 1e6, lookup("L4"), DOCUMENTS) is None


def test_a_size_between_is_scaled_from_the_nearest() -> None:
    encoder, origin = encoder_of(335e6)
    assert (encoder.layers, encoder.hidden) == (24, 1019)
    assert "BERT large" in origin


@pytest.mark.parametrize(("tokens", "measured"), [(128, 755_354), (512, 711_173)])
def test_tokens_per_second_as_measured_on_an_h100(tokens: int, measured: float) -> None:
    """BERT large in BF16 with PyTorch 2.11, batches of 32,768 tokens, 2026-11-26; nothing was chosen by it."""
    found = embedding_speed(335e6, 1e6, lookup("H100"), replace(DEFAULTS, tokens_per_item=tokens))
    assert found is not None
    assert found.items_per_second * tokens == pytest.approx(measured, rel=0.10)
