"""The steps of a service: from traffic to accelerators, owned, rented or both."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from broker.app.advise.deploy.files import burst_text, job_text, policy_text, serving_job
from broker.app.advise.deploy.situation import DecidedSavings, DeployAdvice, DeployDemand, PathStep, closing_steps
from broker.app.advise.prices import PAID_FOR, CurrentPrices, Quote
from broker.app.advise.serve import cpu_candidates
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator, accelerator_names, lookup
from broker.core.market.offers import CapacityType
from broker.core.values.figures import plural
from broker.core.values.units import split_machine
from broker.economics import serving_options
from broker.economics.assumptions import Assumptions
from broker.economics.buy_or_rent import (
    WEEKS_PER_YEAR,
    BuyOrRent,
    BuyOrRentVerdict,
    applicable_rules,
    cards_bought,
    compare,
    server,
    share_in_use,
)
from broker.economics.figures import limit, number_text, usd_text
from broker.economics.fits import FLASH_ATTENTION_2
from broker.economics.kinds import Precision
from broker.economics.serving import demand_tokens_per_second
from broker.economics.serving_options import GpuHourPrices, ServingOption
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR

_MAX_SHOWN = 5
_PRECISIONS = (Precision.FP16, Precision.FP8, Precision.INT8)  # INT4 only after its quality was measured


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A way to serve: the accelerator, the number of machines and of accelerators per machine (in total the number
    needed or a few more; all are paid), and the cost of the same hours owned and rented."""

    option: ServingOption
    card: Accelerator
    per_machine: int
    nodes: int
    rent_usd_per_hour: float
    purchase_usd: float
    answer: BuyOrRent

    @property
    def owned_usd(self) -> float:
        return self.answer.present_value_usd(CapacityType.OWNED)

    @property
    def rented_usd(self) -> float:
        return self.answer.present_value_usd(CapacityType.ON_DEMAND)

    @property
    def gpus(self) -> int:
        return self.per_machine * self.nodes

    @property
    def owns(self) -> bool:
        return self.answer.verdict is not BuyOrRentVerdict.RENT


def serve(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> DeployAdvice:
    """The advice for a service. Raises InvalidInput if no accelerator with prices holds the model."""
    if assumptions.requests_per_minute is None:
        raise InvalidInput("the traffic is missing", hint="give --requests-per-minute")
    candidates = _candidates(situation, prices, assumptions)
    if not candidates:
        raise InvalidInput(
            "no accelerator with a price to rent and to buy holds this model",
            hint="`gpubroker prices poll` asks for prices; a smaller context or model needs less memory",
        )
    best = candidates[0]
    option, comparison = best.option, best.answer
    is_owned = situation.owned_only or best.owns
    is_hybrid = comparison.verdict is BuyOrRentVerdict.HYBRID and not situation.owned_only
    verdict = "hybrid" if is_hybrid else "buy" if is_owned else "rent"
    months = 12 * assumptions.years
    split = _split_demand(situation, best, prices, assumptions) if verdict == "hybrid" else None
    monthly = (best.owned_usd if is_owned else best.rented_usd) / months
    if split is not None:
        monthly = split.usd_per_month
    elif verdict == "hybrid":
        verdict = "buy"  # nothing is left to rent
    fits_budget = situation.budget_usd is None or monthly <= situation.budget_usd
    summary = (
        f"serve: {verdict} {best.gpus} × {best.card.name}, {option.precision} weights, "
        f"{plural(option.replicas, 'replica')}, {usd_text(monthly)} a month over {months:g} months"
    )
    if split is not None:
        summary = (
            f"serve: hybrid, own {_machines_text(split.baseline)} and rent up to {_machines_text(split.burst)} for "
            f"{assumptions.burst_hours:g} h/day, {option.precision} weights, {usd_text(monthly)} a month"
        )
    # Owned machines cost no cash per hour; the limit applies to rented hours.
    cash_limit = best.rent_usd_per_hour * HOURS_PER_MONTH * (1 + assumptions.max_cost_margin)
    machine, nodes = split.baseline if split else (f"{best.card.name}:{best.per_machine}", best.nodes)
    burst_budget = 0.0
    if split is not None:  # the steady part at no more than its rent, and a burst on each day
        cash_limit *= split_machine(machine)[1] * nodes / best.gpus
        burst_budget = split.burst_usd_per_day * HOURS_PER_MONTH / 24 * (1 + assumptions.max_cost_margin)
    job = serving_job(situation, machine, nodes, monthly=limit(cash_limit), types=PAID_FOR if split else ())
    burst_file = ""
    if split is not None:
        daily_limit = limit(split.burst_usd_per_day * (1 + assumptions.max_cost_margin))
        burst_file = burst_text(
            situation,
            *split.burst,
            hours_a_day=assumptions.burst_hours,
            daily=daily_limit,
            steady_machines=_machines_text(split.baseline),
        )
    policy = policy_text(
        situation,
        budget=limit(monthly * (1 + assumptions.max_cost_margin) if not is_owned else cash_limit + burst_budget),
        usd_per_gpu_hour=limit(best.rent_usd_per_hour / best.gpus * (1 + assumptions.max_cost_margin)),
        accelerator=best.card.name,
        gpus=best.gpus,
        order=["owned"] if situation.owned_only else ["owned", "reserved", *(["spot"] if split else []), "on_demand"],
    )
    rent = prices.quote(best.card.name, best.per_machine, best.nodes)
    warnings = (
        *_cpu_warnings(situation, monthly, prices, assumptions),
        *_warnings(situation, best, monthly, rent, fits_budget=fits_budget),
        *_purchase_warnings(situation, best, machine, nodes, is_owned),
    )
    steps = (
        _demand_step(assumptions),
        _supply_step(candidates, situation, monthly),
        _right_size_step(candidates, best),
        _hardware_step(candidates, best),
        _ownership_step(situation, best, split, verdict, assumptions),
        _parallelism_step(best),
        *closing_steps(
            situation, best.card, best.gpus, share_in_use(assumptions) * HOURS_PER_MONTH,
            DecidedSavings(
                interruptible=False, committed=is_owned, quantized=option.precision is not Precision.FP16
            ), assumptions, "" if is_owned or rent is None else rent.where,
        ),
    )  # fmt: skip
    return DeployAdvice(
        goal=situation.goal,
        verdict=verdict,
        title=summary,
        accelerator=best.card.name,
        gpus=best.gpus,
        usd=monthly,
        fits_budget=fits_budget,
        meets_deadline=True,
        steps=steps,
        warnings=warnings,
        assumptions=(*situation.model.notes, *_assumptions(situation, option, assumptions), *comparison.assumptions),
        job_file=job_text(job, summary),
        policy_file=policy,
        burst_file=burst_file,
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """A demand in two parts: the steady part, served by owned ``baseline`` machines, and ``burst``, the rented machines
    above it. Each is a machine such as ``B200:4``, and the number of them."""

    baseline: tuple[str, int]
    burst: tuple[str, int]
    own_usd_per_month: float
    burst_usd_per_day: float

    @property
    def usd_per_month(self) -> float:
        return self.own_usd_per_month + self.burst_usd_per_day * HOURS_PER_MONTH / 24


def _split_demand(
    situation: DeployDemand, best: _Candidate, prices: CurrentPrices, assumptions: Assumptions
) -> _Split | None:
    """The demand in two parts: the steady part is replicas ÷ (peak ÷ steady), rounded up, the rest is burst. None if no
    replica is left for bursts, or a part has no machine with a price."""
    option = best.option
    steady = ceil(option.replicas / assumptions.peak_to_baseline)
    if steady >= option.replicas:
        return None
    steady_machines = _machines(replace(option, gpus=steady * option.gpus_per_replica), prices, assumptions)
    burst_machines = _machines(
        replace(option, gpus=(option.replicas - steady) * option.gpus_per_replica), prices, assumptions
    )
    if steady_machines is None or burst_machines is None:
        return None
    owned_monthly = best.owned_usd / (12 * assumptions.years) * steady_machines[0] * steady_machines[1] / best.gpus
    return _Split(
        baseline=(f"{best.card.name}:{steady_machines[0]}", steady_machines[1]),
        burst=(f"{best.card.name}:{burst_machines[0]}", burst_machines[1]),
        own_usd_per_month=owned_monthly,
        burst_usd_per_day=burst_machines[2] * assumptions.burst_hours,
    )


def _machines_text(machines: tuple[str, int]) -> str:
    return f"{machines[1]} × {machines[0]}"


def _candidates(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> list[_Candidate]:
    """The accelerators that the situation permits, lowest total cost first."""
    cards = []
    for name in accelerator_names():
        card = lookup(name)
        modern = card.compute_capability is None or card.compute_capability >= FLASH_ATTENTION_2
        quote = prices.gpu_hour(name)
        if card.street_price is None or quote is None or not modern or card.maturity < assumptions.least_maturity:
            continue
        if card.consumer and share_in_use(assumptions) >= 1:
            continue  # not built, and not licensed, to run in racks around the clock
        cards.append((card, GpuHourPrices(on_demand=quote.usd_per_gpu_hour)))
    options = serving_options.options(situation.model, cards, assumptions, _PRECISIONS)
    candidates = [candidate for option in options if (candidate := _candidate(option, prices, assumptions))]

    def cost(candidate: _Candidate) -> tuple[bool, bool, float]:
        owned_usd = candidate.owned_usd
        is_rented = not situation.owned_only and not candidate.owns
        is_unlaunchable = is_rented and not prices.launchable(candidate.card.name)
        lowest_usd = owned_usd if situation.owned_only else min(owned_usd, candidate.rented_usd)
        return candidate.option.meets_latency is False, is_unlaunchable, lowest_usd

    return sorted(candidates, key=cost)


def _machines(option: ServingOption, prices: CurrentPrices, assumptions: Assumptions) -> tuple[int, int, float] | None:
    """Accelerators per machine, number of machines, and their rent per hour (USD): the cheapest way to have whole
    replicas on each machine; among equals, the fewest machines. None without a price."""
    per_machine = min(option.gpus_per_replica, assumptions.gpus_per_node)
    layouts = []
    while per_machine <= assumptions.gpus_per_node:
        nodes = ceil(option.gpus / per_machine)
        quote = prices.quote(option.accelerator, per_machine, nodes)
        if quote is not None:
            layouts.append((round(quote.usd_per_hour, 6), nodes, per_machine))
        per_machine *= 2
    if not layouts:
        return None
    usd, nodes, per_machine = min(layouts)
    return per_machine, nodes, usd


def _candidate(option: ServingOption, prices: CurrentPrices, assumptions: Assumptions) -> _Candidate | None:
    card = lookup(option.accelerator)
    if (machines := _machines(option, prices, assumptions)) is None:
        return None
    per_machine, nodes, rent = machines
    gpus = per_machine * nodes
    purchase, watts = server(card, gpus, assumptions)
    assert purchase is not None
    lead_weeks = assumptions.lead_time_weeks
    case = replace(
        assumptions, gpus=gpus, gpus_per_machine=gpus, purchase_usd=purchase, rent_usd_per_hour=rent, watts=watts,
        lead_time_weeks=lead_weeks if assumptions.years * WEEKS_PER_YEAR > lead_weeks else 0.0,
    )  # fmt: skip
    return _Candidate(option, card, per_machine, nodes, rent, purchase, compare(case, vary=False))


def _demand_step(traffic: Assumptions) -> PathStep:
    demand = demand_tokens_per_second(traffic)
    required = demand * (1 + traffic.serving_headroom)
    return PathStep(
        "demand",
        "tokens/s = requests a minute ÷ 60 × tokens × (1 + headroom)",
        {"requests_per_minute": traffic.requests_per_minute, "tokens_per_request": traffic.tokens_per_request,
         "headroom": traffic.serving_headroom, "required_tokens_per_second": required, "p95_s": traffic.p95_s},
        f"{number_text(demand)} tokens/s, {number_text(required)} with headroom",
    )  # fmt: skip


def _supply_step(candidates: list[_Candidate], situation: DeployDemand, monthly: float) -> PathStep:
    numbers = {
        candidate.card.name: f"${candidate.rent_usd_per_hour:,.2f}/h rented, {usd_text(candidate.purchase_usd)} to buy"
        for candidate in reversed(candidates[:_MAX_SHOWN])
    }
    budget_text = "no budget given"
    if situation.budget_usd is not None:
        budget_text = f"{monthly / situation.budget_usd:.0%} of the ${situation.budget_usd:,.0f} a month are needed"
    return PathStep(
        "supply and budget", "current on-demand prices; street prices with the server around", numbers, budget_text
    )


def _right_size_step(candidates: list[_Candidate], best: _Candidate) -> PathStep:
    numbers: dict[str, object] = {}
    for candidate in candidates:
        if candidate.card.name == best.card.name:
            numbers.setdefault(
                candidate.option.precision.value,
                f"{plural(candidate.gpus, 'GPU')}, {number_text(candidate.option.tokens_per_second_per_replica)} "
                "tokens/s a replica",
            )
    rule = "the lowest precision that keeps the quality; below 8 bits only when it was measured"
    check = ": check the quality first" if best.option.precision.bytes < Precision.FP16.bytes else ", as trained"
    return PathStep("right-size the model", rule, numbers, f"{best.option.precision} weights{check}")


def _hardware_step(candidates: list[_Candidate], best: _Candidate) -> PathStep:
    numbers: dict[str, object] = {}
    for candidate in candidates:
        cheaper = min(candidate.owned_usd, candidate.rented_usd)
        numbers.setdefault(
            candidate.card.name, f"{plural(candidate.gpus, 'card')}, {usd_text(cheaper)} over the whole time"
        )
    shown_numbers = dict(list(numbers.items())[:_MAX_SHOWN])
    rule = "decoding is bound by memory bandwidth; the cheapest over the whole time that keeps the latency"
    return PathStep("hardware", rule, shown_numbers, f"{best.gpus} × {best.card.name}")


def _ownership_step(
    situation: DeployDemand, best: _Candidate, split: _Split | None, verdict: str, assumptions: Assumptions
) -> PathStep:
    comparison = best.answer
    advice = applicable_rules(replace(assumptions, gpus=best.gpus), sensitive=situation.owned_only)
    break_even = comparison.break_even
    numbers = {
        "owned_usd": best.owned_usd, "rented_usd": best.rented_usd,
        "rent_until_delivery_usd": break_even and break_even.waiting_usd,
        "break_even_hours_per_day": break_even and break_even.hours_per_day,
        "payback_months": break_even and break_even.payback_months,
        "owned": _machines_text(split.baseline) if split else None,
        "bursts": _machines_text(split.burst) if split else None,
        "own_usd_per_month": split.own_usd_per_month if split else None,
        "burst_usd_per_day": split.burst_usd_per_day if split else None,
        "rules_of_thumb": "; ".join(opinion.rule for opinion in advice),
    }  # fmt: skip
    reason = comparison.why
    if situation.owned_only:
        reason = f"on owned machines, because the data is sensitive; {reason}"
    rule = "present values of the same hours, lead time included; sensitive data stays on owned machines"
    return PathStep("owned, cloud or hybrid", rule, numbers, f"{verdict}: {reason}")


def _parallelism_step(best: _Candidate) -> PathStep:
    option = best.option
    split = f"each copy over {option.gpus_per_replica} cards" if option.gpus_per_replica > 1 else "a copy on each card"
    return PathStep(
        "parallelism",
        "as few cards per copy as can hold it; copies side by side",
        {"gpus_per_replica": option.gpus_per_replica, "replicas": option.replicas, "p95_s": option.p95_s},
        f"{split}, {plural(option.replicas, 'copy', 'copies')}: {best.nodes} × {best.card.name}:{best.per_machine}",
    )


def _cpu_warnings(
    situation: DeployDemand, monthly: float, prices: CurrentPrices, assumptions: Assumptions
) -> Iterator[str]:
    """A warning where machines without accelerators do for less."""
    cards = {} if situation.owned_only else cpu_candidates(situation.model, prices, assumptions)
    options = serving_options.options(situation.model, cards.values(), assumptions, _PRECISIONS)
    if not options or options[0].meets_latency is False:
        return
    usd = options[0].monthly_usd_on_demand
    if usd is not None and usd < monthly:
        machines = f"{options[0].replicas} × {options[0].accelerator} without a GPU"
        yield f"{machines} would do for {usd_text(usd)} a month: `gpubroker advise serve` compares"


def _warnings(
    situation: DeployDemand, best: _Candidate, monthly: float, rent: Quote | None, *, fits_budget: bool
) -> tuple[str, ...]:
    notes = []
    if best.option.meets_latency is False:
        notes.append(f"too slow: 95 of 100 take {best.option.p95_s or 0:.1f} s")
    if not fits_budget:
        notes.append(f"above the budget: {usd_text(monthly)} a month; the budget is ${situation.budget_usd:,.0f}")
    if rent is not None and rent.not_launched_on and not situation.owned_only:
        notes.append(f"${best.rent_usd_per_hour:,.2f}/h rented: {rent.not_launched_on}")
    if situation.owned_only:
        notes.append("until the machines are delivered, only what is owned already is used")
    return (*notes, *situation.places.beyond_job_files)


def _purchase_warnings(
    situation: DeployDemand, best: _Candidate, machine: str, nodes: int, is_owned: bool
) -> Iterator[str]:
    """Warnings for a buyer: one machine has no redundancy, a purchase is paid at once, accelerators that are soldered
    to a board are not sold singly."""
    if nodes == 1 and best.option.replicas == 1:
        yield "one replica on one machine: while it fails or is updated nothing answers; a spare one doubles the cost"
    if not is_owned:
        return
    count = split_machine(machine)[1]
    cash = best.purchase_usd * count * nodes / best.gpus
    if situation.budget_usd is not None and cash > situation.budget_usd:
        rent_text = usd_text(best.rent_usd_per_hour * HOURS_PER_MONTH)
        yield (
            f"the purchase ({usd_text(cash)}) is paid at once and exceeds a month's budget; rent is {rent_text} a month"
        )
    if (bought := cards_bought(best.card, best.gpus)) > best.gpus:
        yield f"{best.card.name} is sold on boards of 4 or 8: {bought} are bought for the {best.gpus} that are needed"


def _assumptions(situation: DeployDemand, option: ServingOption, assumptions: Assumptions) -> list[str]:
    return [
        f"{assumptions.prompt_tokens:g} prompt tokens a request (--prompt-tokens), read before the answer",
        f"memory for {assumptions.context or 0:,} tokens of each request (--assume context=N)",
        f"as many requests at once as fit in memory, at most {assumptions.serving_most_sequences}",
        option.pace_text or "speeds are roofline estimates: measure on one card before you buy",
        f"a server costs {assumptions.server_per_card_price:g} times its cards",
        f"it sells for {assumptions.resale_share:.0%} of that at the end",
        f"energy at ${assumptions.kwh_usd:g}/kWh, PUE {assumptions.pue:g}; a year is {HOURS_PER_YEAR:,} hours",
    ]
