"""The exchange between cards that hold one model together. Times seconds.

Source: Pope et al., Efficiently Scaling Transformer Inference (MLSys 2023), for tensor parallelism.
"""

from __future__ import annotations

from broker.core.values.accelerators import Accelerator
from broker.economics.model import ModelShape
from broker.economics.rules import DEFAULTS, RulesOfThumb
from broker.economics.units import GB


def all_reduce_seconds(
    shape: ModelShape, card: Accelerator, gpus: int, tokens: float, rules: RulesOfThumb = DEFAULTS
) -> float:
    """Seconds of two all-reduces per layer, of ``tokens`` × hidden values of 16 bits, over ``gpus`` cards: a ring moves
    2·(n−1)/n of the bytes over the link, plus its latency. Cards without a link exchange over PCIe."""
    if gpus == 1:
        return 0.0
    one_way = card.link_gb_s / 2 if card.link_gb_s else rules.pcie_gb_s
    latency = rules.link_latency_s if card.link_gb_s else rules.pcie_latency_s
    moved = 2 * (gpus - 1) / gpus * tokens * shape.hidden * 2
    return 2 * shape.layers * (moved / (one_way * GB) + latency)
