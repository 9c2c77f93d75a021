"""`gpubroker capacity review`: the use of a purchase, and its saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from broker.cli.capacity.purchase_options import PurchaseId
from broker.cli.options import AsJson, OnDemandPrice, SpotPrice, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.procurement.reviewing import PurchaseReview


def register(app: typer.Typer) -> None:
    """Add the command to `gpubroker capacity`."""
    app.command("review", epilog=examples("gpubroker capacity review purchase-0123456789ab"))(review)


def review(
    context: typer.Context,
    id: PurchaseId,
    on_demand_price: OnDemandPrice = None,
    spot_price: SpotPrice = None,
    as_json: AsJson = False,
) -> None:
    """Show the use of a purchase by team, its idle hours, and the cost of the same use elsewhere."""
    from broker.app.capacity.review import purchase_review
    from broker.app.results.purchases import PurchaseReviewResult
    from broker.cli import filters

    def price(option: str, text: str | None) -> float | None:
        return None if text is None else float(filters.price(option, text).dollars)

    terminal = Terminal.of(context)
    found = purchase_review(
        terminal.broker(),
        id,
        on_demand=price("--on-demand-price", on_demand_price),
        spot=price("--spot-price", spot_price),
    )
    terminal.result(lambda: PurchaseReviewResult.of(found), lambda: _lines(found))


def _lines(found: PurchaseReview) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render import formats

    share = found.used_hours / found.bought_hours if found.bought_hours else 0.0
    lines: list[RenderableType] = [
        Text(f"{found.purchase}, reviewed up to {formats.moment(found.until)}", style="bold"),
        f"used {found.used_hours:,.1f} of {found.bought_hours:,.1f} GPU-hours ({share:.0%}); they cost"
        f" {found.cost.rounded(2)}",
        f"idle for {found.idle_cost.rounded(2)}, which {found.owner} bears",
    ]
    lines += [f"  {team or '(no team)'}: {hours:,.1f} GPU-hours" for team, hours in found.by_team]
    if found.credited:
        lines.append(f"other teams paid {found.owner} {found.credited.rounded(2)} for their part of it")
    for name, cost, saved in (("on demand", found.on_demand, found.saved), ("spot", found.spot, found.saved_spot)):
        if cost is None or saved is None:
            lines.append(f"{name}: no price is known; give it with --{name.replace(' ', '-')}-price")
            continue
        told = f"saved {saved.rounded(2)}" if saved.micros >= 0 else f"cost {(-saved).rounded(2)} more"
        lines.append(f"against {name}, where the same use would have cost {cost.rounded(2)}: {told}")
    return lines
