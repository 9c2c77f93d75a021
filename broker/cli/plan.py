"""`gpubroker plan`: where a job would run, for how much, until when, and why not elsewhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker plan JOB.yaml",
    "gpubroker plan JOB.yaml --explain",
    "gpubroker plan A.yaml B.yaml",
    "gpubroker plan JOB.yaml --rank carbon",
    "gpubroker plan JOB.yaml --policy stricter.yaml --json",
)


class Rank(StrEnum):
    """What comes first."""

    COST = "cost"
    CARBON = "carbon"


def plan(
    context: typer.Context,
    job: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.yaml...",
            help="A job file, or a SkyPilot task file. Several are placed together, in turn with those that wait.",
        ),
    ],
    explain: Annotated[
        bool, typer.Option("--explain", "-x", help="Every cost term, and every rejection with what would change it.")
    ] = False,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy", metavar="FILES", help="Judge by these policy files instead: what-if only. Repeatable."
        ),
    ] = None,
    rank: Annotated[
        Rank, typer.Option("--rank", help="What comes first: expected cost, or expected CO2 (what-if only).")
    ] = Rank.COST,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show so many placements.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Where a job would run, for how much, until when; nothing is held and nothing is launched.

    Exits with what submitting would: 0, 2 the file is wrong, 4 the market leaves nothing, 3 a policy says no, 6 a
    policy asks first.
    """
    from broker.app.policies import check
    from broker.app.submit import preview, read_job
    from broker.cli import plan_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    wanted, *others = [read_job(path, broker.clock.now()) for path in job]
    terminal.adopt()
    if others:
        from broker.cli.queue_view import plan_together

        alone = {"--explain": explain, "--policy": policy, "--rank": rank is not Rank.COST}
        raise typer.Exit(plan_together(terminal, broker, [wanted, *others], alone, as_json=as_json))
    what_if = check(broker, policy) if policy else None
    seen = preview(broker, wanted, what_if, by_carbon=rank is Rank.CARBON)
    chosen = what_if or broker.policy()
    if as_json:
        terminal.answer(view.document(seen, chosen, limit=limit))
    else:
        judged = view.judged_by(broker, what_if)
        explained = chosen if explain else None
        terminal.show(*view.screen(terminal.out, seen, explained=explained, judged=judged, limit=limit))
    if seen.exit_code:
        raise typer.Exit(seen.exit_code)
