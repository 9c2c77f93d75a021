"""A proposal of purchases as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.capacity.proposal import CapacityProposal
from broker.cli.capacity.purchases_view import product, undo
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def table(console: Console, found: CapacityProposal) -> list[RenderableType]:
    """The lines, then what they are compared with."""
    columns = (
        Column("line", align="right"),
        Column("kind"),
        Column("machines", 3),
        Column("place", 4),
        Column("length"),
        Column("total", align="right"),
        Column("$/GPU-h", align="right"),
        Column("break-even", align="right"),
        Column("used", align="right"),
        Column("saves", align="right"),
        Column("can lose", 2, "right"),
        Column("undo", 1),
    )
    rows: list[list[str | Text]] = [
        [
            str(line.number),
            product(line.quote),
            f"{line.quote.machines} × {line.quote.instance_type}",
            line.quote.zone or line.quote.region,
            formats.length(line.quote.length),
            line.quote.total.rounded(2),
            f"{line.worth.usd_per_gpu_hour:,.2f}",
            f"{line.worth.break_even:.0%}",
            f"{line.worth.use:.0%}",
            line.worth.saves.rounded(2),
            line.worth.regret.rounded(2),
            undo(line.quote),
        ]
        for line in found.lines
    ]
    nothing = "Nothing is proposed for that time:" if found.problems else "Nothing is on sale for that time."
    shown: list[RenderableType] = [*fitted(console, columns, rows)] if rows else [nothing]
    spot = "spot has no price" if found.spot is None else f"spot ${found.spot:,.2f}"
    shown.append(
        f"against on demand at ${found.on_demand:,.2f} per GPU-hour ({spot}); {found.held} GPUs are held already;"
        f" demand from {found.source}"
    )
    shown.append(
        "break-even: the share of its hours in use from which on it is cheaper than on demand; used: by the past"
    )
    shown += [Text(f"{name}: {problem}", style="yellow") for name, problem in found.problems]
    if found.best is not None:
        then = "to buy: add --json > FILE, then gpubroker capacity buy --from-plan FILE"
        shown.append(Text(f"line {found.best.number} saves most; {then}", style="dim"))
    elif rows:
        shown.append("No line saves anything with the use of the past: stay on spot and on demand.")
    return shown
