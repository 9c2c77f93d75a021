"""Estimates of GPU memory against published measurements: how far off, and each row with a source;
for networks on images against measurements on an H100.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.backtest.memory.images import compare_images, measured_images
from broker.backtest.memory.published import compare, measured, summary
from broker.economics.assumptions import DEFAULTS


def test_every_row_has_a_source_and_enough_are_unseen() -> None:
    rows = measured()
    assert len(rows) >= 30
    assert sum(not row.seen for row in rows) >= 30
    own = [row for row in rows if row.source.startswith("Own measurement:")]
    assert len(own) >= 21
    assert sum(not row.seen for row in own) >= len(own) // 2
    assert all(row.address.startswith("https://") and row.source for row in rows if row not in own)
    assert {"adamw", "lora", "qlora", "inference"} == {str(row.use.method) for row in rows}


def test_unseen_rows_are_within_a_quarter_and_mostly_within_a_tenth() -> None:
    errors = summary(one for one in compare() if not one.measured.seen)
    assert errors.median <= 0.05
    assert errors.worst <= 0.22
    assert errors.within_10 >= 0.85


def test_all_rows() -> None:
    errors = summary(compare())
    assert errors.median <= 0.05
    assert errors.worst <= 0.25


def test_a_constant_left_out_is_noticed() -> None:
    """The figures can fail: without the logits the errors are far outside."""
    errors = summary(compare(rules=replace(DEFAULTS, logit_bytes=0), usual_loss=True))
    assert errors.worst > 0.4


def test_the_size_alone_is_coarser_than_the_configuration() -> None:
    known, guessed = summary(compare()), summary(compare(by_size=True))
    assert guessed.median > known.median


def test_an_empty_summary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summary([])


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
