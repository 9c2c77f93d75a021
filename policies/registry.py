"""The registered rules. To add one: a class in `policies/rules`, a line here, and a contract test."""

from __future__ import annotations

from typing import Any

from broker.core import registry

RULES: dict[str, str] = {
    "budget": "policies.rules.budget:Budget",
    "max_price_per_gpu_hour": "policies.rules.prices:MaxPricePerGpuHour",
    "max_concurrent_gpus": "policies.rules.concurrency:MaxConcurrentGpus",
    "allowed_locations": "policies.rules.places:AllowedLocations",
    "max_job_cost": "policies.rules.job_limits:MaxJobCost",
    "max_job_duration": "policies.rules.job_limits:MaxJobDuration",
    "max_concurrent_jobs": "policies.rules.concurrency:MaxConcurrentJobs",
    "capacity_types": "policies.rules.machines:CapacityTypes",
    "spot": "policies.rules.spot:Spot",
    "renting": "policies.rules.renting:Renting",
    "accelerators": "policies.rules.machines:AllowedAccelerators",
    "data_residency": "policies.rules.places:DataResidency",
    "sensitive_data": "policies.rules.places:SensitiveData",
    "max_price_age": "policies.rules.prices:MaxPriceAge",
    "reference_prices": "policies.rules.prices:ReferencePrices",
    "min_interconnect": "policies.rules.machines:MinInterconnect",
    "working_hours": "policies.rules.times:WorkingHours",
    "freeze": "policies.rules.times:Freeze",
    "max_kg_co2e": "policies.rules.max_kg_co2e:MaxKgCo2e",
    "runaway": "policies.rules.running:RunawayLimit",
    "approve_above": "policies.rules.approvals:ApproveAbove",
    "reserved_quota": "policies.rules.reserved_quota:ReservedQuota",
    "idle_shutdown": "policies.rules.running:IdleShutdown",
    "unusual_spending": "policies.rules.running:UnusualSpendingRule",
    "purchases": "policies.rules.approvals:Purchases",
}

# Budgets have their own section; every other kind is a key of a guardrail.
GUARDRAILS = tuple(kind for kind in RULES if kind != "budget")


def rule_class(kind: str) -> Any:
    """The rule class of a kind: a `broker.core.ports.Rule` with a pydantic ``Config``. Raises `UnknownName`."""
    return registry.load(RULES, kind, "rule")
