"""Estimates for networks on images against measurements on an H100."""

from __future__ import annotations

from dataclasses import replace

from broker.backtest.memory.images import compare_images, measured_images
from broker.backtest.memory.published import summary
from broker.economics.rules import DEFAULTS


def test_unseen_memory_is_within_a_ninth() -> None:
    errors = summary(one for one in compare_images() if not one.measured.seen)
    assert errors.rows >= 8
    assert errors.median <= 0.05
    assert errors.worst <= 0.11  # DiT of 670 million parameters held against diffusers' 750


def test_speed_is_within_a_factor_of_two_with_few_images_too() -> None:
    """A diffusion model with an image or two waits for launches: the floor of a step, which no card shortens."""
    ratios = [one.ratio for one in compare_images() if one.ratio is not None]
    assert len(ratios) >= 16
    assert all(1 / 2 <= ratio <= 2.05 for ratio in ratios)
    unbound = compare_images(rules=replace(DEFAULTS, image_launch_s=0))
    assert max(one.ratio or 0 for one in unbound) > 4


def test_the_figures_can_fail() -> None:
    halved = [
        replace(row, use=replace(row.use, network=replace(row.use.network, train_mib=row.use.network.train_mib / 2)))
        for row in measured_images()
        if row.use.network.train_mib and not row.use.checkpointing
    ]
    assert summary(compare_images(halved)).worst > 0.3
    without = summary(compare_images(rules=replace(DEFAULTS, runtime_gib=0)))
    assert without.median > summary(compare_images()).median
