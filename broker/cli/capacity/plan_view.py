"""The capacity plan as tables and as charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.capacity.plan import CapacityPlans
from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.tables import Column, fitted
from broker.economics.reserve.capacity import CapacityPlan, CapacityStep, EvaluatedOption, Mix
from broker.economics.reserve.costs import SupplyScenario

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SCENARIOS = {
    SupplyScenario.AS_IS: "as is",
    SupplyScenario.ALL_ON_DEMAND: "all on-demand",
    SupplyScenario.ALL_SPOT: "all spot",
    SupplyScenario.PLANNED: "planned",
}
_ACTIONS = {"buy": "buy", "renew": "renew", "let_lapse": "let lapse"}
_MEANT = (
    "USD per month of 730 hours, at the demand of the weeks of the last quarter; the range is their 10th to 90th"
    " percentile. All on-demand and all spot assume that no capacity is held."
)


def tables(console: Console, planned: CapacityPlans) -> list[RenderableType]:
    """The plan for each accelerator with its arithmetic."""
    shown: list[RenderableType] = []
    for plan in planned.plans:
        shown += [*_plan(console, planned, plan), ""]
    shown.append(Text(f"Demand: {planned.source}.", style="dim"))
    shown.append(Text(_MEANT, style="dim"))
    return [*shown, *(Text(note, style="dim") for note in planned.notes)]


def _plan(console: Console, planned: CapacityPlans, plan: CapacityPlan) -> Iterator[RenderableType]:
    yield Text(f"{plan.accelerator}: {_headline(plan)}", style="bold")
    yield Text(
        f"{plan.hours:,} h of demand: {plan.mean:,.1f} GPUs on average, {plan.peak:,} at most, {plan.in_use:,} in use"
        " now",
        style="dim",
    )
    if plan.choices:
        yield from fitted(console, _CHOICES, [_choice(choice) for choice in plan.choices])
        yield from _arithmetic(plan, plan.choices[0])
    else:
        worth = ", ".join(f"{gpus:,} at {ratio:g}" for ratio, gpus in plan.sensitivity.items())
        yield Text(f"GPUs worth holding for a year, by reserved over on-demand price: {worth}")
    yield ""
    yield from fitted(console, _COSTS, [_cost(plan, cost.scenario) for cost in plan.scenarios])
    if plan.mixes and plan.best is not None:
        yield ""
        yield from fitted(console, _MIXES, [_mix(plan, mix) for mix in plan.mixes])
    if plan.held:
        yield ""
        yield from fitted(console, _HELD, _held(plan))
    if plan.steps:
        yield ""
        yield from (Text(_step(step)) for step in plan.steps)
    yield from (Text(note, style="yellow") for note in plan.notes)


def _headline(plan: CapacityPlan) -> str:
    best = plan.best
    if best is None:
        return "reserve nothing" if plan.choices else "no price of reserved capacity is known"
    missing = f"buy {best.buy_now:,} now" if best.buy_now else "buy nothing now"
    return f"hold {best.baseline:,} GPUs ({plan.held_gpus:,} held; {missing}), burst above"


_CHOICES = (
    Column("option", folds=True),
    Column("$/GPU-h", 1, "right"),
    Column("over burst price", 2, "right"),
    Column("worth holding", 0, "right"),
    Column("buy now", 0, "right"),
    Column("$/month", 1, "right"),
)


def _choice(choice: EvaluatedOption) -> list[str | Text]:
    return [
        choice.option.name,
        f"{choice.option.usd:,.3f}",
        f"{choice.ratio:.2f}",
        f"{choice.baseline:,}",
        f"{choice.buy_now:,}",
        f"{choice.usd_per_month.expected:,.0f}",
    ]


def _arithmetic(plan: CapacityPlan, best: EvaluatedOption) -> Iterator[Text]:
    market = plan.market
    spot = "" if not market.spot_share else f" ({market.spot_share:.0%} of it on spot at ${market.spot:,.3f})"
    says = (
        "It costs more than bursts, so it is never worth holding."
        if best.share_asked is None
        else f"A GPU is worth holding if demand reaches it in {best.share_asked:.0%} of the hours: ρ plus a margin"
        " for the commitment."
    )
    yield Text(
        f"A GPU-hour of bursts costs ${market.burst:,.3f}{spot}, a held GPU-hour ${best.option.usd:,.3f}: ρ ="
        f" {best.option.usd:,.3f} / {market.burst:,.3f} = {best.ratio:.2f}. {says}",
        style="dim",
    )
    if plan.hindsight is not None:
        past = plan.hindsight
        yield Text(
            f"Over the last {past.hours / 24:.0f} days, starting with nothing held, this plan would have cost"
            f" ${past.usd_per_month:,.0f} per month; bursts alone ${past.all_on_bursts_usd_per_month:,.0f}.",
            style="dim",
        )


_COSTS = (
    Column("scenario"),
    Column("$/month", 0, "right"),
    Column("range", 1, "right"),
    Column("held", 3, "right"),
    Column("newly reserved", 4, "right"),
    Column("on-demand", 2, "right"),
    Column("spot", 2, "right"),
)


def _cost(plan: CapacityPlan, scenario: SupplyScenario) -> list[str | Text]:
    cost = next(cost for cost in plan.scenarios if cost.scenario is scenario)
    style = "bold" if scenario is SupplyScenario.PLANNED else ""
    amounts = (cost.held, cost.reserved, cost.on_demand, cost.spot)
    spread = f"{cost.usd_per_month.low:,.0f} – {cost.usd_per_month.high:,.0f}"
    cells = [_SCENARIOS[scenario], f"{cost.usd_per_month.expected:,.0f}", spread, *(f"{a:,.0f}" for a in amounts)]
    return [Text(cell, style=style) for cell in cells]


_MIXES = (
    Column("spot share of bursts", 0, "right"),
    Column("$/burst GPU-h", 1, "right"),
    Column("worth holding", 0, "right"),
    Column("$/month", 0, "right"),
)


def _mix(plan: CapacityPlan, mix: Mix) -> list[str | Text]:
    now = " (as planned)" if mix.spot_share == plan.market.spot_share else ""
    return [
        f"{mix.spot_share:.0%}{now}",
        f"{mix.burst_usd:,.3f}",
        f"{mix.baseline:,}",
        f"{mix.usd_per_month.expected:,.0f}",
    ]


_HELD = (
    Column("#", align="right"),
    Column("held"),
    Column("GPUs", 1, "right"),
    Column("used", 0, "right"),
    Column("$/GPU-h", 3, "right"),
    Column("$/used GPU-h", 2, "right"),
    Column("ends", 1),
    Column("renew", 1, "right"),
    Column("let lapse", 0, "right"),
)


def _held(plan: CapacityPlan) -> list[Sequence[str | Text]]:
    rows: list[Sequence[str | Text]] = []
    for use in plan.held:
        held = use.recorded.holding
        per_used = use.usd_per_used_gpu_hour
        rows.append(
            [
                str(use.recorded.number),
                f"{held.kind.value} {held.provider}",
                f"{held.gpus:,}",
                f"{use.utilisation:.0%}",
                f"{use.usd_per_gpu_hour:,.3f}",
                "never used" if per_used is None else f"{per_used:,.3f}",
                f"{held.ends.astimezone(UTC):%Y-%m-%d}",
                f"{use.renew:,}",
                f"{use.lapse:,}",
            ]
        )
    return rows


def _step(step: CapacityStep) -> str:
    condition = f", {step.condition}" if step.condition else ""
    return f"{step.at.astimezone(UTC):%Y-%m-%d}  {_ACTIONS[step.action]} {step.gpus:,}: {step.what}{condition}"


def charts(planned: CapacityPlans) -> list[Chart]:
    """For each accelerator: demand with held capacity and capacity worth holding, and the cost of the scenarios."""
    return [chart for plan in planned.plans for chart in (_levels(planned, plan), _costs(plan))]


def _levels(planned: CapacityPlans, plan: CapacityPlan) -> Chart:
    demand = planned.demand[plan.accelerator]
    until = planned.now.replace(minute=0, second=0, microsecond=0)
    times = [until - timedelta(hours=len(demand) - hour) for hour in range(len(demand))]
    edges = [times[0], times[-1]]
    lines = [Line("demand", times, list(demand))]
    if plan.held_gpus:
        lines.append(Line("held now", edges, [plan.held_gpus, plan.held_gpus]))
    if plan.best is not None:
        lines.append(Line("worth holding", edges, [plan.best.baseline, plan.best.baseline]))
    return Chart(f"{plan.accelerator}: demand and capacity worth holding", "time", "GPUs", lines=lines)


def _costs(plan: CapacityPlan) -> Chart:
    labels = [_SCENARIOS[cost.scenario] for cost in plan.scenarios]
    values = [round(cost.usd_per_month.expected) for cost in plan.scenarios]
    return Chart(
        f"{plan.accelerator}: cost of the same demand",
        "scenario",
        "USD per month",
        bars=[Bars("expected", labels, values)],
        note=_MEANT,
    )
