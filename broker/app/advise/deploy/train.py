"""The steps of a training run: from tokens and a deadline to a job on the cheapest machines that finish in time."""

from dataclasses import replace
from datetime import timedelta

from broker.app.advise.deploy.files import job_text, limited_duration, limited_money, policy_text, training_job
from broker.app.advise.deploy.situation import DecidedSavings, DeployAdvice, DeployDemand, PathStep, closing_steps
from broker.app.advise.deploy.training import Way, training_tokens, training_ways
from broker.app.advise.prices import RECORDED, CurrentPrices
from broker.core.errors import InvalidInput
from broker.core.job.jobs import CheckpointPlan
from broker.core.market.offers import CapacityType
from broker.economics.assumptions import Assumptions
from broker.economics.buy_or_rent import WEEKS_PER_YEAR, BuyOrRent, compare, server
from broker.economics.figures import limit, number_text, usd_text
from broker.economics.kinds import Goal, Method
from broker.economics.throughput import training_flops
from broker.economics.units import HOURS_PER_YEAR

_MAX_ALTERNATIVES = 3
_MAX_SHOWN = 6


def train(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> DeployAdvice:
    """The advice for training. Raises InvalidInput if no accelerator with a price holds the model."""
    candidates = training_ways(situation, prices, assumptions)
    if not candidates:
        raise InvalidInput(
            "no accelerator that has a current price holds this model",
            hint="`gpubroker prices poll` asks for prices; a smaller context, LoRA or QLoRA needs less memory",
        )
    best = candidates[0]
    is_late = assumptions.deadline_hours is not None and best.hours > assumptions.deadline_hours
    fits_budget = situation.budget_usd is None or best.usd <= situation.budget_usd
    comparison = None if _is_paid_for(best) else _ownership(best, assumptions)
    ways = _alternatives(best, candidates)
    margin = 1 + assumptions.max_cost_margin
    max_cost = situation.budget_usd or limit(max(way.usd for way in ways) * margin)
    summary = (
        f"{situation.goal}: {best.method} on {best.plan.gpus} × {best.card.name} "
        f"({_capacity_text(best)}), {number_text(best.hours)} h, {usd_text(best.usd)}"
    )
    size = _checkpoint_bytes(best, assumptions)
    job = training_job(
        situation,
        best.plan,
        list(dict.fromkeys(way.plan.machine for way in ways)),
        assumptions,
        work_hours=best.gpu_hours / best.plan.gpus,
        limit_hours=assumptions.deadline_hours or max(way.hours for way in ways) * margin + 1,
        checkpoint=CheckpointPlan(
            every=limited_duration(_checkpoint_hours(size / best.plan.num_nodes, assumptions)),
            size=int(size),
            restart=timedelta(minutes=5),
        ),
        max_cost=max_cost,
    )
    order = ["owned"] if situation.owned_only else ["owned", "reserved", "spot", "on_demand"]
    policy = policy_text(
        situation,
        budget=max_cost,
        usd_per_gpu_hour=limit(
            max(way.quote.usd_per_gpu_there for way in ways if way.card.name == best.card.name) * margin
        ),
        accelerator=best.card.name,
        gpus=max(way.plan.gpus for way in ways),
        order=order,
    )
    warnings = _warnings(best, situation, assumptions, is_late=is_late, fits_budget=fits_budget)
    steps = (
        _demand_step(situation, assumptions),
        _supply_step(candidates, situation),
        _right_size_step(candidates, best),
        _hardware_step(candidates, best),
        _ownership_step(best, comparison, situation, assumptions),
        _parallelism_step(best),
        *closing_steps(
            situation,
            best.card,
            best.plan.gpus,
            best.hours,
            DecidedSavings(
                interruptible=best.plan.num_nodes <= assumptions.spot_most_machines,
                committed=situation.owned_only,
                spot=best.spot,
            ),
            assumptions,
            best.quote.where,
        ),
    )
    return DeployAdvice(
        goal=situation.goal,
        verdict="own" if situation.owned_only or _is_paid_for(best) else "rent",
        title=summary,
        accelerator=best.card.name,
        gpus=best.plan.gpus,
        usd=best.usd,
        fits_budget=fits_budget,
        meets_deadline=not is_late,
        steps=steps,
        warnings=warnings,
        assumptions=(*situation.model.notes, *best.needs.assumptions, *_assumptions(situation, best, assumptions)),
        job_file=job_text(job, summary),
        policy_file=policy,
    )


def _capacity_text(best: Way) -> str:
    kind = best.quote.capacity_type
    return {CapacityType.SPOT: "spot", CapacityType.ON_DEMAND: "on demand"}.get(kind, f"{kind.value} already")


def _is_paid_for(best: Way) -> bool:
    return best.quote.source == RECORDED


def _ownership(best: Way, assumptions: Assumptions) -> BuyOrRent | None:
    """The cost of buying the accelerators for this run, and for further use of the same length."""
    gpus = best.plan.gpus
    purchase, watts = server(best.card, gpus, assumptions)
    if purchase is None:
        return None
    years = max(assumptions.years, best.hours / HOURS_PER_YEAR)
    case = replace(
        assumptions, gpus=gpus, gpus_per_machine=gpus, purchase_usd=purchase, watts=watts, years=years,
        rent_usd_per_hour=best.quote.usd_per_hour, utilization=min(1.0, best.hours / (years * HOURS_PER_YEAR)),
        hours_per_day=None, lead_time_weeks=0.0,
    )  # fmt: skip
    return compare(case, vary=False)


def _alternatives(best: Way, candidates: tuple[Way, ...]) -> list[Way]:
    """The ways on the machines that the job may take, on demand as on spot: the best one, and others that hold the same
    method on the same number of machines. The limits have to allow each of them."""
    shape = best.method, best.plan.num_nodes, best.plan.interconnect
    alike = [way for way in candidates if (way.method, way.plan.num_nodes, way.plan.interconnect) == shape]
    machines = list(dict.fromkeys(way.plan.machine for way in alike))[:_MAX_ALTERNATIVES]
    return [way for way in alike if way.plan.machine in machines]


def _checkpoint_bytes(best: Way, assumptions: Assumptions) -> float:
    """The bytes of a checkpoint: weights and optimizer state; with an adapter, only those of the adapter."""
    parameters = best.needs.workload.parameters
    if best.method in (Method.LORA, Method.QLORA):
        parameters *= assumptions.adapter_fraction
    return parameters * (2 + assumptions.adamw_bytes)


def _checkpoint_hours(bytes_a_machine: float, assumptions: Assumptions) -> float:
    """Hours between checkpoints: a quarter of an hour, or longer, so that writing takes at most its permitted share of
    the time. The machines of one job write their parts at the same time."""
    return max(0.25, bytes_a_machine / assumptions.checkpoint_bytes_per_s / assumptions.checkpoint_share / 3600)


def _demand_step(situation: DeployDemand, assumptions: Assumptions) -> PathStep:
    tokens, active = training_tokens(situation, assumptions), situation.model.active
    flops = training_flops(active, tokens)
    return PathStep(
        "demand",
        "training compute = 6 × parameters × tokens",
        {"parameters": situation.model.parameters, "tokens": tokens, "context": assumptions.context, "flops": flops,
         "deadline_hours": assumptions.deadline_hours},
        f"{active / 1e9:g}B × {tokens / 1e9:g}B tokens = {flops:.3g} FLOPs",
    )  # fmt: skip


def _supply_step(candidates: tuple[Way, ...], situation: DeployDemand) -> PathStep:
    best = candidates[0]
    quotes = {
        f"{way.plan.num_nodes} × {way.quote.machine} {way.quote.capacity_type}": f"${way.quote.usd_per_hour:,.2f}/h "
        f"at {way.quote.where}"
        for way in _best_way_by_card(candidates)
    }
    budget_text = "no budget given" if situation.budget_usd is None else f"budget ${situation.budget_usd:,.0f}"
    source = "a list price, not live" if best.quote.reference else f"from {best.quote.source}"
    return PathStep(
        "supply and budget",
        "current prices; cost = hours × price; spot only for one machine, with its redone hours",
        quotes,
        f"{budget_text}; expected {best.hours:,.1f} h × ${best.quote.usd_per_hour:,.2f}/h = {usd_text(best.usd)} "
        f"({source})",
    )


def _best_way_by_card(candidates: tuple[Way, ...]) -> list[Way]:
    way_by_card: dict[str, Way] = {}
    for way in candidates:
        way_by_card.setdefault(way.card.name, way)
    return list(way_by_card.values())[:_MAX_SHOWN]


def _right_size_step(candidates: tuple[Way, ...], best: Way) -> PathStep:
    cheapest: dict[Method, Way] = {}
    for way in sorted(candidates, key=lambda way: way.usd):
        cheapest.setdefault(way.method, way)
    numbers = {
        str(method): f"{way.needs.total_gib:,.1f} GiB; {usd_text(way.usd)} on {way.plan.gpus} × {way.card.name}"
        for method, way in cheapest.items()
    }
    reason = "every weight is trained" if best.method is Method.ADAMW else "an adapter is enough for an adaptation"
    return PathStep("right-size the model", "the least memory that does the task", numbers, f"{best.method}: {reason}")


def _hardware_step(candidates: tuple[Way, ...], best: Way) -> PathStep:
    numbers = {
        way.card.name: f"{way.plan.gpus} × {number_text(way.hours)} h, {usd_text(way.usd)}"
        for way in _best_way_by_card(candidates)
    }
    rule = "training is bound by compute: GPU-hours = FLOPs ÷ (peak × MFU), then by cost among those in time"
    return PathStep(
        "hardware", rule, numbers, f"{best.plan.gpus} × {best.card.name}, {number_text(best.gpu_hours)} GPU-hours"
    )


def _ownership_step(
    best: Way, comparison: BuyOrRent | None, situation: DeployDemand, assumptions: Assumptions
) -> PathStep:
    weeks = best.hours / HOURS_PER_YEAR * WEEKS_PER_YEAR
    numbers: dict[str, object] = {"run_weeks": weeks, "lead_time_weeks": assumptions.lead_time_weeks}
    reason = (
        f"rent: the run takes {number_text(weeks)} weeks, and bought machines arrive only after "
        f"{assumptions.lead_time_weeks:g} weeks"
    )
    if comparison is not None:
        owned_usd = comparison.present_value_usd(CapacityType.OWNED)
        rented_usd = comparison.present_value_usd(CapacityType.ON_DEMAND)
        numbers |= {
            "owned_usd": owned_usd,
            "rented_usd": rented_usd,
            "break_even_hours_per_day": comparison.break_even and comparison.break_even.hours_per_day,
        }
        reason += f"; owning would cost {usd_text(owned_usd)}, renting {usd_text(rented_usd)}"
    if _is_paid_for(best):
        extra = f"${best.quote.usd_per_gpu_hour:.3g} extra"
        reason = f"{best.quote.where} already has these machines, so a GPU-hour costs only {extra}"
    if situation.owned_only and not _is_paid_for(best):
        reason = f"owned machines only, because the data is sensitive; {reason.removeprefix('rent: ')}"
    return PathStep(
        "owned, cloud or hybrid", "present values of the same hours; lead time; sensitivity", numbers, reason
    )


def _parallelism_step(best: Way) -> PathStep:
    plan = best.plan
    return PathStep(
        "parallelism",
        plan.why,
        {
            "tensor": plan.tensor_parallel, "pipeline": plan.pipeline_parallel, "data": plan.data_parallel,
            "zero": plan.zero, "gib_per_gpu": plan.per_gpu_gib, "usable_gib": plan.usable_gib,
            "interconnect": plan.interconnect,
        },
        f"{plan.strategy.value.replace('_', ' ')}: {plan.num_nodes} × {plan.machine}",
    )  # fmt: skip


def _warnings(
    best: Way, situation: DeployDemand, assumptions: Assumptions, *, is_late: bool, fits_budget: bool
) -> tuple[str, ...]:
    notes = list(best.plan.warnings)
    if is_late:
        notes.append(
            f"misses the deadline: the fastest way takes {best.hours:,.0f} of {assumptions.deadline_hours:,.0f} h"
        )
    if best.plan.num_nodes > assumptions.on_demand_most_machines and not _is_paid_for(best):
        notes.append(
            f"{best.plan.num_nodes} machines at once are rarely available on demand: reserve them, or a capacity block "
            f"(`gpubroker capacity propose {best.plan.machine} --machines {best.plan.num_nodes} --for "
            f"{max(1, round(best.hours / 24))}d`)"
        )
    if not fits_budget:
        notes.append(
            f"above the budget: {limited_money(best.usd)} expected, the budget is "
            f"{limited_money(situation.budget_usd or 0)}; "
            "train on fewer tokens, take a smaller model, or raise the budget"
        )
    if best.quote.not_launched_on and not situation.owned_only:
        notes.append(f"{usd_text(best.quote.usd_per_gpu_there)} a GPU-hour: {best.quote.not_launched_on}")
    if _is_paid_for(best):
        notes.append(
            f"{best.quote.where} is recorded capacity: jobs start there once an engine reaches it (`[providers.slurm]` "
            "or `[providers.kubernetes]`, or gpubroker on the machine); check that it is free"
        )
    elif situation.owned_only:
        notes.append("prices are those of rented machines; only owned machines are used, because the data is sensitive")
    return (*notes, *situation.places.beyond_job_files)


def _assumptions(situation: DeployDemand, best: Way, assumptions: Assumptions) -> list[str]:
    notes = [
        assumptions.mfu_text(best.card.name, situation.model.active),
        "everything is recomputed in the backward pass",
        f"sequences of {assumptions.context or 0:,} tokens (--assume context=N)",
    ]
    if not _is_paid_for(best):
        notes.append(f"{assumptions.start_up_hours * 60:g} minutes are paid before the first step: boot, image, data")
    if price_text := assumptions.price_text(best.card.name):
        notes.append(f"{price_text}, {usd_text(best.quote.usd_per_gpu_there)} by the price used here")
    if best.spot:
        notes.append(assumptions.spot_text(best.card.name, best.plan.gpus))
    if assumptions.tokens is None:
        default_text = (
            f"{assumptions.pretraining_tokens_per_parameter:g} tokens a parameter (Hoffmann et al. 2022)"
            if situation.goal is Goal.PRETRAIN
            else f"{assumptions.fine_tuning_tokens / 1e6:g}M tokens, an ordinary fine-tune"
        )
        notes.append(f"tokens not given: {default_text}")
    notes.append(
        f"checkpoints are written at {assumptions.checkpoint_bytes_per_s / 1e6:g} MB/s by each machine, each its "
        f"part, and take {assumptions.checkpoint_share:.0%} of the time at most"
    )
    if assumptions.deadline_hours:
        notes.append(f"{assumptions.deadline_margin:.0%} of the time is reserved for delays")
    return notes
