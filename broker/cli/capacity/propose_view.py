"""A proposal of purchases as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.capacity.proposal import CapacityProposal
from broker.cli.capacity.purchases_view import product, undo
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.procurement.proposing import ProposedLine


def table(console: Console, found: CapacityProposal) -> list[RenderableType]:
    """The lines, then what they are compared with."""
    columns: tuple[ValueColumn[ProposedLine], ...] = (
        ValueColumn("line", lambda line: str(line.number), align="right"),
        ValueColumn("kind", lambda line: product(line.quote)),
        ValueColumn("machines", lambda line: f"{line.quote.machines} × {line.quote.instance_type}", 3),
        ValueColumn("place", lambda line: line.quote.zone or line.quote.region, 4),
        ValueColumn("length", lambda line: formats.length(line.quote.length)),
        ValueColumn("total", lambda line: line.quote.total.rounded(2), align="right"),
        ValueColumn("$/GPU-h", lambda line: f"{line.worth.usd_per_gpu_hour:,.2f}", align="right"),
        ValueColumn("break-even", lambda line: f"{line.worth.break_even:.0%}", align="right"),
        ValueColumn("used", lambda line: f"{line.worth.use:.0%}", align="right"),
        ValueColumn("saves", lambda line: line.worth.saves.rounded(2), align="right"),
        ValueColumn("can lose", lambda line: line.worth.regret.rounded(2), 2, "right"),
        ValueColumn("undo", lambda line: undo(line.quote), 1),
    )
    nothing = "Nothing is proposed for that time:" if found.problems else "Nothing is on sale for that time."
    shown: list[RenderableType] = [*listed(console, columns, found.lines)] if found.lines else [nothing]
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
    elif found.lines:
        shown.append("No line saves anything with the use of the past: stay on spot and on demand.")
    return shown
