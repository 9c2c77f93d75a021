"""The steps of a service: from traffic to accelerators, owned, rented or both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from broker.app.advise.deploy.files import burst_text, job_text, policy_text, serving_job
from broker.app.advise.deploy.situation import DecidedSavings, DeployAdvice, DeployDemand, PathStep, after
from broker.app.advise.prices import PAID_FOR, CurrentPrices, Quote
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator, known, lookup
from broker.core.values.figures import plural
from broker.core.values.units import split_machine
from broker.economics import serving_options
from broker.economics.assumptions import Assumptions
from broker.economics.buy_or_rent import (
    WEEKS_PER_YEAR,
    BuyOrRent,
    BuyOrRentVerdict,
    compare,
    in_use,
    opinions,
    server,
)
from broker.economics.figures import about, digits, limit
from broker.economics.fits import FLASH_ATTENTION_2
from broker.economics.kinds import Precision
from broker.economics.serving import demand_tokens_per_second
from broker.economics.serving_options import GpuHourPrices, ServingOption
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR

_SHOWN = 5
_BOARDS = ("sxm", "oam")  # accelerators soldered to a board, not sold singly
_PRECISIONS = (Precision.FP16, Precision.FP8, Precision.INT8)  # INT4 only after its quality was measured


@dataclass(frozen=True, slots=True)
class _Choice:
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
    choices = _choices(situation, prices, assumptions)
    if not choices:
        raise InvalidInput(
            "no accelerator with a price to rent and to buy holds this model",
            hint="`gpubroker prices poll` asks for prices; a smaller context or model needs less memory",
        )
    best = choices[0]
    option, answer = best.option, best.answer
    owned = situation.owned_only or best.owns
    hybrid = answer.verdict is BuyOrRentVerdict.HYBRID and not situation.owned_only
    verdict = "hybrid" if hybrid else "buy" if owned else "rent"
    months = 12 * assumptions.years
    split = _split(situation, best, prices, assumptions) if verdict == "hybrid" else None
    monthly = (best.owned_usd if owned else best.rented_usd) / months
    if split is not None:
        monthly = split.usd_per_month
    elif verdict == "hybrid":
        verdict = "buy"  # nothing is left to rent
    fits = situation.budget_usd is None or monthly <= situation.budget_usd
    summary = (
        f"serve: {verdict} {best.gpus} × {best.card.name}, {option.precision} weights, "
        f"{plural(option.replicas, 'replica')}, {about(monthly)} a month over {months:g} months"
    )
    if split is not None:
        summary = (
            f"serve: hybrid, own {_said(split.baseline)} and rent up to {_said(split.burst)} for "
            f"{assumptions.burst_hours:g} h/day, {option.precision} weights, {about(monthly)} a month"
        )
    # Owned machines cost no cash per hour; the limit applies to rented hours.
    most = best.rent_usd_per_hour * HOURS_PER_MONTH * (1 + assumptions.max_cost_margin)
    machine, nodes = split.baseline if split else (f"{best.card.name}:{best.per_machine}", best.nodes)
    bursting = 0.0
    if split is not None:  # the steady part at no more than its rent, and a burst on each day
        most *= split_machine(machine)[1] * nodes / best.gpus
        bursting = split.burst_usd_per_day * HOURS_PER_MONTH / 24 * (1 + assumptions.max_cost_margin)
    job = serving_job(situation, machine, nodes, monthly=limit(most), types=PAID_FOR if split else ())
    bursts = ""
    if split is not None:
        most_a_day = limit(split.burst_usd_per_day * (1 + assumptions.max_cost_margin))
        bursts = burst_text(
            situation, *split.burst, hours_a_day=assumptions.burst_hours, daily=most_a_day, above=_said(split.baseline)
        )
    policy = policy_text(
        situation,
        budget=limit(monthly * (1 + assumptions.max_cost_margin) if not owned else most + bursting),
        usd_per_gpu_hour=limit(best.rent_usd_per_hour / best.gpus * (1 + assumptions.max_cost_margin)),
        accelerator=best.card.name,
        gpus=best.gpus,
        order=["owned"] if situation.owned_only else ["owned", "reserved", *(["spot"] if split else []), "on_demand"],
    )
    rent = prices.quote(best.card.name, best.per_machine, best.nodes)
    warnings = (*_warnings(situation, best, monthly, rent, fits=fits), *_buying(situation, best, machine, nodes, owned))
    steps = (
        _demand(assumptions),
        _supply(choices, situation, monthly),
        _right_size(choices, best),
        _hardware(choices, best),
        _where(situation, best, split, verdict, assumptions),
        _parallelism(best),
        *after(
            situation, best.card, best.gpus, in_use(assumptions) * HOURS_PER_MONTH,
            DecidedSavings(
                interruptible=False, committed=owned, quantized=option.precision is not Precision.FP16
            ), assumptions,
        ),
    )  # fmt: skip
    return DeployAdvice(
        goal=situation.goal,
        verdict=verdict,
        title=summary,
        accelerator=best.card.name,
        gpus=best.gpus,
        usd=monthly,
        fits_budget=fits,
        meets_deadline=True,
        steps=steps,
        warnings=warnings,
        assumptions=(*situation.model.notes, *_assumptions(situation, option, assumptions), *answer.assumptions),
        job_file=job_text(job, summary),
        policy_file=policy,
        burst_file=bursts,
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


def _split(situation: DeployDemand, best: _Choice, prices: CurrentPrices, assumptions: Assumptions) -> _Split | None:
    """The demand in two parts: the steady part is replicas ÷ (peak ÷ steady), rounded up, the rest is burst. None if no
    replica is left for bursts, or a part has no machine with a price."""
    option = best.option
    steady = ceil(option.replicas / assumptions.peak_to_baseline)
    if steady >= option.replicas:
        return None
    owned = _machines(replace(option, gpus=steady * option.gpus_per_replica), prices, assumptions)
    rented = _machines(replace(option, gpus=(option.replicas - steady) * option.gpus_per_replica), prices, assumptions)
    if owned is None or rented is None:
        return None
    own = best.owned_usd / (12 * assumptions.years) * owned[0] * owned[1] / best.gpus
    return _Split(
        baseline=(f"{best.card.name}:{owned[0]}", owned[1]),
        burst=(f"{best.card.name}:{rented[0]}", rented[1]),
        own_usd_per_month=own,
        burst_usd_per_day=rented[2] * assumptions.burst_hours,
    )


def _said(machines: tuple[str, int]) -> str:
    return f"{machines[1]} × {machines[0]}"


def _choices(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> list[_Choice]:
    """The accelerators that the situation permits, lowest total cost first."""
    cards = []
    for name in known():
        card = lookup(name)
        modern = card.compute_capability is None or card.compute_capability >= FLASH_ATTENTION_2
        quote = prices.gpu_hour(name)
        if card.street_price is None or quote is None or not modern or card.maturity < assumptions.least_maturity:
            continue
        if card.consumer and in_use(assumptions) >= 1:
            continue  # not built, and not licensed, to run in racks around the clock
        cards.append((card, GpuHourPrices(on_demand=quote.usd_per_gpu_hour)))
    options = serving_options.options(situation.model, cards, assumptions, _PRECISIONS)
    found = [choice for option in options if (choice := _choice(option, prices, assumptions))]

    def cost(choice: _Choice) -> tuple[bool, bool, float]:
        own = choice.owned_usd
        rented = not situation.owned_only and not choice.owns
        nowhere = rented and not prices.launchable(choice.card.name)
        least = own if situation.owned_only else min(own, choice.rented_usd)
        return choice.option.meets_latency is False, nowhere, least

    return sorted(found, key=cost)


def _machines(option: ServingOption, prices: CurrentPrices, assumptions: Assumptions) -> tuple[int, int, float] | None:
    """Accelerators per machine, number of machines, and their rent per hour (USD): the cheapest way to have whole
    replicas on each machine; among equals, the fewest machines. None without a price."""
    each = min(option.gpus_per_replica, assumptions.gpus_per_node)
    found = []
    while each <= assumptions.gpus_per_node:
        nodes = ceil(option.gpus / each)
        quote = prices.quote(option.accelerator, each, nodes)
        if quote is not None:
            found.append((round(quote.usd_per_hour, 6), nodes, each))
        each *= 2
    if not found:
        return None
    usd, nodes, each = min(found)
    return each, nodes, usd


def _choice(option: ServingOption, prices: CurrentPrices, assumptions: Assumptions) -> _Choice | None:
    card = lookup(option.accelerator)
    if (machines := _machines(option, prices, assumptions)) is None:
        return None
    per_machine, nodes, rent = machines
    gpus = per_machine * nodes
    purchase, watts = server(card, gpus, assumptions)
    assert purchase is not None
    lead = assumptions.lead_time_weeks
    case = replace(
        assumptions, gpus=gpus, gpus_per_machine=gpus, purchase_usd=purchase, rent_usd_per_hour=rent, watts=watts,
        lead_time_weeks=lead if assumptions.years * WEEKS_PER_YEAR > lead else 0.0,
    )  # fmt: skip
    return _Choice(option, card, per_machine, nodes, rent, purchase, compare(case, vary=False))


def _demand(traffic: Assumptions) -> PathStep:
    demand = demand_tokens_per_second(traffic)
    need = demand * (1 + traffic.serving_headroom)
    return PathStep(
        "demand",
        "tokens/s = requests a minute ÷ 60 × tokens × (1 + headroom)",
        {"requests_per_minute": traffic.requests_per_minute, "tokens_per_request": traffic.tokens_per_request,
         "headroom": traffic.serving_headroom, "required_tokens_per_second": need, "p95_s": traffic.p95_s},
        f"{digits(demand)} tokens/s, {digits(need)} with headroom",
    )  # fmt: skip


def _supply(choices: list[_Choice], situation: DeployDemand, monthly: float) -> PathStep:
    numbers = {
        one.card.name: f"${one.rent_usd_per_hour:,.2f}/h rented, {about(one.purchase_usd)} to buy"
        for one in reversed(choices[:_SHOWN])
    }
    money = "no budget given"
    if situation.budget_usd is not None:
        money = f"{monthly / situation.budget_usd:.0%} of the ${situation.budget_usd:,.0f} a month are needed"
    return PathStep(
        "supply and budget", "current on-demand prices; street prices with the server around", numbers, money
    )


def _right_size(choices: list[_Choice], best: _Choice) -> PathStep:
    numbers: dict[str, object] = {}
    for one in choices:
        if one.card.name == best.card.name:
            numbers.setdefault(
                one.option.precision.value,
                f"{plural(one.gpus, 'GPU')}, {digits(one.option.tokens_per_second_per_replica)} tokens/s a replica",
            )
    rule = "the lowest precision that keeps the quality; below 8 bits only when it was measured"
    check = ": check the quality first" if best.option.precision.bytes < Precision.FP16.bytes else ", as trained"
    return PathStep("right-size the model", rule, numbers, f"{best.option.precision} weights{check}")


def _hardware(choices: list[_Choice], best: _Choice) -> PathStep:
    numbers: dict[str, object] = {}
    for one in choices:
        cheaper = min(one.owned_usd, one.rented_usd)
        numbers.setdefault(one.card.name, f"{plural(one.gpus, 'card')}, {about(cheaper)} over the whole time")
    kept = dict(list(numbers.items())[:_SHOWN])
    rule = "decoding is bound by memory bandwidth; the cheapest over the whole time that keeps the latency"
    return PathStep("hardware", rule, kept, f"{best.gpus} × {best.card.name}")


def _where(
    situation: DeployDemand, best: _Choice, split: _Split | None, verdict: str, assumptions: Assumptions
) -> PathStep:
    answer = best.answer
    said = opinions(replace(assumptions, gpus=best.gpus), sensitive=situation.owned_only)
    even = answer.break_even
    numbers = {
        "owned_usd": best.owned_usd, "rented_usd": best.rented_usd,
        "rent_until_delivery_usd": even and even.waiting_usd, "break_even_hours_per_day": even and even.hours_per_day,
        "payback_months": even and even.payback_months,
        "owned": _said(split.baseline) if split else None, "bursts": _said(split.burst) if split else None,
        "own_usd_per_month": split.own_usd_per_month if split else None,
        "burst_usd_per_day": split.burst_usd_per_day if split else None,
        "rules_of_thumb": "; ".join(one.rule for one in said),
    }  # fmt: skip
    why = answer.why
    if situation.owned_only:
        why = f"on owned machines, because the data is sensitive; {why}"
    rule = "present values of the same hours, lead time included; sensitive data stays on owned machines"
    return PathStep("owned, cloud or hybrid", rule, numbers, f"{verdict}: {why}")


def _parallelism(best: _Choice) -> PathStep:
    option = best.option
    split = f"each copy over {option.gpus_per_replica} cards" if option.gpus_per_replica > 1 else "a copy on each card"
    return PathStep(
        "parallelism",
        "as few cards per copy as can hold it; copies side by side",
        {"gpus_per_replica": option.gpus_per_replica, "replicas": option.replicas, "p95_s": option.p95_s},
        f"{split}, {plural(option.replicas, 'copy', 'copies')}: {best.nodes} × {best.card.name}:{best.per_machine}",
    )


def _warnings(
    situation: DeployDemand, best: _Choice, monthly: float, rent: Quote | None, *, fits: bool
) -> tuple[str, ...]:
    notes = []
    if best.option.meets_latency is False:
        notes.append(f"too slow: 95 of 100 take {best.option.p95_s or 0:.1f} s")
    if not fits:
        notes.append(f"above the budget: {about(monthly)} a month; the budget is ${situation.budget_usd:,.0f}")
    if rent is not None and rent.not_launched_on and not situation.owned_only:
        notes.append(f"${best.rent_usd_per_hour:,.2f}/h rented: {rent.not_launched_on}")
    if situation.owned_only:
        notes.append("until the machines are delivered, only what is owned already is used")
    return (*notes, *situation.places.beyond_job_files)


def _buying(situation: DeployDemand, best: _Choice, machine: str, nodes: int, owned: bool) -> Iterator[str]:
    """Warnings for a buyer: one machine has no redundancy, a purchase is paid at once, accelerators that are soldered
    to a board are not sold singly."""
    if nodes == 1 and best.option.replicas == 1:
        yield "one replica on one machine: while it fails or is updated nothing answers; a spare one doubles the cost"
    if not owned:
        return
    count = split_machine(machine)[1]
    cash = best.purchase_usd * count * nodes / best.gpus
    if situation.budget_usd is not None and cash > situation.budget_usd:
        rented = about(best.rent_usd_per_hour * HOURS_PER_MONTH)
        yield f"the purchase ({about(cash)}) is paid at once and exceeds a month's budget; rent is {rented} a month"
    if best.card.form_factor in _BOARDS and count * nodes % 4:
        yield (
            f"{best.card.name} is sold on boards of 4 or 8: {count * nodes} are counted as a share of one; buy a "
            "whole board for more work than this, reserve machines of this size, or take PCIe cards"
        )


def _assumptions(situation: DeployDemand, option: ServingOption, assumptions: Assumptions) -> list[str]:
    return [
        f"{assumptions.prompt_tokens:g} prompt tokens a request (--prompt-tokens), read before the answer",
        f"as many requests at once as fit in memory, at most {assumptions.serving_most_sequences}",
        option.pace_text or "speeds are roofline estimates: measure on one card before you buy",
        f"a server costs {assumptions.server_per_card_price:g} times its cards",
        f"it sells for {assumptions.resale_share:.0%} of that at the end",
        f"energy at ${assumptions.kwh_usd:g}/kWh, PUE {assumptions.pue:g}; a year is {HOURS_PER_YEAR:,} hours",
    ]
