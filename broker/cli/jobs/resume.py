"""`gpubroker jobs resume` and `gpubroker jobs retry`: continue an ended job as a new job."""

from __future__ import annotations

import typer

from broker.cli.gathered import gathered
from broker.cli.jobs import given_job
from broker.cli.jobs.submit import Manner, submit_job
from broker.cli.options import AsJson, CodeFolder, FromStart, JobReference, ResumeStep, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

RESUME_EXAMPLES = examples(
    "gpubroker jobs resume bert",
    "gpubroker jobs resume bert --workdir . --env LEARNING_RATE=0.001",
    "gpubroker jobs resume bert --step 60 --yes --detach",
)
RETRY_EXAMPLES = examples("gpubroker jobs retry bert", "gpubroker jobs retry bert --from-start --yes --json")


@gathered
def resume(
    context: typer.Context,
    job: JobReference,
    how: Manner,
    workdir: CodeFolder = None,
    env: given_job.Envs = None,
    step: ResumeStep = None,
    as_json: AsJson = False,
) -> None:
    """Continue an ended job from a checkpoint, with its files as they are now: fix the code, then resume.

    Submits a new job of the same name for the remaining work. It is planned, judged and paid for like any other job.
    The exit codes are those of `gpubroker submit`.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import ResumeChanges, resumed

    terminal = Terminal.of(context)
    broker = terminal.broker()
    folder = None if workdir is None else workdir.expanduser().absolute()
    changes = ResumeChanges(folder, variables(env), step)
    wanted = resumed(broker, jobs.find(broker, job), changes, by=terminal.actor)
    submit_job(terminal, broker, wanted, how)


@gathered
def retry(
    context: typer.Context, job: JobReference, how: Manner, from_start: FromStart = False, as_json: AsJson = False
) -> None:
    """Run an ended job again with the files that it was submitted with, from its newest checkpoint if it has one.

    Of an array, only the tasks that failed are run again, each from its own checkpoint.

    Submits a new job of the same name. It is planned, judged and paid for like any other job. The exit codes are those
    of `gpubroker submit`.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import retried

    terminal = Terminal.of(context)
    broker = terminal.broker()
    wanted = retried(broker, jobs.find(broker, job), by=terminal.actor, from_start=from_start)
    submit_job(terminal, broker, wanted, how)


def variables(given: list[str] | None) -> dict[str, str]:
    """The variables of ``--env``. Raises `InvalidInput`."""
    envs = dict(given_job.overrides(given).envs)
    for name in envs:
        if name.startswith("GPUBROKER_"):
            raise InvalidInput(
                f"expected the name of a variable that gpubroker does not set; got {name!r}", where="--env"
            )
    return envs
