"""Estimates for networks on images against measurements on an H100."""

from __future__ import annotations

from dataclasses import replace

from broker.backtest.memory.images import compare_images, measured_images
from broker.backtest.memory.published import summary
from broker.economics.rules import DEFAULTS


def test_unseen_memory_is_within_a_tenth() -> None:
    errors = summary(one for one in compare_images() if not one.measured.seen)
    assert errors.rows >= 8
    assert errors.median <= 0.05
    assert errors.worst <= 0.10


def test_speed_is_within_a_factor_of_two_where_the_batch_fills_the_card() -> None:
    """A diffusion model with an image or two waits for launches instead: eager PyTorch reaches an eighth to a half."""
    filled = [one.ratio for one in compare_images() if one.measured.use.batch >= 8 and one.ratio is not None]
    assert len(filled) >= 8
    assert all(1 / 2 <= ratio <= 2 for ratio in filled)


def test_the_figures_can_fail() -> None:
    halved = [
        replace(row, use=replace(row.use, network=replace(row.use.network, train_mib=row.use.network.train_mib / 2)))
        for row in measured_images()
        if row.use.network.train_mib and not row.use.checkpointing
    ]
    assert summary(compare_images(halved)).worst > 0.3
    without = summary(compare_images(rules=replace(DEFAULTS, runtime_gib=0)))
    assert without.median > summary(compare_images()).median
