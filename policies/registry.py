"""The registered rules. To add one: a file in `policies/rules`, a line here, and a contract test."""

from __future__ import annotations

from typing import Any

from broker.core import registry

RULES: dict[str, str] = {
    "budget": "policies.rules.budget:Budget",
    "max_price_per_gpu_hour": "policies.rules.max_price_per_gpu_hour:MaxPricePerGpuHour",
    "max_concurrent_gpus": "policies.rules.max_concurrent_gpus:MaxConcurrentGpus",
    "allowed_locations": "policies.rules.allowed_locations:AllowedLocations",
    "max_job_cost": "policies.rules.max_job_cost:MaxJobCost",
    "max_job_duration": "policies.rules.max_job_duration:MaxJobDuration",
    "max_concurrent_jobs": "policies.rules.max_concurrent_jobs:MaxConcurrentJobs",
    "capacity_types": "policies.rules.capacity_types:CapacityTypes",
    "spot": "policies.rules.spot:Spot",
    "renting": "policies.rules.renting:Renting",
    "accelerators": "policies.rules.accelerators:AllowedAccelerators",
    "data_residency": "policies.rules.data_residency:DataResidency",
    "sensitive_data": "policies.rules.sensitive_data:SensitiveData",
    "max_price_age": "policies.rules.max_price_age:MaxPriceAge",
    "reference_prices": "policies.rules.reference_prices:ReferencePrices",
    "min_interconnect": "policies.rules.min_interconnect:MinInterconnect",
    "working_hours": "policies.rules.working_hours:WorkingHours",
    "freeze": "policies.rules.freeze:Freeze",
    "max_kg_co2e": "policies.rules.max_kg_co2e:MaxKgCo2e",
    "runaway": "policies.rules.runaway:RunawayLimit",
    "approve_above": "policies.rules.approve_above:ApproveAbove",
    "reserved_quota": "policies.rules.reserved_quota:ReservedQuota",
    "idle_shutdown": "policies.rules.idle_shutdown:IdleShutdown",
    "unusual_spending": "policies.rules.unusual_spending:UnusualSpendingRule",
    "purchases": "policies.rules.purchases:Purchases",
}

# Budgets have their own section; every other kind is a key of a guardrail.
GUARDRAILS = tuple(kind for kind in RULES if kind != "budget")


def rule_class(kind: str) -> Any:
    """The rule class of a kind: a `broker.core.ports.Rule` with a pydantic ``Config``. Raises `UnknownName`."""
    return registry.load(RULES, kind, "rule")
