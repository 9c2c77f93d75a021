"""`gpubroker plan`: where a job would run, at what cost and until when, and why other offers are rejected."""

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
    """The ranking of placements."""

    COST = "cost"
    CARBON = "carbon"


def plan(
    context: typer.Context,
    job: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.yaml...",
            help="Job file or SkyPilot task file. Several jobs are placed together with the waiting jobs.",
        ),
    ],
    explain: Annotated[
        bool, typer.Option("--explain", "-x", help="Show every cost term, and every rejection with its fix.")
    ] = False,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy", metavar="FILES", help="What-if: judge by these files instead of the active policy. Repeatable."
        ),
    ] = None,
    rank: Annotated[
        Rank, typer.Option("--rank", help="Rank by expected cost, or by expected CO2 (what-if only).")
    ] = Rank.COST,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Show where a job would run, at what cost and until when. Holds no money and launches nothing.

    Exits with the code of `gpubroker submit`: 0 allowed, 2 invalid file, 3 denied by a policy, 4 no feasible capacity,
    6 approval needed.
    """
    from broker.app.jobs.submit import preview, read_job
    from broker.app.policy.policies import check
    from broker.cli.jobs import plan_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    wanted, *others = [read_job(path, broker.clock.now()) for path in job]
    terminal.adopt()
    if others:
        from broker.cli.jobs.queue_view import plan_together

        alone = {"--explain": explain, "--policy": policy, "--rank": rank is not Rank.COST}
        raise typer.Exit(plan_together(terminal, broker, [wanted, *others], alone, as_json=as_json))
    what_if = check(broker, policy) if policy else None
    seen = preview(broker, wanted, what_if, by=terminal.actor, by_carbon=rank is Rank.CARBON)
    chosen = what_if or broker.policy()
    if as_json:
        from broker.app.results.plans import PlanResult

        terminal.answer(PlanResult.of(seen, chosen, limit=limit))
    else:
        judged = view.judged_by(broker, what_if)
        explained = chosen if explain else None
        terminal.show(*view.screen(terminal.out, seen, explained=explained, judged=judged, limit=limit))
    if seen.exit_code:
        raise typer.Exit(seen.exit_code)
