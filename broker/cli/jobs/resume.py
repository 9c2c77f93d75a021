"""`gpubroker jobs resume` and `gpubroker jobs retry`: continue an ended job as a new job."""

from __future__ import annotations

import typer

from broker.cli.gathered import gathered
from broker.cli.jobs import given_job
from broker.cli.jobs.submit import Manner, can_confirm, confirm, submit_graph
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

    Submits a new job of the same name for the remaining work. It is planned, judged and paid for like any other job;
    through a server, without showing the plan. The exit codes are those of `gpubroker submit`.
    """
    terminal = Terminal.of(context)
    envs = variables(env)
    if terminal.through_server:
        from broker.cli.jobs.server_submission import prepared, send, uploaded
        from broker.remote.sending import as_it_was, job_id

        id = job_id(terminal.api, job)
        there = prepared(terminal, as_it_was(terminal.api, id, workdir, envs), how)
        confirm(terminal, None, how, f"Resume {id}?")
        send(terminal, f"/jobs/{id}/resume", {**uploaded(terminal, there), "step": step}, how)
        return
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import ResumeChanges, resumed

    broker = terminal.broker()
    folder = None if workdir is None else workdir.expanduser().absolute()
    wanted = resumed(broker, jobs.find(broker, job), ResumeChanges(folder, envs, step), by=terminal.actor)
    submit_graph(terminal, broker, [wanted], how)


@gathered
def retry(
    context: typer.Context, job: JobReference, how: Manner, from_start: FromStart = False, as_json: AsJson = False
) -> None:
    """Run an ended job again with the files that it was submitted with, from its newest checkpoint if it has one.

    Of an array, only the tasks that failed are run again, each from its own checkpoint.

    Submits a new job of the same name. It is planned, judged and paid for like any other job; through a server, without
    showing the plan, and not a job with secrets: submit that again. The exit codes are those of `gpubroker submit`.
    """
    terminal = Terminal.of(context)
    if terminal.through_server:
        from broker.cli.jobs.server_submission import send
        from broker.remote.sending import job_id

        id = job_id(terminal.api, job)
        can_confirm(terminal, how)
        confirm(terminal, None, how, f"Run {id} again?")
        send(terminal, f"/jobs/{id}/retry", {"from_start": from_start}, how)
        return
    from broker.app.jobs import jobs
    from broker.app.jobs.resume import retried

    broker = terminal.broker()
    wanted = retried(broker, jobs.find(broker, job), by=terminal.actor, from_start=from_start)
    submit_graph(terminal, broker, [wanted], how)


def variables(given: list[str] | None) -> dict[str, str]:
    """The variables of ``--env``. Raises `InvalidInput`."""
    envs = dict(given_job.overrides(given).envs)
    for name in envs:
        if name.startswith("GPUBROKER_"):
            raise InvalidInput(
                f"expected the name of a variable that gpubroker does not set; got {name!r}", where="--env"
            )
    return envs
