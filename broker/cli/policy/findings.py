"""`gpubroker policy findings`: recommendations to own, reserve or rent, from recorded use, and what rules that only
warn would have stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from broker.app.capacity.findings import CapacityFindings
    from broker.app.policy.warned import WarnedRule

_MOST_NAMED = 8
EXAMPLES = examples("gpubroker policy findings", "gpubroker policy findings --since 180d --json")


def findings(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", "--from", metavar="WHEN", help="Start of the period: 90d (ago), or a date.")
    ] = "90d",
    as_json: AsJson = False,
) -> None:
    """Compare recorded use with owned, reserved and rented capacity, and say what to buy, to stop renting or to let
    lapse.

    Then lists what rules with `action: warn` would have stopped and refused.

    Each finding shows its arithmetic. The thresholds are rules of thumb; policy files may replace them
    (`rules_of_thumb:`). Changes nothing.
    """
    from broker.app.capacity.findings import capacity_findings
    from broker.app.policy.warned import warned as warned_rules
    from broker.app.results.capacity_plan import CapacityFindingList

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    start = filters.moment("--since", since, now)
    if start >= now:
        raise InvalidInput(f"expected a time in the past; got {since!r}", where="--since")
    found, warned = capacity_findings(broker, start), warned_rules(broker, start)
    terminal.result(lambda: CapacityFindingList.of(found, warned), lambda: [*_screen(found), *_warned(warned)])


def _warned(rules: Sequence[WarnedRule]) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render import formats
    from broker.cli.render.tables import hanging

    parts: list[RenderableType] = []
    for one in rules:
        would = [
            f"{word} {formats.plural(len(jobs), 'job')} ({', '.join(jobs[:_MOST_NAMED])})"
            for word, jobs in (("stopped", one.stopped), ("refused", one.refused))
            if jobs
        ]
        title = f"Rule {one.name} only warns: it would have {' and '.join(would)} since {formats.moment(one.first)}."
        parts += [Text(title, style="bold"), hanging(Text(f"{one.newest.message} ({one.newest.source})"), 2)]
    return parts


def _too_little(found: CapacityFindings) -> str:
    """Why there is not enough data, and what is needed."""
    from broker.economics.reserve.capacity_findings import SHORTEST

    known = ", ".join(f"{len(use.demand)} h of {use.accelerator}" for use in found.uses)
    why = f"{known} are recorded" if known else "no use with a comparable price is recorded"
    return (
        f"Not enough data to recommend owning, reserving or renting: {why} since {found.since:%Y-%m-%d}. Findings need"
        f" a week ({SHORTEST} h) of an accelerator's use: GPU jobs run by gpubroker on real machines, or machines"
        " recorded with `gpubroker capacity add`, used or not."
    )


def _screen(found: CapacityFindings) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import hanging

    parts: list[RenderableType] = []
    for one in found.findings:
        saves = f"  ${one.saves:,.2f} per month" if one.saves is not None else ""
        parts += [Text.assemble((one.sentence, "bold"), (saves, "green")), hanging(Text(one.because), 2)]
    if not found.findings and found.enough:
        parts.append(f"No findings in the use since {found.since:%Y-%m-%d}: keep the present capacity.")
    elif not found.findings:
        parts.append(_too_little(found))
    parts += [Text(f"note: {note}", style="dim") for note in found.notes]
    return parts
