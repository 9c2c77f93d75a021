"""`gpubroker jobs resume` and `gpubroker jobs retry`: a job that has ended goes on as a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.jobs import given_job
from broker.cli.jobs.submit import Events, Manner, submit_job
from broker.cli.options import AsJson, JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

RESUME_EXAMPLES = examples(
    "gpubroker jobs resume bert",
    "gpubroker jobs resume bert --workdir . --env LEARNING_RATE=0.001",
    "gpubroker jobs resume bert --step 60 --yes --detach",
)
RETRY_EXAMPLES = examples("gpubroker jobs retry bert", "gpubroker jobs retry bert --from-start --yes --json")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return at once; the job continues in the background.")]


def resume(
    context: typer.Context,
    job: JobReference,
    workdir: Annotated[
        Path | None, typer.Option("--workdir", metavar="DIR", help="Another folder than the one it was submitted from.")
    ] = None,
    env: given_job.Envs = None,
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="From the checkpoint at this step, not from the newest.")
    ] = None,
    yes: Yes = False,
    detach: Detach = False,
    events: Events = False,
    as_json: AsJson = False,
) -> None:
    """Go on from a checkpoint of a job that has ended, with its files as they are now: fix the code, then resume.

    It is a new job of the same name: planned, judged and paid for as any other, for the work that is left. Exit codes
    as of `gpubroker submit`.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import ResumeChanges, resumed

    terminal = Terminal.of(context)
    broker = terminal.broker()
    folder = None if workdir is None else workdir.expanduser().absolute()
    changes = ResumeChanges(folder, _variables(env), step)
    wanted = resumed(broker, jobs.find(broker, job), changes, by=terminal.actor)
    submit_job(terminal, broker, wanted, Manner(yes, detach, events))


def retry(
    context: typer.Context,
    job: JobReference,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="From the beginning, not from a checkpoint.")
    ] = False,
    yes: Yes = False,
    detach: Detach = False,
    events: Events = False,
    as_json: AsJson = False,
) -> None:
    """Run a job that has ended once more, with the files it was submitted with, from its newest checkpoint if any.

    It is a new job of the same name: planned, judged and paid for as any other. Exit codes as of `gpubroker submit`.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import retried

    terminal = Terminal.of(context)
    broker = terminal.broker()
    wanted = retried(broker, jobs.find(broker, job), by=terminal.actor, from_start=from_start)
    submit_job(terminal, broker, wanted, Manner(yes, detach, events))


def _variables(given: list[str] | None) -> dict[str, str]:
    envs = dict(given_job.overrides(given, None, None, None).envs)
    for name in envs:
        if not name.isidentifier() or name.startswith("GPUBROKER_"):
            raise InvalidInput(
                f"expected the name of a variable that gpubroker does not set; got {name!r}", where="--env"
            )
    return envs
