"""Networks on images: the table against independent counts, memory and speed by hand, what is refused."""

import dataclasses

import pytest

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS
from broker.economics.images import (
    ImageMethod,
    ImageOptimizer,
    ImageUse,
    image_flops,
    image_memory,
    image_speed,
    network_of,
    networks,
)
from broker.economics.memory import usable_gib
from broker.economics.units import GIB

MIB = 2**20


def test_every_row_has_its_source_and_credible_figures() -> None:
    assert len({one.name for one in networks()}) == len(networks()) >= 10
    for one in networks():
        assert one.source
        for field in ("parameters", "size", "forward_gflops", "inference_mib"):
            assert getattr(one, field) > 0, one.name
        if one.checkpointed_mib and one.train_mib:
            assert max(one.checkpointed_mib) < one.train_mib / 2, one.name


def test_counted_activations_agree_with_other_counts() -> None:
    """ResNet-50: 11.1 million outputs of convolutions (Radosavovic et al., CVPR 2020, table of models), each kept once
    before and once after its ReLU. ViT: 34 bytes a hidden unit, layer and token (Korthikanti et al., MLSys 2023)."""
    assert network_of("ResNet-50").train_mib == pytest.approx(11.1e6 * 2 * 2 / MIB, rel=0.05)
    for name, layers, hidden, tokens in (("ViT-B/16", 12, 768, 197), ("ViT-L/16", 24, 1024, 197)):
        assert network_of(name).train_mib == pytest.approx(34 * layers * hidden * tokens / MIB, rel=0.10)


def test_full_training_by_hand() -> None:
    network = network_of("vit l 16")
    found = image_memory(ImageUse(network, batch=64))
    states = network.parameters * (4 + 8) / GIB
    assert network.train_mib is not None
    at_loss = network.parameters * 2 / GIB + 64 * network.train_mib / 1024
    assert found.total_gib == pytest.approx(states + at_loss + DEFAULTS.runtime_gib)
    small = image_memory(ImageUse(network, batch=1))
    assert small.total_gib == pytest.approx(states + network.parameters * 4 / GIB + DEFAULTS.runtime_gib)
    momentum = image_memory(ImageUse(network, batch=64, optimizer=ImageOptimizer.SGD))
    assert found.total_gib - momentum.total_gib == pytest.approx(network.parameters * 4 / GIB)


def test_activations_follow_the_pixels() -> None:
    network = network_of("SD-1.5")
    low, high = (image_memory(ImageUse(network, batch=2, size=size)).activations_gib for size in (512, 768))
    assert high == pytest.approx(low * 2.25)


@pytest.mark.parametrize("name", ["ResNet-50", "ViT-H/14", "SD-1.5"])
@pytest.mark.parametrize("method", [ImageMethod.FULL, ImageMethod.INFERENCE])
@pytest.mark.parametrize("gpu", ["L4", "H100"])
def test_the_largest_batch_fits_and_one_more_does_not(name: str, method: ImageMethod, gpu: str) -> None:
    use, card = ImageUse(network_of(name), method), lookup(gpu)
    speed, room = image_speed(use, card), usable_gib(card.memory_gib, DEFAULTS.memory_headroom)
    assert speed is not None
    assert image_memory(dataclasses.replace(use, batch=speed.batch)).total_gib <= room
    assert image_memory(dataclasses.replace(use, batch=speed.batch + 1)).total_gib > room


def test_speed_by_hand() -> None:
    use, card = ImageUse(network_of("ResNet-50")), lookup("H100")
    assert image_flops(use) == pytest.approx(3 * 8.2e9)
    assert image_flops(ImageUse(network_of("SD-1.5"), ImageMethod.LORA)) == pytest.approx(2 * 677.2e9)
    speed = image_speed(use, card)
    assert speed is not None
    assert card.tflops_16bit is not None
    assert speed.items_per_second == pytest.approx(
        card.tflops_16bit * 1e12 * DEFAULTS.image_mfu_convolution / (3 * 8.2e9)
    )


def test_what_does_not_fit_has_no_speed() -> None:
    assert image_speed(ImageUse(network_of("SDXL")), lookup("T4")) is None


def test_what_was_not_counted_or_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not counted"):
        ImageUse(network_of("ResNet-50"), ImageMethod.LORA)
    with pytest.raises(InvalidInput, match="inference stores nothing"):
        ImageUse(network_of("ResNet-50"), ImageMethod.INFERENCE, checkpointing=True)
    for wrong in ({"batch": 0}, {"size": 0}):
        with pytest.raises(InvalidInput):
            ImageUse(network_of("ResNet-50"), **wrong)  # type: ignore[arg-type]  # both are whole numbers
    with pytest.raises(UnknownName, match="ResNet-50"):
        network_of("ResNet-5")
