"""Estimated speeds of serving against the measurements of ``published/serving.toml``, each with its source."""

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from broker.core.market.accelerators import lookup
from broker.economics import families
from broker.economics.assumptions import DEFAULTS, Assumptions, override
from broker.economics.kinds import Precision
from broker.economics.replica import ServedModel, replica_speed

PATH = Path(__file__).with_name("published") / "serving.toml"
TABLE: dict[str, Any] = tomllib.loads(PATH.read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = TABLE["measurements"]
MODELS = {model.name: model for model in families.published_models()}
OWN = [row for row in ROWS if TABLE["sources"][row["source"]]["title"].startswith("Own measurement:")]


def ratios(rows: Iterable[dict[str, Any]], rules: Assumptions = DEFAULTS) -> list[float]:
    """Estimated over measured output tokens per second; what was measured fits."""
    found = []
    for row in rows:
        model = MODELS[row["model"]]
        served = ServedModel(
            model.parameters, model.parameters, model.shape, Precision(row["precision"]), row["prompt"], row["output"],
            Precision(row.get("kv_precision", "fp16")), row.get("cached", 0.0), eager=row.get("eager", False),
        )  # fmt: skip
        own = replace(rules, serving_most_sequences=row["most_sequences"]) if "most_sequences" in row else rules
        speed = replica_speed(served, lookup(row["accelerator"]), row["gpus"], row.get("batch"), own)
        assert speed is not None, row
        found.append(speed.tokens_per_second / row["tokens_per_second"])
    return found


def test_every_row_has_a_source() -> None:
    assert len(ROWS) >= 60
    assert len(OWN) == 46
    assert all(TABLE["sources"][row["source"]]["address"].startswith("https://") for row in ROWS if row not in OWN)


def test_unseen_rows() -> None:
    found = ratios(row for row in ROWS if not row["seen"])
    assert len(found) >= 40
    assert 0.9 <= median(found) <= 1.11
    assert min(found) >= 0.85
    assert max(found) <= 1.5
    assert sum(1 / 1.25 <= ratio <= 1.25 for ratio in found) >= 0.8 * len(found)


@pytest.mark.parametrize(
    ("cached", "eager", "rows", "middle", "spread"),
    [(1.0, False, 21, 0.93, 0.09), (0.0, True, 22, 1.05, 0.21), (0.0, False, 3, 1.03, 0.16)],
    ids=["steps", "prompts, operations one by one", "prompts, joined operations"],
)
def test_our_own_rows(cached: float, eager: bool, rows: int, middle: float, spread: float) -> None:
    """1B, 3B and 8B on an H100, 512 to 32,768 tokens, 1 to 256 sequences: one set of constants. Those of short prompts
    (1.25) are launches that the estimate does not know where the card works at the same time."""
    found = ratios(row for row in OWN if (row.get("cached", 0.0), row.get("eager", False)) == (cached, eager))
    assert len(found) == rows
    assert median(found) == pytest.approx(middle, abs=0.02)
    assert middle - spread <= min(found)
    assert max(found) <= middle + spread


@pytest.mark.parametrize("name", ["matrix_efficiency", "attention_efficiency", "cache_efficiency", "decode_efficiency"])
def test_a_constant_left_out_is_noticed(name: str) -> None:
    changed = zip(ratios(ROWS), ratios(ROWS, override({name: 1.0})), strict=True)
    assert max(after / before for before, after in changed) > 1.15
