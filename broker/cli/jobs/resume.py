"""`gpubroker jobs resume`: continue an ended job as a new job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.jobs import job_options
from broker.cli.jobs.submit import SubmitManner, check_can_confirm, confirm, submit_graph
from broker.cli.options import AsJson, JobReference, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

RESUME_EXAMPLES = examples(
    "gpubroker jobs resume bert",
    "gpubroker jobs resume bert --workdir . --env LEARNING_RATE=0.001",
    "gpubroker jobs resume bert --step 60 --yes --detach",
    "gpubroker jobs resume bert --same-files --yes",
    "gpubroker jobs resume bert --from-start --json --yes",
)


@dataclass(frozen=True)
class ResumeOptions:
    """Which files and which checkpoint to use."""

    workdir: Annotated[
        Path | None,
        typer.Option("--workdir", metavar="DIR", help="Folder of the code (default: that of the ended job)."),
    ] = None
    env: job_options.Envs = None
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, help="Resume from the checkpoint at this step (default: the newest)."),
    ] = None
    same_files: Annotated[
        bool, typer.Option("--same-files", help="With the files that it was submitted with, checkpoint or not.")
    ] = False
    from_start: Annotated[
        bool, typer.Option("--from-start", help="With these files, from the beginning instead of a checkpoint.")
    ] = False


@expand_options
def resume(
    context: typer.Context, job: JobReference, how: SubmitManner, given: ResumeOptions, as_json: AsJson = False
) -> None:
    """Continue an ended job from a checkpoint, with its files as they are now: fix the code, then resume.

    With --same-files, run it again as it was submitted, from its newest checkpoint if it has one; of an array, only the
    tasks that failed, were cancelled or never began. The array's name then means the newest run of each task.

    Submits a new job of the same name for the remaining work. It is planned, judged and paid for like any other job;
    through a server, without showing the plan, and with --same-files not a job with secrets: submit that again. The
    exit codes are those of `gpubroker submit`.
    """
    terminal = Terminal.of(context)
    if given.same_files or given.from_start:
        changes = {"--workdir": given.workdir, "--env": given.env, "--step": given.step}
        for name in (name for name, value in changes.items() if value is not None):
            raise InvalidInput("does not apply to the files that the job was submitted with", where=name)
        _resubmit(terminal, job, how, from_start=given.from_start)
        return
    envs = variables(given.env)
    if terminal.through_server:
        from broker.app.use_cases.submission import resume_job
        from broker.cli.jobs.submit import prepare_job, submit_request, upload_files
        from broker.server.client.sending import original_job

        id = terminal.job_id(job)
        prepared_job = prepare_job(terminal, original_job(terminal.api, id, given.workdir, envs), how)
        confirm(terminal, None, how, f"Resume {id}?")
        submit_request(terminal, how, resume_job, id, step=given.step, **upload_files(terminal, prepared_job))
        return
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import ResumeChanges, resumed_job

    broker = terminal.broker()
    folder = None if given.workdir is None else given.workdir.expanduser().absolute()
    new_job = resumed_job(broker, jobs.find(broker, job), ResumeChanges(folder, envs, given.step), by=terminal.actor)
    submit_graph(terminal, broker, [new_job], how)


def _resubmit(terminal: Terminal, job: str, manner: SubmitManner, *, from_start: bool) -> None:
    if terminal.through_server:
        from broker.app.use_cases.submission import retry_job
        from broker.cli.jobs.submit import submit_request

        id = terminal.job_id(job)
        check_can_confirm(terminal, manner)
        confirm(terminal, None, manner, f"Run {id} again?")
        submit_request(terminal, manner, retry_job, id, from_start=from_start)
        return
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import retried_job

    broker = terminal.broker()
    new_job = retried_job(broker, jobs.find(broker, job), by=terminal.actor, from_start=from_start)
    submit_graph(terminal, broker, [new_job], manner)


def variables(assignments: list[str] | None) -> dict[str, str]:
    """The variables of ``--env``. Raises `InvalidInput`."""
    envs = job_options.variables(assignments)
    for name in envs:
        if name.startswith("GPUBROKER_"):
            raise InvalidInput(
                f"expected the name of a variable that gpubroker does not set; got {name!r}", where="--env"
            )
    return envs
