"""Estimates of GPU memory against the measurements of ``published/memory.toml``, each with its source."""

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from broker.economics import families
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import AdaptedLayers, Method, Precision, Recomputation
from broker.economics.memory import ModelUse, ParallelLayout, estimate
from broker.economics.model import ModelShape


@cache
def table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published").joinpath("memory.toml").read_text(encoding="utf-8"))


@cache
def models() -> dict[str, tuple[float, ModelShape]]:
    found = {model.name: (model.parameters, model.shape) for model in families.published_models()}
    for row in table()["models"]:
        shape = {key: value for key, value in row.items() if key not in ("name", "parameters", "source")}
        found[row["name"]] = row["parameters"], ModelShape(**shape)
    return found


def use_of(row: dict[str, Any], *, by_size: bool) -> ModelUse:
    parameters, shape = models()[row["model"]]
    return ModelUse(
        parameters,
        Method(row["method"]),
        Precision(row["precision"]) if "precision" in row else None,
        batch=row.get("batch", 1),
        context=row["context"],
        shape=None if by_size else shape,
        recomputation=Recomputation(row["recompute"]) if "recompute" in row else None,
        gradients_freed=row.get("gradients_freed", False),
        adapted=AdaptedLayers(row.get("adapted", "all")),
    )


def rules_of(row: dict[str, Any], rules: Assumptions, parameters: float, *, usual_loss: bool) -> Assumptions:
    """The rules with what the source states of its code."""
    names = {"gradient_bytes": "gradient_bytes", "optimizer_bytes": "adamw_bytes"}
    names |= {"adapter_input_bytes": "adapter_input_bytes"} | ({} if usual_loss else {"logit_bytes": "logit_bytes"})
    stated = {rule: row[name] for name, rule in names.items() if name in row}
    if "trained" in row:
        stated["adapter_fraction"] = row["trained"] / parameters
    return replace(rules, **stated)


def errors(
    rows: Iterable[dict[str, Any]], rules: Assumptions = DEFAULTS, *, by_size: bool = False, usual_loss: bool = False
) -> list[float]:
    """Absolute errors of the estimates. ``by_size``: from the number of parameters alone; ``usual_loss``: with the
    default loss even if the source's code uses another."""
    found = []
    for row in rows:
        use = use_of(row, by_size=by_size)
        layout = ParallelLayout(row.get("gpus", 1), row.get("tensor", 1), row.get("pipeline", 1), row.get("zero", 0))
        needs = estimate(use, layout, rules_of(row, rules, use.parameters, usual_loss=usual_loss))
        prompt = needs.prefill_gib / layout.tensor if row.get("whole_prompt") else 0.0
        found.append(abs((needs.per_gpu_gib + prompt) / row["gib"] - 1))
    return found


ROWS: list[dict[str, Any]] = table()["measurements"]
UNSEEN = [row for row in ROWS if not row["seen"]]


def test_every_row_has_a_source_and_enough_are_unseen() -> None:
    sources = {name: f"{source['title']} {source['address']}" for name, source in table()["sources"].items()}
    own = [row for row in ROWS if sources[row["source"]].startswith("Own measurement:")]
    assert len(own) >= 21
    assert len(UNSEEN) >= 30
    assert sum(not row["seen"] for row in own) >= len(own) // 2
    assert all("https://" in sources[row["source"]] for row in ROWS if row not in own)
    assert {row["method"] for row in ROWS} == {"adamw", "lora", "qlora", "inference"}


def test_unseen_rows_are_within_a_quarter_and_mostly_within_a_tenth() -> None:
    found = errors(UNSEEN)
    assert median(found) <= 0.05
    assert max(found) <= 0.22
    assert sum(error <= 0.1 for error in found) >= 0.85 * len(found)


def test_all_rows_are_within_a_quarter() -> None:
    assert median(errors(ROWS)) <= 0.05
    assert max(errors(ROWS)) <= 0.25


def test_a_constant_left_out_is_noticed() -> None:
    assert max(errors(ROWS, replace(DEFAULTS, logit_bytes=0), usual_loss=True)) > 0.4


def test_the_size_alone_is_coarser_than_the_configuration() -> None:
    assert median(errors(ROWS, by_size=True)) > median(errors(ROWS))
