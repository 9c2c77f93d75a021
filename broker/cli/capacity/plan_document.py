"""The capacity plan in JSON: money as decimal strings in USD."""

from __future__ import annotations

from typing import Any

from broker.app.capacity.plan import Planned
from broker.economics.reserve.capacity import CapacityPlan
from broker.economics.reserve.costs import Range
from broker.economics.units import HOURS_PER_MONTH


def document(planned: Planned) -> dict[str, Any]:
    """The plans, money as decimal strings in USD."""
    return {
        "as_of": planned.now,
        "demand_from": planned.source,
        "hours_per_month": HOURS_PER_MONTH,
        "plans": [_document(plan) for plan in planned.plans],
        "notes": list(planned.notes),
    }


def _document(plan: CapacityPlan) -> dict[str, Any]:
    market = plan.market
    best = plan.best
    return {
        "accelerator": plan.accelerator,
        "demand_hours": plan.hours,
        "mean_gpus": plan.mean,
        "peak_gpus": plan.peak,
        "in_use_gpus": plan.in_use,
        "held_gpus": plan.held_gpus,
        "baseline_gpus": best.baseline if best else 0,
        "buy_now_gpus": best.buy_now if best else 0,
        "prices": {
            "on_demand_usd_per_gpu_hour": _usd(market.on_demand),
            "spot_usd_per_gpu_hour": None if market.spot is None else _usd(market.spot),
            "spot_share_of_burst": market.spot_share,
            "burst_usd_per_gpu_hour": _usd(market.burst),
        },
        "choices": [
            {
                "option": choice.option.name,
                "kind": choice.option.kind,
                "term_s": choice.option.term * 3600,
                "usd_per_gpu_hour": _usd(choice.option.usd),
                "ratio": choice.ratio,
                "share_of_hours_asked": choice.share_asked,
                "baseline_gpus": choice.baseline,
                "buy_now_gpus": choice.buy_now,
                "usd_per_month": _range(choice.usd_per_month),
                "demand_known_enough": choice.known_enough,
            }
            for choice in plan.choices
        ],
        "burst_mix": [
            {
                "spot_share": mix.spot_share,
                "burst_usd_per_gpu_hour": _usd(mix.burst_usd),
                "baseline_gpus": mix.baseline,
                "usd_per_month": _range(mix.usd_per_month),
            }
            for mix in plan.mixes
        ],
        "scenarios": [
            {
                "scenario": cost.scenario,
                "usd_per_month": _range(cost.usd_per_month),
                "held_usd": _usd(cost.held),
                "reserved_anew_usd": _usd(cost.reserved),
                "on_demand_usd": _usd(cost.on_demand),
                "spot_usd": _usd(cost.spot),
            }
            for cost in plan.scenarios
        ],
        "held": [
            {
                "number": use.recorded.number,
                "kind": use.recorded.holding.kind,
                "provider": use.recorded.holding.provider,
                "gpus": use.recorded.holding.gpus,
                "ends": use.recorded.holding.ends,
                "utilisation": use.utilisation,
                "usd_per_gpu_hour": _usd(use.usd_per_gpu_hour),
                "usd_per_used_gpu_hour": None if use.usd_per_used_gpu_hour is None else _usd(use.usd_per_used_gpu_hour),
                "renew_gpus": use.renew,
                "renew_by": use.renew_by,
                "let_lapse_gpus": use.lapse,
            }
            for use in plan.held
        ],
        "steps": list(plan.steps),
        "hindsight": None
        if plan.hindsight is None
        else {
            "hours": plan.hindsight.hours,
            "usd_per_month": _usd(plan.hindsight.usd_per_month),
            "all_on_bursts_usd_per_month": _usd(plan.hindsight.all_on_bursts_usd_per_month),
        },
        "sensitivity": [{"ratio": ratio, "baseline_gpus": gpus} for ratio, gpus in plan.sensitivity.items()],
        "notes": list(plan.notes),
    }


def _range(found: Range) -> dict[str, str]:
    return {"expected": _usd(found.expected), "low": _usd(found.low), "high": _usd(found.high)}


def _usd(amount: float) -> str:
    return f"{amount:.6f}".rstrip("0").rstrip(".")
