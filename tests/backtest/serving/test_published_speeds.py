"""Estimated speeds of serving against published ones."""

from __future__ import annotations

import pytest

from broker.backtest.serving.published import compare, measured, summary
from broker.economics.assumptions import replaced


def test_every_row_has_a_source_and_fits() -> None:
    rows = compare()
    assert len(rows) >= 60
    own = [one for one in rows if one.measured.source.startswith("Own measurement:")]
    assert len(own) == 46
    assert all(one.measured.address.startswith("https://") for one in rows if one not in own)
    assert all(one.ratio is not None for one in rows), "what was measured fits"
    assert sum(not row.seen for row in measured()) >= 40


def test_unseen_rows() -> None:
    ratios = summary(one for one in compare() if not one.measured.seen)
    assert 0.9 <= ratios.median <= 1.11
    assert ratios.smallest >= 0.85
    assert ratios.largest <= 1.5
    assert ratios.within_1_25 >= 0.8


@pytest.mark.parametrize(
    ("cached", "eager", "rows", "median", "spread"),
    [(1.0, False, 21, 0.93, 0.09), (0.0, True, 22, 1.05, 0.21), (0.0, False, 3, 1.03, 0.16)],
    ids=["steps", "prompts, operations one by one", "prompts, joined operations"],
)
def test_our_own_rows(cached: float, eager: bool, rows: int, median: float, spread: float) -> None:
    """1B, 3B and 8B on an H100, 512 to 32,768 tokens, 1 to 256 sequences: one set of constants. Those of short prompts
    (1.25) are launches that the estimate does not know where the card works at the same time."""
    own = [one for one in compare() if one.measured.source.startswith("Own measurement:")]
    found = summary(
        one for one in own if (one.measured.model.cached_share, one.measured.model.eager) == (cached, eager)
    )
    assert found.rows == rows
    assert found.median == pytest.approx(median, abs=0.02)
    assert median - spread <= found.smallest
    assert found.largest <= median + spread


def test_a_constant_left_out_is_noticed() -> None:
    before = compare()
    for name in ("matrix_efficiency", "attention_efficiency", "cache_efficiency", "decode_efficiency"):
        after = compare(rules=replaced({name: 1.0}))
        assert max((b.ratio or 0) / (a.ratio or 1) for a, b in zip(before, after, strict=True)) > 1.15, name


def test_an_empty_summary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summary([])
