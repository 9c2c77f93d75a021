"""The capacity plan of one accelerator from demand, holdings and prices: what to hold, what not to renew, and when.

Amounts are USD, prices per GPU and hour. Demand is in GPUs per hour, ending at ``now``. Costs are those of
`broker.economics.reserve.holdings`, levels those of `broker.economics.reserve.planner`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from broker.core.errors import InvalidInput
from broker.economics.figures import Figure, PlannedUsd
from broker.economics.reserve.holdings import (
    QUARTER,
    WEEK,
    BurstPrices,
    HeldCapacity,
    HoldingKind,
    Range,
    RecordedHolding,
    ScenarioCost,
    SupplyScenario,
    scenario_cost,
)
from broker.economics.reserve.planner import LONGEST_TERM, PATIENCE, Memory, Planner, hours_used, required_share
from broker.economics.reserve.replay import ReserveTerms, replay
from broker.economics.units import HOURS_PER_MONTH, positive

RECENT = 4 * WEEK
SPOT_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SENSITIVITY = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RECHECKS = ((7, PATIENCE / 2), (14, 0.0))
"""Days until each later review, and the patience (`required_share`) with which GPUs still in use are bought then."""


@dataclass(frozen=True, slots=True)
class PurchaseOption:
    """Capacity for sale: ``term`` in hours, ``usd`` per GPU-hour, used or not. ``name``: seller and place. ``lot``: the
    GPUs of a machine, which are only sold together."""

    name: str
    term: int
    usd: float
    kind: HoldingKind = HoldingKind.RESERVATION
    lot: int = 1


@dataclass(frozen=True, slots=True)
class PlannedChoice:
    """An option. ``ratio``: its price over that of bursts; ``share_of_hours_asked``: of the hours in which a GPU must
    be in use to be worth it, on average over the ``gpus_per_machine`` that are sold together, None if no demand makes
    it worth its price; ``baseline_gpus``: worth holding in total; ``buy_now_gpus``: missing from it and in use, in
    whole machines; ``usd_per_month``: of all the demand, with that bought; ``demand_known_enough``: for at least a
    quarter of the term, a year for the longest."""

    option: str
    kind: HoldingKind
    gpus_per_machine: int
    term_s: int
    usd_per_gpu_hour: PlannedUsd
    ratio: Figure
    share_of_hours_asked: Figure | None
    baseline_gpus: int
    buy_now_gpus: int
    usd_per_month: Range
    demand_known_enough: bool

    @property
    def term(self) -> int:
        """Hours."""
        return self.term_s // 3600


@dataclass(frozen=True, slots=True)
class BurstMix:
    """Bursts with this share of spot: what their GPU-hour costs, how many GPUs are then worth holding by the best
    option, and what all the demand costs a month with those. The cheaper bursts are, the less is worth holding."""

    spot_share: Figure
    burst_usd_per_gpu_hour: PlannedUsd
    baseline_gpus: int
    usd_per_month: Range


@dataclass(frozen=True, slots=True)
class UsedHolding:
    """Held capacity and its use in the last four weeks. ``usd_per_used_gpu_hour``: None where it was not used. At its
    end ``renew_gpus`` of it are worth having again, by ``renew_by``, and ``let_lapse_gpus`` are not."""

    number: int
    kind: HoldingKind
    provider: str
    gpus: int
    ends: datetime
    utilisation: Figure
    usd_per_gpu_hour: PlannedUsd
    usd_per_used_gpu_hour: PlannedUsd | None
    renew_gpus: int
    renew_by: str
    let_lapse_gpus: int


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """An action ``at`` a time (UTC): ``buy``, ``renew`` or ``let_lapse``. ``condition``: empty if unconditional."""

    at: datetime
    action: str
    gpus: int
    what: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The monthly cost of the rule over the last ``hours``, starting without holdings, with the best option's price and
    term; terms that continue are charged pro rata.
    """

    hours: int
    usd_per_month: PlannedUsd
    all_on_bursts_usd_per_month: PlannedUsd


@dataclass(frozen=True, slots=True)
class RatioBaseline:
    """The GPUs worth holding at another ratio of prices, for the longest term."""

    ratio: Figure
    baseline_gpus: int


@dataclass(frozen=True, slots=True)
class PlannedPrices:
    """Prices of demand above the baseline (burst), in USD."""

    on_demand_usd_per_gpu_hour: PlannedUsd
    spot_usd_per_gpu_hour: PlannedUsd | None
    spot_share_of_burst: Figure
    burst_usd_per_gpu_hour: PlannedUsd


@dataclass(frozen=True, slots=True)
class AcceleratorPlan:
    """The plan for one accelerator. ``held_gpus``: that serve demand now. ``choices``: best first; empty if no option
    has a price. ``baseline_gpus``, ``buy_now_gpus``: of the best choice; 0 when nothing can be reserved, or bursts are
    cheaper than anything held. ``sensitivity``: also at the highest ratio at which any is worth holding."""

    accelerator: str
    demand_hours: int
    mean_gpus: Figure
    peak_gpus: int
    in_use_gpus: int
    held_gpus: int
    baseline_gpus: int
    buy_now_gpus: int
    prices: PlannedPrices
    choices: tuple[PlannedChoice, ...]
    burst_mix: tuple[BurstMix, ...]
    scenarios: tuple[ScenarioCost, ...]
    held: tuple[UsedHolding, ...]
    steps: tuple[CapacityStep, ...]
    hindsight: Hindsight | None
    sensitivity: tuple[RatioBaseline, ...]
    notes: tuple[str, ...]


def plan_capacity(
    accelerator: str,
    demand: Sequence[int],
    now: datetime,
    market: BurstPrices,
    options: Iterable[PurchaseOption] = (),
    holdings: Iterable[RecordedHolding] = (),
    *,
    kwh_usd: float = 0.0,
    pue: float = 1.0,
    least_use: float = 0.0,
    not_renewed: Collection[int] = (),
) -> AcceleratorPlan:
    """Evaluate every option and combine the plan. ``holdings``: those of this accelerator; past ones are left out, and
    commitments add no capacity: bursts up to the commitment cost nothing more. ``least_use``: the share of the hours,
    0 to 1, in which a GPU must have been needed to be held; ``not_renewed``: the numbers of holdings that may not be
    held again at their price for their time. Demand beyond what is held counts in whole rented machines. Raises
    InvalidInput for missing or invalid demand.
    """
    if not demand:
        raise InvalidInput(f"{accelerator}: no demand is known")
    ranked = _stack(recorded for recorded in holdings if recorded.holding.ends > now)
    held = HeldCapacity.of((recorded.holding for _, recorded in ranked), now, kwh_usd, pue)
    gpus_used = demand
    demand = [gpus + -max(gpus - held.gpus, 0) % market.lot for gpus in demand]  # the last machine is paid for whole
    needed = gpus_needed(demand, least_use)
    evaluated = [(_evaluate(demand, option, market, held, least_use), option) for option in options]
    ranked_choices = sorted(evaluated, key=lambda pair: _rank(pair[0]))
    choices = tuple(choice for choice, _ in ranked_choices)
    best = choices[0] if choices and choices[0].baseline_gpus else None
    longest = _memory(demand, max((choice.term for choice in choices), default=8760))
    uses = tuple(
        _use(
            demand, unit, recorded, market, best, kwh_usd, pue, 0 if recorded.number in not_renewed else needed, needed
        )
        for unit, recorded in ranked
    )
    ratios = sorted({*SENSITIVITY, *_highest_ratio(longest)})
    return AcceleratorPlan(
        accelerator=accelerator,
        demand_hours=len(demand),
        mean_gpus=sum(gpus_used) / len(gpus_used),
        peak_gpus=max(gpus_used),
        in_use_gpus=longest.in_use,
        held_gpus=held.gpus,
        baseline_gpus=best.baseline_gpus if best else 0,
        buy_now_gpus=best.buy_now_gpus if best else 0,
        prices=PlannedPrices(market.on_demand, market.spot, market.spot_share, market.burst),
        choices=choices,
        burst_mix=tuple(_mixes(demand, ranked_choices[0][1], market, held, least_use)) if choices else (),
        scenarios=tuple(_scenarios(demand, market, held, best)),
        held=uses,
        steps=tuple(_steps(demand, now, best, uses, held, least_use)),
        hindsight=_hindsight(demand, market, best),
        sensitivity=tuple(RatioBaseline(ratio, longest.level(ratio)) for ratio in ratios),
        notes=tuple(_notes(demand, market, choices, best, held)),
    )


def _memory(demand: Sequence[int], term: int, lot: int = 1) -> Memory:
    """The demand's history, limited to the hours that the rule uses."""
    return Memory(term, demand[-hours_used(term) :], lot)


def _highest_ratio(memory: Memory) -> Iterable[float]:
    """The highest ratio at which anything is worth holding, to a millionth; none if nothing is at any."""
    low, high = (1.0, 1.0) if memory.level(1.0) else (0.0, 1.0)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if memory.level(middle) else (low, middle)
    if low:
        yield low


def _rank(choice: PlannedChoice) -> tuple[bool, bool, float, int]:
    """Sort key: options worth holding first, of those the ones with enough known demand."""
    return not choice.baseline_gpus, not choice.demand_known_enough, choice.usd_per_month.expected, choice.term


def _stack(holdings: Iterable[RecordedHolding]) -> list[tuple[int, RecordedHolding]]:
    """Each holding with the first GPU of demand that it serves: owned machines first, then those that last longest."""
    order = {HoldingKind.OWNED: 0, HoldingKind.RESERVATION: 1, HoldingKind.COMMITMENT: 2}
    ranked = sorted(holdings, key=lambda r: (order[r.holding.kind], -r.holding.ends.timestamp(), r.number))
    stacked, unit = [], 0
    for recorded in ranked:
        stacked.append((unit, recorded))
        unit += 0 if recorded.holding.kind is HoldingKind.COMMITMENT else recorded.holding.gpus
    return stacked


def gpus_needed(demand: Sequence[int], share: float) -> int:
    """How many GPUs were needed in at least this share of the hours (0 to 1); all that ever were, for 0."""
    ordered = sorted(demand, reverse=True)
    return ordered[max(ceil(share * len(ordered) - 1e-9), 1) - 1]


def _evaluate(
    demand: Sequence[int], option: PurchaseOption, market: BurstPrices, held: HeldCapacity, least_use: float
) -> PlannedChoice:
    ratio = positive("reserved price", option.usd, "USD") / market.burst
    memory = _memory(demand, option.term, option.lot)
    level, asked = min(memory.level(ratio), gpus_needed(demand, least_use)), max(memory.share_asked(ratio), least_use)
    baseline = min(level, held.gpus) + memory.lots(max(level - held.gpus, 0), held.gpus, asked)
    buy = memory.lots(max(min(level, memory.reached(ratio)) - held.gpus, 0), held.gpus, asked)
    cost = scenario_cost(SupplyScenario.PLANNED, demand, market, held, buy, option.usd)
    return PlannedChoice(
        option=option.name,
        kind=option.kind,
        gpus_per_machine=option.lot,
        term_s=option.term * 3600,
        usd_per_gpu_hour=option.usd,
        ratio=ratio,
        share_of_hours_asked=memory.share_asked(ratio) if ratio <= 1 else None,
        baseline_gpus=baseline,
        buy_now_gpus=buy,
        usd_per_month=cost.usd_per_month,
        demand_known_enough=len(demand) >= min(option.term / 4, 8760),
    )


def _mixes(
    demand: Sequence[int], option: PurchaseOption, market: BurstPrices, held: HeldCapacity, least_use: float
) -> Iterable[BurstMix]:
    if market.spot is None:
        return
    for spot_share in SPOT_SHARES:
        mixed = BurstPrices(market.on_demand, market.spot, spot_share)
        choice = _evaluate(demand, option, mixed, held, least_use)
        yield BurstMix(spot_share, mixed.burst, choice.baseline_gpus, choice.usd_per_month)


def _scenarios(
    demand: Sequence[int], market: BurstPrices, held: HeldCapacity, best: PlannedChoice | None
) -> Iterable[ScenarioCost]:
    nothing = HeldCapacity(0, 0.0, 0.0, 0.0)
    yield scenario_cost(SupplyScenario.AS_IS, demand, market, held)
    yield scenario_cost(SupplyScenario.ALL_ON_DEMAND, demand, BurstPrices(market.on_demand, market.spot), nothing)
    if market.spot is not None:
        yield scenario_cost(SupplyScenario.ALL_SPOT, demand, BurstPrices(market.on_demand, market.spot, 1.0), nothing)
    buy, usd = (best.buy_now_gpus, best.usd_per_gpu_hour) if best else (0, 0.0)
    yield scenario_cost(SupplyScenario.PLANNED, demand, market, held, buy, usd)


def _use(
    demand: Sequence[int],
    unit: int,
    recorded: RecordedHolding,
    market: BurstPrices,
    best: PlannedChoice | None,
    kwh_usd: float,
    pue: float,
    renew_limit: int,
    needed: int,
) -> UsedHolding:
    """The use of a holding, and the part worth renewing: at its current cost, then for demand of at most
    ``renew_limit`` GPUs, or by the best option if cheaper."""
    holding, recent = recorded.holding, demand[-RECENT:]
    used = sum(min(max(gpus - unit, 0), holding.gpus) for gpus in recent) / (len(recent) * holding.gpus)
    paid, energy = holding.usd_per_gpu_hour, holding.energy_usd_per_gpu_hour(kwh_usd, pue)
    lot = 1
    if best is not None and best.usd_per_gpu_hour <= paid + energy and holding.gpus % best.gpus_per_machine == 0:
        level, renew_by, lot = best.baseline_gpus, best.option, best.gpus_per_machine
    else:
        term = min(max(round(holding.hours), 1), LONGEST_TERM)
        level, renew_by = (
            (_memory(demand, term).level((paid + energy) / market.burst) if paid + energy else max(demand)),
            "",
        )
        level = min(level, renew_limit)
    renew = min(ceil(max(min(level, needed) - unit, 0) / lot) * lot, holding.gpus)
    per_used = paid / used + energy if used else None
    return UsedHolding(
        number=recorded.number,
        kind=holding.kind,
        provider=holding.provider,
        gpus=holding.gpus,
        ends=holding.ends,
        utilisation=used,
        usd_per_gpu_hour=paid,
        usd_per_used_gpu_hour=per_used,
        renew_gpus=renew,
        renew_by=renew_by or "the same price",
        let_lapse_gpus=holding.gpus - renew,
    )


def _steps(
    demand: Sequence[int],
    now: datetime,
    best: PlannedChoice | None,
    uses: Sequence[UsedHolding],
    held: HeldCapacity,
    least_use: float,
) -> list[CapacityStep]:
    """The schedule: buy what is missing now, review, and decide on each holding before it ends."""
    steps = []
    if best is not None:
        name, gpus_held = best.option, held.gpus + best.buy_now_gpus
        if best.buy_now_gpus:
            steps.append(CapacityStep(now, "buy", best.buy_now_gpus, name))
        memory, needed = _memory(demand, best.term, best.gpus_per_machine), gpus_needed(demand, least_use)
        for days, patience in RECHECKS:
            level = min(memory.level(best.ratio, patience), needed)
            asked = min(memory.share_asked(best.ratio), required_share(best.ratio, patience))
            if missing := memory.lots(max(level - gpus_held, 0), gpus_held, max(asked, least_use)):
                gpus_held += missing
                condition = f"if demand has stayed at {gpus_held:,} GPUs or more until then"
                steps.append(CapacityStep(now + timedelta(days=days), "buy", missing, name, condition))
    for use in uses:
        label = f"{use.kind.value} #{use.number} of {use.provider}"
        ends = use.ends
        if use.renew_gpus:
            steps.append(
                CapacityStep(ends, "renew", use.renew_gpus, f"{label}, by {use.renew_by}", "if demand is then as now")
            )
        if use.let_lapse_gpus:
            steps.append(CapacityStep(ends, "let_lapse", use.let_lapse_gpus, label, "if demand is then as now"))
    return sorted(steps, key=lambda step: step.at)


def _hindsight(demand: Sequence[int], market: BurstPrices, best: PlannedChoice | None) -> Hindsight | None:
    """Over the last quarter at most, with earlier demand as history; None with less than two weeks of demand."""
    if best is None or len(demand) < 2 * WEEK:
        return None
    hours = min(QUARTER, len(demand) - WEEK)
    history_hours = hours_used(best.term)
    series = demand[-hours - history_hours :]
    terms = ReserveTerms(best.term, best.ratio)
    outcome = replay(
        Planner(terms.term, terms.ratio, best.gpus_per_machine), series, terms, warm_up=len(series) - hours
    )
    to_month = HOURS_PER_MONTH / hours * market.burst
    return Hindsight(hours, outcome.cost * to_month, sum(demand[-hours:]) * to_month)


def _rule(demand: Sequence[int], market: BurstPrices, choice: PlannedChoice) -> Iterable[str]:
    """The share of the hours that need the last GPU (or lot) worth holding and the next one, to compare with the share
    that the rule asks for; and what constant levels at the option's price cost a month more than the one that was best
    for the known hours."""
    level, lot = choice.baseline_gpus, choice.gpus_per_machine
    shares = _shares(demand, level, lot)
    if shares and choice.share_of_hours_asked is not None:
        yield f"needed: {shares} of the hours, asked {choice.share_of_hours_asked:.0%}"

    def usd_per_month(gpus: int) -> float:
        bursts = sum(max(need - gpus, 0) for need in demand) / len(demand)
        return (gpus * choice.usd_per_gpu_hour + bursts * market.burst) * HOURS_PER_MONTH

    full = (gpus_needed(demand, choice.ratio) if choice.ratio < 1 else 0) // lot * lot
    optimum = min((full, full + lot), key=usd_per_month)
    levels = (0, level, ceil(max(demand) / lot) * lot)
    regrets = [f"hold {gpus:,}: ${usd_per_month(gpus) - usd_per_month(optimum):,.0f}" for gpus in levels]
    yield (
        f"regret a month over the {len(demand):,} known hours, against the best constant number, {optimum:,}: "
        f"{'; '.join(dict.fromkeys(regrets))}"
    )


def _shares(demand: Sequence[int], level: int, lot: int = 1) -> str:
    """The share of the hours that need the GPU of that number, and the next one; of lots, that need their GPUs on
    average."""

    def needed(first: int) -> str:
        share = sum(min(max(need - first, 0), lot) for need in demand) / (lot * len(demand))
        name = f"GPU {first + 1:,}" if lot == 1 else f"GPUs {first + 1:,} to {first + lot:,} (one machine)"
        return f"{name} in {share:.0%}"

    return ", ".join(needed(first) for first in (level - lot, level) if 0 <= first < max(demand))


def _notes(
    demand: Sequence[int],
    market: BurstPrices,
    choices: Sequence[PlannedChoice],
    best: PlannedChoice | None,
    held: HeldCapacity,
) -> Iterable[str]:
    if market.lot > 1:
        yield f"rented in whole machines of {market.lot}: demand counts in steps of {market.lot} GPUs"
    if len(demand) < WEEK:
        yield f"only {len(demand)} h of demand are known: plan again with at least a week"
    if choices:
        if (lot := choices[0].gpus_per_machine) > 1:
            yield f"{choices[0].option} is sold as whole machines of {lot} GPUs: all of them are paid for"
        yield from _rule(demand, market, choices[0])
    if not choices:
        shares = _shares(demand, min(demand)) or _shares(demand, max(demand))
        yield f"needed: {shares} of the hours; the figures show the price at which reserved capacity would pay"
    elif all(choice.ratio >= 1 for choice in choices):
        yield "every option costs at least as much as bursts: reserve nothing"
    if best is not None and not best.demand_known_enough:
        days, term = len(demand) / 24, best.term / 24
        yield f"{days:.0f} days of demand are known for a term of {term:.0f}: prefer a shorter term, or buy in parts"
    if best is not None and held.gpus > best.baseline_gpus:
        worth = f"{best.baseline_gpus:,} are worth holding"
        yield f"{held.gpus:,} GPUs are held and {worth}: see which commitments not to renew"
    if market.spot is not None and market.spot >= market.on_demand:
        yield "spot is no cheaper than on-demand at the moment"
    elif market.spot_share:
        yield "spot is priced as of now, without the cost of interruptions"
