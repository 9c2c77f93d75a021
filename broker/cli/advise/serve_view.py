"""A serving plan as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.advise import view
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.economics.routing import Routing, Tier
    from broker.economics.serving import ScaleToZero, ServingPlan, Traffic
    from broker.economics.serving_options import ServingOption


def screen(
    console: Console,
    traffic: Traffic,
    found: ServingPlan,
    chosen: ServingOption | None,
    options: tuple[ServingOption, ...],
    monthly: float | None,
    notes: list[str],
) -> list[RenderableType]:
    """Replicas, GPUs, latency, and the accelerators that hold the model."""
    on = f" {chosen.accelerator} with {chosen.precision} weights" if chosen else ""
    replicas = f"{found.replicas} replica{'s' * (found.replicas != 1)}"
    rows = [
        ("demand", f"{found.demand_tokens_per_second:,.0f} tokens/s"),
        (f"with {traffic.headroom:.0%} headroom", f"{found.required_tokens_per_second:,.0f} tokens/s"),
    ]
    if found.tokens_per_second_per_request is not None:
        rows.append(("per request", f"{found.tokens_per_second_per_request:,.1f} tokens/s"))
    if found.p95_s is not None:
        verdict = {True: " (met)", False: " (TOO SLOW with any number of replicas)", None: ""}[found.meets_latency]
        rows.append(("p95 latency", f"{found.p95_s:,.2f} s{verdict}"))
    if chosen is not None:
        rows += [
            ("concurrent requests", f"{chosen.batch:,} per replica"),
            ("first token", f"{chosen.time_to_first_token_s:,.2f} s without waiting"),
            ("each further token", f"{1000 * chosen.time_per_token_s:,.0f} ms at full load"),
            ("reading prompts", f"{chosen.prefill_share:.0%} of the time"),
        ]
        if chosen.first_token_p95_s is not None and chosen.simulated_p95_s is not None:
            rows.append(
                ("simulated p95", f"{chosen.simulated_p95_s:,.2f} s, first token {chosen.first_token_p95_s:,.2f} s")
            )
        if chosen.machines is not None and chosen.monthly_usd_one_more is not None:
            rows.append(("machines", f"{chosen.machines} × {chosen.accelerator}:{chosen.gpus_per_machine}"))
            rows.append(("with one more", f"{view.estimate(chosen.monthly_usd_one_more)} per month"))
    if found.p95_s is None and traffic.p95_s is not None:
        rows.append(("latency", "not checked: give --batch"))
    if monthly is not None:
        rows.append(("per month", view.estimate(monthly)))
    parts: list[RenderableType] = [
        view.heading(replicas, f" on {found.gpus} GPU{'s' * (found.gpus != 1)}{on}"),
        view.figures(rows),
    ]
    columns = (
        Column("accelerator"), Column("weights"), Column("GPUs", align="right"), Column("replicas", 3, align="right"),
        Column("machines", 3), Column("tokens/s per replica", 4, align="right"), Column("at once", 5, align="right"),
        Column("p95 s", 2, align="right"), Column("p95 met", 2),
        Column("owned $/month", 5, align="right"), Column("reserved", 6, align="right"),
        Column("on-demand", align="right"),
    )  # fmt: skip
    cells = [
        (
            one.accelerator, one.precision.value, str(one.gpus), str(one.replicas),
            "" if one.machines is None else f"{one.machines} × {one.gpus_per_machine}",
            f"{one.tokens_per_second_per_replica:,.0f}", str(one.batch),
            "" if one.p95_s is None else f"{one.p95_s:,.1f}",
            {True: "yes", False: "no", None: ""}[one.meets_latency], view.estimate(one.monthly_usd_owned),
            view.estimate(one.monthly_usd_reserved), view.estimate(one.monthly_usd_on_demand),
        )
        for one in options
    ]  # fmt: skip
    if cells:
        parts += fitted(console, columns, cells)
    parts += view.assumptions(notes)
    return parts


def sleeping(found: ScaleToZero) -> list[RenderableType]:
    """Always-on replicas compared with scale to zero."""
    pays = found.saving_usd_per_month > 0
    return [
        view.heading("Scale to zero", " pays" if pays else " does not pay"),
        view.figures(
            [
                ("always on", f"{view.estimate(found.warm_usd_per_month)} per month"),
                ("scaled to zero", f"{view.estimate(found.scaled_usd_per_month)} per month"),
                ("saved", f"{view.estimate(found.saving_usd_per_month)} per month"),
                ("delayed requests", f"{found.delayed_share:.2%}, by {found.cold_start_s:g} s"),
            ]
        ),
    ]


def routes(console: Console, found: Routing, tiers: tuple[Tier, ...]) -> list[RenderableType]:
    """The model for each type of task."""
    shares = dict(found.shares)
    parts: list[RenderableType] = [
        view.heading("The smallest sufficient model", f" saves {found.saving:.0%}: {view.estimate(found.cost_usd)} "
                     f"instead of {view.estimate(found.largest_only_usd)} with the best model for all tasks")
    ]  # fmt: skip
    rows = [(tier.name, f"{tier.quality:.2f}", view.share(shares.get(tier.name, 0.0)),
             ", ".join(task for task, name in found.routes if name == tier.name)) for tier in tiers]  # fmt: skip
    columns = (
        Column("model"),
        Column("quality", align="right"),
        Column("share of tasks", align="right"),
        Column("tasks"),
    )
    parts += fitted(console, columns, rows)
    if found.unserved:
        parts.append(view.heading("No model is good and fast enough for ", ", ".join(found.unserved)))
    return parts
