"""A serving plan as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.app.results.serving_advice import RoutingResult, ScaleToZeroResult, ServeAdvice, ServingChoice
from broker.cli.advise import view
from broker.cli.render.formats import plural
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLUMNS: tuple[ValueColumn[ServingChoice], ...] = (
    ValueColumn("accelerator", lambda one: one.accelerator),
    ValueColumn("weights", lambda one: one.precision.value),
    ValueColumn("GPUs", lambda one: str(one.gpus), align="right"),
    ValueColumn("replicas", lambda one: str(one.replicas), 3, "right"),
    ValueColumn("machines", lambda one: "" if one.machines is None else f"{one.machines} × {one.gpus_per_machine}", 3),
    ValueColumn("tokens/s per replica", lambda one: f"{one.tokens_per_second_per_replica:,.0f}", 4, "right"),
    ValueColumn("at once", lambda one: str(one.batch), 5, "right"),
    ValueColumn("p95 s", lambda one: "" if one.p95_s is None else f"{one.p95_s:,.1f}", 2, "right"),
    ValueColumn("p95 met", lambda one: {True: "yes", False: "no", None: ""}[one.meets_latency], 2),
    ValueColumn("owned $/month", lambda one: view.estimate(one.monthly_usd_owned), 5, "right"),
    ValueColumn("reserved", lambda one: view.estimate(one.monthly_usd_reserved), 6, "right"),
    ValueColumn("on-demand", lambda one: view.estimate(one.monthly_usd_on_demand), align="right"),
)


def screen(console: Console, found: ServeAdvice) -> Iterator[RenderableType]:
    """Replicas, GPUs, latency, the accelerators that hold the model, scale to zero, and the model for each task."""
    chosen = found.options[0] if found.options else None
    on = f" {chosen.accelerator} with {chosen.precision} weights" if chosen else ""
    yield view.heading(plural(found.replicas, "replica"), f" on {plural(found.gpus, 'GPU')}{on}")
    yield view.figures(_figures(found, chosen))
    if found.options:
        yield from listed(console, _COLUMNS, found.options[:12])
    yield from view.assumptions(found.assumptions)
    if found.scale_to_zero is not None:
        yield from _sleeping(found.scale_to_zero)
    if found.routing is not None:
        yield from _routes(console, found.routing)


def _figures(found: ServeAdvice, chosen: ServingChoice | None) -> Iterator[tuple[str, str]]:
    yield "demand", f"{found.demand_tokens_per_second:,.0f} tokens/s"
    yield f"with {found.headroom:.0%} headroom", f"{found.required_tokens_per_second:,.0f} tokens/s"
    if found.tokens_per_second_per_request is not None:
        yield "per request", f"{found.tokens_per_second_per_request:,.1f} tokens/s"
    if found.p95_s is not None:
        verdict = {True: " (met)", False: " (TOO SLOW with any number of replicas)", None: ""}[found.meets_latency]
        yield "p95 latency", f"{found.p95_s:,.2f} s{verdict}"
    if chosen is not None:
        yield "concurrent requests", f"{chosen.batch:,} per replica"
        yield "first token", f"{chosen.time_to_first_token_s:,.2f} s without waiting"
        yield "each further token", f"{1000 * chosen.time_per_token_s:,.0f} ms at full load"
        yield "reading prompts", f"{chosen.prefill_share:.0%} of the time"
        if chosen.first_token_p95_s is not None and chosen.simulated_p95_s is not None:
            first = f"first token {chosen.first_token_p95_s:,.2f} s"
            yield "simulated p95", f"{chosen.simulated_p95_s:,.2f} s, {first}"
        if chosen.machines is not None and chosen.monthly_usd_one_more is not None:
            yield "machines", f"{chosen.machines} × {chosen.accelerator}:{chosen.gpus_per_machine}"
            yield "with one more", f"{view.estimate(chosen.monthly_usd_one_more)} per month"
    if found.p95_s is None and found.wanted_p95_s is not None:
        yield "latency", "not checked: give --batch"
    if found.monthly_usd is not None:
        yield "per month", view.estimate(found.monthly_usd)


def _sleeping(found: ScaleToZeroResult) -> Iterator[RenderableType]:
    yield view.heading("Scale to zero", " pays" if found.saving_usd_per_month > 0 else " does not pay")
    yield view.figures(
        [
            ("always on", f"{view.estimate(found.warm_usd_per_month)} per month"),
            ("scaled to zero", f"{view.estimate(found.scaled_usd_per_month)} per month"),
            ("saved", f"{view.estimate(found.saving_usd_per_month)} per month"),
            ("delayed requests", f"{found.delayed_share:.2%}, by {found.cold_start_s:g} s"),
        ]
    )


def _routes(console: Console, found: RoutingResult) -> Iterator[RenderableType]:
    shares = dict(found.shares)
    cost = f"{view.estimate(found.cost_usd)} instead of {view.estimate(found.largest_only_usd)}"
    saves = f" saves {found.saving:.0%}: {cost} with the best model for all tasks"
    yield view.heading("The smallest sufficient model", saves)
    columns: tuple[ValueColumn[tuple[str, float]], ...] = (
        ValueColumn("model", lambda tier: tier[0]),
        ValueColumn("quality", lambda tier: f"{tier[1]:.2f}", align="right"),
        ValueColumn("share of tasks", lambda tier: view.share(shares.get(tier[0], 0.0)), align="right"),
        ValueColumn("tasks", lambda tier: ", ".join(task for task, name in found.routes if name == tier[0])),
    )
    yield from listed(console, columns, found.quality)
    if found.unserved:
        yield view.heading("No model is good and fast enough for ", ", ".join(found.unserved))
