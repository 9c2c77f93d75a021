"""The capacity plan as tables and as charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.tables import Column, ValueColumn, cell_table_parts, table_parts
from broker.economics.reserve.holdings import SupplyScenario
from broker.economics.reserve.planner import required_share

if TYPE_CHECKING:
    from broker.app.capacity.plan import CapacityPlanList
    from broker.economics.reserve.capacity import AcceleratorPlan, BurstMix, PlannedChoice, RatioBaseline, UsedHolding
    from broker.economics.reserve.holdings import ScenarioCost

_SCENARIOS = {
    SupplyScenario.AS_IS: "as is",
    SupplyScenario.ALL_ON_DEMAND: "all on-demand",
    SupplyScenario.ALL_SPOT: "all spot",
    SupplyScenario.PLANNED: "planned",
}
_COST_NOTE = (
    "USD per month of 730 hours, at the weekly demand of the last year; the range is its 10th to 90th"
    " percentile. All on-demand and all spot assume that no capacity is held."
)


def plan_lines(console: Console, plan_list: CapacityPlanList) -> Iterator[RenderableType]:
    """The plan for each accelerator with its arithmetic."""
    for plan in plan_list.plans:
        yield from _plan(console, plan)
        yield ""
    yield from (Text(line, style="dim") for line in (f"Demand: {plan_list.demand_from}.", _COST_NOTE, *plan_list.notes))


def _plan(console: Console, plan: AcceleratorPlan) -> Iterator[RenderableType]:
    yield Text(f"{plan.accelerator}: {_headline(plan)}", style="bold")
    yield Text(
        f"{plan.demand_hours:,} h of demand: {plan.mean_gpus:,.1f} GPUs on average, {plan.peak_gpus:,} at most,"
        f" {plan.in_use_gpus:,} in use now",
        style="dim",
    )
    if plan.choices:
        yield from table_parts(console, _CHOICE_COLUMNS, plan.choices)
        yield from _arithmetic(plan, plan.choices[0])
    else:
        baseline_texts = ", ".join(
            f"{sensitivity.baseline_gpus:,} at {sensitivity.ratio:g} (${_reserved_usd(plan, sensitivity):,.2f})"
            for sensitivity in plan.sensitivity
        )
        yield Text(f"GPUs worth holding for a year, by reserved over on-demand price: {baseline_texts}")
    yield ""
    yield from cell_table_parts(console, _COST_COLUMNS, map(_cost, plan.scenarios))
    if plan.burst_mix and plan.baseline_gpus:
        yield ""
        yield from table_parts(console, _burst_mix_columns(plan.prices.spot_share_of_burst), plan.burst_mix)
    if plan.held:
        yield ""
        yield from table_parts(console, _HELD_COLUMNS, plan.held)
    if plan.steps:
        yield ""
    for step in plan.steps:
        action, condition = step.action.replace("_", " "), f", {step.condition}" if step.condition else ""
        yield Text(f"{_day(step.at)}  {action} {step.gpus:,}: {step.what}{condition}")
    yield from (Text(note, style="yellow") for note in plan.notes)


def _headline(plan: AcceleratorPlan) -> str:
    if not plan.baseline_gpus and plan.choices:
        return "reserve nothing"
    if not plan.baseline_gpus:
        worth = max((row for row in plan.sensitivity if row.baseline_gpus), key=lambda row: row.ratio, default=None)
        advice = "no current price of reserved capacity is known: ask for a quote"
        if worth is None:
            return advice
        return f"{advice}; hold {worth.baseline_gpus:,} GPUs at up to ${_reserved_usd(plan, worth):,.2f}"
    missing = f"buy {plan.buy_now_gpus:,} now" if plan.buy_now_gpus else "buy nothing now"
    return f"hold {plan.baseline_gpus:,} GPUs ({plan.held_gpus:,} held; {missing}), burst above"


def _margin(best: PlannedChoice) -> str:
    """Why that share of the hours is asked."""
    if (best.share_of_hours_asked or 0.0) < required_share(best.ratio):
        return "ρ, as demand repeats from week to week"
    return "ρ plus a margin for the commitment"


def _reserved_usd(plan: AcceleratorPlan, row: RatioBaseline) -> float:
    """The price of reserved capacity, USD per GPU-hour, at that ratio."""
    return row.ratio * plan.prices.burst_usd_per_gpu_hour


def _arithmetic(plan: AcceleratorPlan, best: PlannedChoice) -> Iterator[Text]:
    market, burst, held_price = plan.prices, plan.prices.burst_usd_per_gpu_hour, best.usd_per_gpu_hour
    share = market.spot_share_of_burst
    spot = f" ({share:.0%} of it on spot at ${market.spot_usd_per_gpu_hour:,.3f})" if share else ""
    verdict_text = "It costs more than bursts, so it is never worth holding."
    if best.share_of_hours_asked is not None:
        share_text = f"{best.share_of_hours_asked:.0%} of the hours: {_margin(best)}"
        verdict_text = f"A GPU is worth holding if demand reaches it in {share_text}."
    yield Text(
        f"A GPU-hour of bursts costs ${burst:,.3f}{spot}, a held GPU-hour ${held_price:,.3f}: ρ ="
        f" {held_price:,.3f} / {burst:,.3f} = {best.ratio:.2f}. {verdict_text}",
        style="dim",
    )
    if hindsight := plan.hindsight:
        yield Text(
            f"Over the last {hindsight.hours / 24:.0f} days, with the days before (a week or more) as history and"
            f" nothing held at first, this plan would have cost ${hindsight.usd_per_month:,.0f} per month; bursts alone"
            f" ${hindsight.all_on_bursts_usd_per_month:,.0f}.",
            style="dim",
        )


def _day(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d}"


def _usd(amount: float) -> str:
    return f"{amount:,.3f}"


_CHOICE_COLUMNS: tuple[ValueColumn[PlannedChoice], ...] = (
    ValueColumn("option", lambda row: row.option, folds=True),
    ValueColumn("$/GPU-h", lambda row: _usd(row.usd_per_gpu_hour), 1, "right"),
    ValueColumn("over burst price", lambda row: f"{row.ratio:.2f}", 2, "right"),
    ValueColumn("worth holding", lambda row: f"{row.baseline_gpus:,}", 0, "right"),
    ValueColumn("buy now", lambda row: f"{row.buy_now_gpus:,}", 0, "right"),
    ValueColumn("$/month", lambda row: f"{row.usd_per_month.expected:,.0f}", 1, "right"),
)
_HELD_COLUMNS: tuple[ValueColumn[UsedHolding], ...] = (
    ValueColumn("#", lambda row: str(row.number), align="right"),
    ValueColumn("held", lambda row: f"{row.kind.value} {row.provider}"),
    ValueColumn("GPUs", lambda row: f"{row.gpus:,}", 1, "right"),
    ValueColumn("used", lambda row: f"{row.utilisation:.0%}", 0, "right"),
    ValueColumn("$/GPU-h", lambda row: _usd(row.usd_per_gpu_hour), 3, "right"),
    ValueColumn("$/used GPU-h", lambda row: _per_used(row.usd_per_used_gpu_hour), 2, "right"),
    ValueColumn("ends", lambda row: _day(row.ends), 1),
    ValueColumn("renew", lambda row: f"{row.renew_gpus:,}", 1, "right"),
    ValueColumn("not renew", lambda row: f"{row.let_lapse_gpus:,}", 0, "right"),
)
_COST_COLUMNS = (
    Column("scenario"),
    Column("$/month", 0, "right"),
    Column("range", 1, "right"),
    Column("held", 3, "right"),
    Column("newly reserved", 4, "right"),
    Column("on-demand", 2, "right"),
    Column("spot", 2, "right"),
)


def _per_used(amount: float | None) -> str:
    return "never used" if amount is None else _usd(amount)


def _cost(cost: ScenarioCost) -> list[Text]:
    month, cost_parts = cost.usd_per_month, (cost.held_usd, cost.reserved_anew_usd, cost.on_demand_usd, cost.spot_usd)
    range_text = f"{month.low:,.0f} – {month.high:,.0f}"
    cells = [
        _SCENARIOS[cost.scenario],
        f"{month.expected:,.0f}",
        range_text,
        *(f"{cost_part:,.0f}" for cost_part in cost_parts),
    ]
    return [Text(cell, style="bold" if cost.scenario is SupplyScenario.PLANNED else "") for cell in cells]


def _burst_mix_columns(planned_share: float) -> tuple[ValueColumn[BurstMix], ...]:
    """The columns of bursts with other shares of spot than the ``planned_share`` one."""

    def share(mix: BurstMix) -> str:
        return f"{mix.spot_share:.0%}{' (as planned)' if mix.spot_share == planned_share else ''}"

    return (
        ValueColumn("spot share of bursts", share, 0, "right"),
        ValueColumn("$/burst GPU-h", lambda mix: _usd(mix.burst_usd_per_gpu_hour), 1, "right"),
        ValueColumn("worth holding", lambda mix: f"{mix.baseline_gpus:,}", 0, "right"),
        ValueColumn("$/month", lambda mix: f"{mix.usd_per_month.expected:,.0f}", 0, "right"),
    )


def charts(plan_list: CapacityPlanList, demand: Mapping[str, Sequence[int]]) -> list[Chart]:
    """For each accelerator: its ``demand`` (GPUs by hour, up to now) with held capacity and capacity worth holding, and
    the cost of the scenarios."""
    return [
        chart
        for plan in plan_list.plans
        for chart in (_levels(plan, demand[plan.accelerator], plan_list.as_of), _costs(plan))
    ]


def _levels(plan: AcceleratorPlan, demand: Sequence[int], now: datetime) -> Chart:
    end_time = now.replace(minute=0, second=0, microsecond=0)
    times = [end_time - timedelta(hours=len(demand) - hour) for hour in range(len(demand))]
    chart_lines, edges = [Line("demand", times, list(demand))], [times[0], times[-1]]
    if plan.held_gpus:
        chart_lines.append(Line("held now", edges, [plan.held_gpus] * 2))
    if plan.baseline_gpus:
        chart_lines.append(Line("worth holding", edges, [plan.baseline_gpus] * 2))
    return Chart(f"{plan.accelerator}: demand and capacity worth holding", "time", "GPUs", lines=chart_lines)


def _costs(plan: AcceleratorPlan) -> Chart:
    labels = [_SCENARIOS[cost.scenario] for cost in plan.scenarios]
    bars = Bars("expected", labels, [round(cost.usd_per_month.expected) for cost in plan.scenarios])
    title = f"{plan.accelerator}: cost of the same demand"
    return Chart(title, "scenario", "USD per month", bars=[bars], note=_COST_NOTE)
