"""Estimates of GPU memory against published measurements: how far off, and each row with a source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.backtest.memory.published import compare, measured, summary
from broker.economics.rules import DEFAULTS


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
