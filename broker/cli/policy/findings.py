"""`gpubroker policy findings`: recommendations to own, reserve or rent, from recorded use, and what rules that only
warn would have stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.capacity_plan import CapacityFindingList, WarnedRuleResult

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

    Each finding shows its arithmetic. The thresholds are assumptions; policy files may replace them
    (`rules_of_thumb:`). Changes nothing.
    """
    from broker.app.policy import trials
    from broker.app.results.capacity_plan import CapacityFindingList

    terminal = Terminal.of(context)
    start = filters.moment("--since", since, terminal.now())
    if terminal.through_server:
        found = terminal.api.fetch(CapacityFindingList, "/policies/findings", since=start.isoformat())
    else:
        found = trials.findings(terminal.broker(), start)
    terminal.result(found, lambda: _screen(found))


def _screen(found: CapacityFindingList) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import hanging

    for one in found.findings:
        saves = one.saves_usd_per_month
        yield Text.assemble(
            (one.sentence, "bold"), (f"  ${saves:,.2f} per month" if saves is not None else "", "green")
        )
        yield hanging(Text(one.because), 2)
    if not found.findings and found.enough_use:
        yield f"No findings in the use since {found.since:%Y-%m-%d}: keep the present capacity."
    elif not found.findings:
        yield _too_little(found)
    yield from (Text(f"note: {note}", style="dim") for note in found.notes)
    for rule in found.warned_rules:
        yield from (Text(_warned(rule), style="bold"), hanging(Text(f"{rule.message} ({rule.source})"), 2))


def _too_little(found: CapacityFindingList) -> str:
    """Why there is not enough data, and what is needed."""
    from broker.economics.reserve.capacity_findings import SHORTEST

    known = ", ".join(f"{use.hours} h of {use.accelerator}" for use in found.uses)
    why = f"{known} are recorded" if known else "no use with a comparable price is recorded"
    return (
        f"Not enough data to recommend owning, reserving or renting: {why} since {found.since:%Y-%m-%d}. Findings need"
        f" a week ({SHORTEST} h) of an accelerator's use: GPU jobs run by gpubroker on real machines, or machines"
        " recorded with `gpubroker capacity add`, used or not."
    )


def _warned(one: WarnedRuleResult) -> str:
    from broker.cli.render import formats

    would = [
        f"{word} {formats.plural(len(jobs), 'job')} ({', '.join(jobs[:_MOST_NAMED])})"
        for word, jobs in (("stopped", one.stopped), ("refused", one.refused))
        if jobs
    ]
    return f"Rule {one.name} only warns: it would have {' and '.join(would)} since {formats.moment(one.first)}."
