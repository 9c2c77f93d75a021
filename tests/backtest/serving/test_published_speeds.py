"""Estimated speeds of serving against published ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.backtest.serving.published import compare, measured, summary
from broker.economics.rules import DEFAULTS


def test_every_row_has_a_source_and_fits() -> None:
    rows = compare()
    assert len(rows) >= 60
    own = [one for one in rows if one.measured.source.startswith("Own measurement: H100")]
    assert len(own) == 4
    assert all(one.measured.address.startswith("https://") for one in rows if one not in own)
    assert all(one.ratio is not None for one in rows), "what was measured fits"
    assert sum(not row.seen for row in measured()) >= 40


def test_unseen_rows() -> None:
    ratios = summary(one for one in compare() if not one.measured.seen)
    assert 0.9 <= ratios.median <= 1.1
    assert ratios.smallest >= 0.8
    assert ratios.largest <= 1.6
    assert ratios.within_1_25 >= 0.7


def test_a_constant_left_out_is_noticed() -> None:
    wrong = summary(compare(rules=replace(DEFAULTS, prefill_efficiency=1.0)))
    assert wrong.median > 1.2


def test_an_empty_summary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summary([])
