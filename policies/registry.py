"""Which rules there are. A new one is a file in `policies/rules`, a line here, and a contract test."""

from __future__ import annotations

from typing import Any

from broker.core import registry

RULES: dict[str, str] = {
    "budget": "policies.rules.budget:Budget",
    "max_price_per_gpu_hour": "policies.rules.max_price_per_gpu_hour:MaxPricePerGpuHour",
    "max_concurrent_gpus": "policies.rules.max_concurrent_gpus:MaxConcurrentGpus",
    "allowed_locations": "policies.rules.allowed_locations:AllowedLocations",
}

# Budgets have a section of their own; every other kind is written as a key of a guardrail.
GUARDRAILS = tuple(kind for kind in RULES if kind != "budget")


def rule_class(kind: str) -> Any:
    """The rule of that kind: a `broker.core.ports.Rule` with a pydantic ``Config``. Raises `UnknownName`."""
    return registry.load(RULES, kind, "rule")
