"""Quoted claims that are compared with the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

CLUSTER_USD_PER_GPU_HOUR = (8.0, 15.0)
API_BREAK_EVEN = (("a 7B model", 0.50), ("a 13B model", 0.10))
"""The utilization at which owning beats an API."""

FLEET_SAVING = (0.93, 0.20, 0.60)
"""The share of GPUs saved where utilization rises from the second to the third figure."""

SAVINGS_TOGETHER = (0.30, 0.40)
"""Of all measures of inference."""

WITHIN = 1 / 3
"""A quoted figure holds if the computed one differs by at most this share."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A quoted rule compared with the arithmetic: the ``rule``, what the numbers ``says``, and whether it ``holds`` for
    these inputs."""

    rule: str
    says: str
    holds: bool
