"""`gpubroker plan`: where a job would run, at what cost and until when, and why other offers are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.jobs import job_options
from broker.cli.options import AsJson, WhatIfPolicies, examples, expand_options
from broker.cli.prices.poll import Offline, poll_first_time
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.jobs.plan_documents import PlanResult
    from broker.core.job.jobs import Job
    from broker.core.ports import PolicySet

EXAMPLES = examples(
    "gpubroker plan JOB.yaml",
    "gpubroker plan JOB.yaml --explain",
    "gpubroker plan A.yaml B.yaml",
    "gpubroker plan JOB.yaml --rank carbon",
    "gpubroker plan JOB.yaml --policy stricter.yaml --json",
    "gpubroker plan JOB.yaml --env MODEL=llama --secret HF_TOKEN",
    "gpubroker plan --gpu H100:8 --nodes 2 --on-demand -- python train.py",
)
PLAN_CLASS = job_options.TakesCommand


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 8
    offline: Offline = False


@expand_options
def plan(
    context: typer.Context,
    shown: PlanOptions,
    given: job_options.JobOptions,
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

    The job is a file, or a command after `--`. Through a server, the plan uses the prices and policies of the server
    and takes one job, without --policy; nothing is uploaded. Exits with the code of `gpubroker submit`: 0 allowed, 2
    invalid file, 3 denied by a policy, 4 no capacity fits, 6 approval needed.
    """
    from broker.app.policy.policies import load_policy, read_files
    from broker.cli.jobs import plan_view

    terminal = Terminal.of(context)
    terminal.only_here({"--policy": shown.policy})
    policy_set = load_policy(terminal.broker(), read_files(shown.policy)) if shown.policy else None
    first_job, *other_jobs = job_options.requested_jobs(context, job or [], given, policy=policy_set)
    terminal.only_here({"with several jobs": other_jobs})
    if other_jobs:
        from broker.cli.jobs.queue_view import plan_together

        single_job_options = {
            "--explain": shown.explain,
            "--policy": shown.policy,
            "--rank": shown.rank is not Rank.COST,
        }
        _poll_first(terminal, first_job, shown)
        raise typer.Exit(plan_together(terminal, terminal.broker(), [first_job, *other_jobs], single_job_options))
    plan_result = _load_plan(terminal, first_job, shown, policy_set)
    terminal.result(plan_result, lambda: plan_view.plan_screen(terminal.out, plan_result, explain=shown.explain))
    if plan_result.exit_code:
        raise typer.Exit(plan_result.exit_code)


def _poll_first(terminal: Terminal, job: Job, options: PlanOptions) -> None:
    terminal.adopt()
    poll_first_time(terminal, terminal.broker(), offline=options.offline, providers=job.constraints.providers)


def _load_plan(terminal: Terminal, job: Job, options: PlanOptions, policy_set: PolicySet | None) -> PlanResult:
    by_carbon = options.rank is Rank.CARBON
    if terminal.through_server:
        from broker.server.client.sending import plan_on_server

        return plan_on_server(terminal.api, job, by_carbon=by_carbon, limit=options.limit)
    from broker.app.jobs.plan_documents import plan

    _poll_first(terminal, job, options)
    return plan(terminal.broker(), job, policy_set, by=terminal.actor, by_carbon=by_carbon, limit=options.limit)
