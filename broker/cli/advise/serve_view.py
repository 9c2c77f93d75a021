"""A serving plan on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.advise import view
from broker.cli.tables import Column

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.economics.routing import Routing, Tier
    from broker.economics.serving import ScaleToZero, ServingOption, ServingPlan, Traffic


def screen(
    console: Console,
    traffic: Traffic,
    found: ServingPlan,
    chosen: ServingOption | None,
    options: tuple[ServingOption, ...],
    monthly: float | None,
    notes: list[str],
) -> list[RenderableType]:
    """Replicas and GPUs, the latency, and the other cards that would do."""
    on = f" {chosen.accelerator} with {chosen.precision} weights" if chosen else ""
    replicas = f"{found.replicas} replica{'s' * (found.replicas != 1)}"
    rows = [
        ("demand", f"{found.demand_tokens_per_second:,.0f} tokens/s"),
        (f"with {traffic.headroom:.0%} headroom", f"{found.required_tokens_per_second:,.0f} tokens/s"),
    ]
    if found.tokens_per_second_per_request is not None:
        rows.append(("each answer needs", f"{found.tokens_per_second_per_request:,.1f} tokens/s"))
    if found.p95_s is not None:
        verdict = {True: " (in time)", False: " (TOO SLOW, however many replicas)", None: ""}[found.meets_latency]
        rows.append(("95 of 100 within", f"{found.p95_s:,.2f} s{verdict}"))
    elif traffic.p95_s is not None:
        rows.append(("latency", "not checked: give --batch"))
    if monthly is not None:
        rows.append(("a month", view.dollars(monthly)))
    parts: list[RenderableType] = [
        view.heading(replicas, f" on {found.gpus} GPU{'s' * (found.gpus != 1)}{on}"),
        view.figures(rows),
    ]
    columns = (
        Column("card"), Column("weights"), Column("GPUs", align="right"), Column("replicas", 3, align="right"),
        Column("tokens/s each", 4, align="right"), Column("p95 s", 2, align="right"), Column("in time", 2),
        Column("owned $/month", 5, align="right"), Column("reserved", 6, align="right"),
        Column("on-demand", align="right"),
    )  # fmt: skip
    cells = [
        (
            one.accelerator, one.precision.value, str(one.gpus), str(one.replicas),
            f"{one.tokens_per_second_per_replica:,.0f}", "" if one.p95_s is None else f"{one.p95_s:,.1f}",
            {True: "yes", False: "no", None: ""}[one.meets_latency], view.dollars(one.monthly_usd_owned),
            view.dollars(one.monthly_usd_reserved), view.dollars(one.monthly_usd_on_demand),
        )
        for one in options
    ]  # fmt: skip
    if cells:
        parts += view.table(console, columns, cells)
    parts += view.assumptions(notes)
    return parts


def sleeping(found: ScaleToZero) -> list[RenderableType]:
    """Kept warm against asleep when nobody asks."""
    pays = found.saving_usd_per_month > 0
    return [
        view.heading("Scale to zero", " pays" if pays else " does not pay"),
        view.figures(
            [
                ("kept warm", f"{view.dollars(found.warm_usd_per_month)} a month"),
                ("asleep when idle", f"{view.dollars(found.scaled_usd_per_month)} a month"),
                ("saved", f"{view.dollars(found.saving_usd_per_month)} a month"),
                ("who waits", f"{found.delayed_share:.2%} of the requests, {found.cold_start_s:g} s"),
            ]
        ),
    ]


def routes(console: Console, found: Routing, tiers: tuple[Tier, ...]) -> list[RenderableType]:
    """Which model for which tasks."""
    shares = dict(found.shares)
    parts: list[RenderableType] = [
        view.heading("The smallest model that works", f" saves {found.saving:.0%}: {view.dollars(found.cost_usd)} "
                     f"against {view.dollars(found.largest_only_usd)} with the best for all")
    ]  # fmt: skip
    rows = [(tier.name, f"{tier.quality:.2f}", view.share(shares.get(tier.name, 0.0)),
             ", ".join(task for task, name in found.routes if name == tier.name)) for tier in tiers]  # fmt: skip
    columns = (Column("model"), Column("quality", align="right"), Column("of the tasks", align="right"), Column("for"))
    parts += view.table(console, columns, rows)
    if found.unserved:
        parts.append(view.heading("Nobody is good or fast enough for ", ", ".join(found.unserved)))
    return parts
