"""`gpubroker plan`: where a job would run, at what cost and until when, and why other offers are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.gathered import gathered
from broker.cli.jobs import given_job
from broker.cli.options import AsJson, WhatIfPolicies, examples
from broker.cli.prices.poll import Offline, first_look
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.results.plans import PlanResult
    from broker.core.job.jobs import Job

EXAMPLES = examples(
    "gpubroker plan JOB.yaml",
    "gpubroker plan JOB.yaml --explain",
    "gpubroker plan A.yaml B.yaml",
    "gpubroker plan JOB.yaml --rank carbon",
    "gpubroker plan JOB.yaml --policy stricter.yaml --json",
    "gpubroker plan JOB.yaml --env MODEL=llama --secret HF_TOKEN",
    "gpubroker plan --gpu H100:8 --nodes 2 --on-demand -- python train.py",
)
PLAN_CLASS = given_job.TakesCommand


class Rank(StrEnum):
    """The ranking of placements."""

    COST = "cost"
    CARBON = "carbon"


@dataclass(frozen=True)
class PlanOptions:
    """How the plan is made and shown."""

    explain: Annotated[
        bool, typer.Option("--explain", "-x", help="Show every cost term, and every rejection with its fix.")
    ] = False
    policy: WhatIfPolicies = None
    rank: Annotated[Rank, typer.Option("--rank", help="Rank by expected cost, or by expected CO2 (what-if only).")] = (
        Rank.COST
    )
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 8
    offline: Offline = False


@gathered
def plan(
    context: typer.Context,
    shown: PlanOptions,
    given: given_job.JobOptions,
    job: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="JOB.yaml...",
            help="Job file or SkyPilot task file. Several jobs are placed together with the waiting jobs.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where a job would run, at what cost and until when. Holds no money and launches nothing.

    Through a server, it is planned with the prices and policies of the server: --policy and several jobs are not
    offered. Nothing is uploaded.

    The job is a file, or a command after `--`. Exits with the code of `gpubroker submit`: 0 allowed, 2 invalid file, 3
    denied by a policy, 4 no feasible capacity, 6 approval needed.
    """
    from broker.cli.jobs import plan_view

    terminal = Terminal.of(context)
    terminal.only_here({"--policy": shown.policy})
    wanted, *others = given_job.given_jobs(context, job or [], given)
    terminal.only_here({"with several jobs": others})
    if others:
        from broker.cli.jobs.queue_view import plan_together

        alone = {"--explain": shown.explain, "--policy": shown.policy, "--rank": shown.rank is not Rank.COST}
        _look_around(terminal, wanted, shown)
        raise typer.Exit(plan_together(terminal, terminal.broker(), [wanted, *others], alone))
    found = _found(terminal, wanted, shown)
    terminal.result(found, lambda: plan_view.screen(terminal.out, found, explain=shown.explain))
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _look_around(terminal: Terminal, wanted: Job, shown: PlanOptions) -> None:
    terminal.adopt()
    first_look(terminal, terminal.broker(), offline=shown.offline, providers=wanted.constraints.providers)


def _found(terminal: Terminal, wanted: Job, shown: PlanOptions) -> PlanResult:
    carbon = shown.rank is Rank.CARBON
    if terminal.through_server:
        from broker.remote.sending import planned

        return planned(terminal.api, wanted, by_carbon=carbon, limit=shown.limit)
    from broker.app.jobs.plans import plan
    from broker.app.policy.policies import check

    _look_around(terminal, wanted, shown)
    broker = terminal.broker()
    what_if = check(broker, shown.policy) if shown.policy else None
    return plan(broker, wanted, what_if, by=terminal.actor, by_carbon=carbon, limit=shown.limit)
