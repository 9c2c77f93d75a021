"""Capacity plans and findings as results."""

from collections.abc import Sequence
from typing import Self

from broker.app.capacity.findings import CapacityFindings
from broker.app.capacity.plan import CapacityPlans
from broker.app.documents import Figure, Moment, Result
from broker.economics.figures import PlannedUsd
from broker.economics.reserve.capacity import CapacityPlan, CapacityStep, Hindsight
from broker.economics.reserve.capacity_findings import AcceleratorUse, CapacityFinding
from broker.economics.reserve.holdings import HoldingKind, Range, SupplyScenario
from broker.economics.units import HOURS_PER_MONTH


class PlannedPrices(Result):
    """Prices of demand above the baseline (burst), in USD."""

    on_demand_usd_per_gpu_hour: PlannedUsd
    spot_usd_per_gpu_hour: PlannedUsd | None
    spot_share_of_burst: Figure
    burst_usd_per_gpu_hour: PlannedUsd


class PlannedChoice(Result):
    """An option. ``ratio``: its price over that of bursts; ``share_of_hours_asked``: of the hours in which a GPU must
    be in use to be worth it, on average over the ``gpus_per_machine`` that are sold together; ``demand_known_enough``:
    for at least a quarter of the term."""

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


class BurstMix(Result):
    """Bursts with this share of spot, and the baseline that is then worth holding."""

    spot_share: Figure
    burst_usd_per_gpu_hour: PlannedUsd
    baseline_gpus: int
    usd_per_month: Range


class PlannedScenario(Result):
    """A way to serve the same demand, and the parts of its monthly cost."""

    scenario: SupplyScenario
    usd_per_month: Range
    held_usd: PlannedUsd
    reserved_anew_usd: PlannedUsd
    on_demand_usd: PlannedUsd
    spot_usd: PlannedUsd


class UsedHolding(Result):
    """Held capacity, its use in the last four weeks, and what to do at its end."""

    number: int
    kind: HoldingKind
    provider: str
    gpus: int
    ends: Moment
    utilisation: Figure
    usd_per_gpu_hour: PlannedUsd
    usd_per_used_gpu_hour: PlannedUsd | None
    renew_gpus: int
    renew_by: str
    let_lapse_gpus: int


class RatioBaseline(Result):
    """The baseline at another ratio of prices."""

    ratio: Figure
    baseline_gpus: int


class AcceleratorPlan(Result):
    """The plan for one accelerator. ``choices``: best first; empty if no option has a price."""

    accelerator: str
    demand_hours: int
    mean_gpus: Figure
    peak_gpus: int
    in_use_gpus: int
    held_gpus: int
    baseline_gpus: int
    buy_now_gpus: int
    prices: PlannedPrices
    choices: list[PlannedChoice]
    burst_mix: list[BurstMix]
    scenarios: list[PlannedScenario]
    held: list[UsedHolding]
    steps: list[CapacityStep]
    hindsight: Hindsight | None
    sensitivity: list[RatioBaseline]
    notes: list[str]

    @classmethod
    def of(cls, plan: CapacityPlan) -> Self:
        market, best = plan.market, plan.best
        return cls.from_parts(
            plan,
            demand_hours=plan.hours,
            mean_gpus=plan.mean,
            peak_gpus=plan.peak,
            in_use_gpus=plan.in_use,
            baseline_gpus=best.baseline if best else 0,
            buy_now_gpus=best.buy_now if best else 0,
            prices=PlannedPrices(
                on_demand_usd_per_gpu_hour=market.on_demand,
                spot_usd_per_gpu_hour=market.spot,
                spot_share_of_burst=market.spot_share,
                burst_usd_per_gpu_hour=market.burst,
            ),
            choices=[
                PlannedChoice.from_parts(
                    choice,
                    option=choice.option.name,
                    kind=choice.option.kind,
                    gpus_per_machine=choice.option.lot,
                    term_s=choice.option.term * 3600,
                    usd_per_gpu_hour=choice.option.usd,
                    share_of_hours_asked=choice.share_asked,
                    baseline_gpus=choice.baseline,
                    buy_now_gpus=choice.buy_now,
                    demand_known_enough=choice.known_enough,
                )
                for choice in plan.choices
            ],
            burst_mix=[
                BurstMix.from_parts(mix, burst_usd_per_gpu_hour=mix.burst_usd, baseline_gpus=mix.baseline)
                for mix in plan.mixes
            ],
            scenarios=[PlannedScenario.from_parts(cost, reserved_anew_usd=cost.reserved) for cost in plan.scenarios],
            held=[
                UsedHolding.from_parts(
                    use.recorded.holding,
                    use.recorded,
                    use,
                    renew_gpus=use.renew,
                    let_lapse_gpus=use.lapse,
                )
                for use in plan.held
            ],
            sensitivity=[RatioBaseline(ratio=ratio, baseline_gpus=gpus) for ratio, gpus in plan.sensitivity.items()],
        )


class CapacityPlanList(Result):
    """A plan for each accelerator that has demand. ``demand_from``: where the demand is from. Money in USD."""

    as_of: Moment
    demand_from: str
    hours_per_month: Figure
    plans: list[AcceleratorPlan]
    notes: list[str]

    @classmethod
    def of(cls, plans: CapacityPlans) -> Self:
        return cls.from_parts(plans, as_of=plans.now, demand_from=plans.source, hours_per_month=HOURS_PER_MONTH)


class RecordedUse(Result):
    """The use of one accelerator, and the prices (USD per GPU-hour) that it is judged by; null where not known."""

    accelerator: str
    hours: int
    gpu_hours: int
    rented_gpu_hours: int
    owned: int
    reserved: int
    rent_usd_per_gpu_hour: Figure
    held_usd_per_gpu_hour: Figure | None
    reserve_usd_per_gpu_hour: Figure | None
    own_usd_per_gpu_hour: Figure | None
    energy_usd_per_gpu_hour_at_work: Figure

    @classmethod
    def of(cls, use: AcceleratorUse) -> Self:
        return cls.from_parts(
            use,
            hours=len(use.demand),
            gpu_hours=sum(use.demand),
            rented_gpu_hours=sum(use.rented),
            rent_usd_per_gpu_hour=use.rent,
            held_usd_per_gpu_hour=use.held_usd,
            reserve_usd_per_gpu_hour=use.reserve_usd,
            own_usd_per_gpu_hour=use.own_usd,
            energy_usd_per_gpu_hour_at_work=use.energy_usd,
        )


class WarnedRuleResult(Result):
    """A rule that only warns, and the jobs that it would have stopped, and refused a start or money. ``message`` and
    ``source``: of its newest verdict."""

    name: str
    kind: str
    stopped: list[str]
    refused: list[str]
    first: Moment
    last: Moment
    message: str
    source: str


class CapacityFindingList(Result):
    """What recorded use recommends, and what rules that only warn would have stopped. ``enough_use``: whether enough
    hours of any accelerator are known."""

    since: Moment
    now: Moment
    findings: list[CapacityFinding]
    enough_use: bool
    uses: list[RecordedUse]
    notes: list[str]
    warned_rules: list[WarnedRuleResult]

    @classmethod
    def of(cls, findings: CapacityFindings, warned_rules: Sequence[WarnedRuleResult]) -> Self:
        return cls.from_parts(findings, enough_use=findings.enough, warned_rules=warned_rules)
