"""`gpubroker submit` through a team server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.gathered import gathered
from broker.cli.jobs import given_job
from broker.cli.options import AsJson, examples
from broker.cli.remote import through
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.core.job.jobs import Job

SUBMIT_EXAMPLES = examples("gpubroker submit JOB.yaml", "gpubroker submit JOB.yaml --yes --detach --secret HF_TOKEN")
COMMAND_CLASS = given_job.TakesCommand
Files = Annotated[
    list[Path] | None, typer.Argument(metavar="[JOB.yaml]", help="Job file or SkyPilot task file.", show_default=False)
]


@gathered
def submit(
    context: typer.Context,
    given: given_job.JobOptions,
    job: Files = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once; the job continues.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job to the server: show its plan, ask for confirmation, upload the job's files, follow it to its end.

    Files that the server has are not uploaded again; secrets are encrypted for the server before they leave this
    machine. Ctrl-C after the submission detaches; the job continues. Exit codes are those of `submit` without a server.
    """
    from broker.app.jobs.repository_commit import with_commit
    from broker.cli.jobs import plan_view, snapshot_view
    from broker.cli.remote import view
    from broker.cli.remote.jobs import exit_code, follow
    from broker.remote import sending

    terminal, api = through(context)
    wanted = _given(context, job, given)
    if not yes and not terminal.asks:
        raise InvalidInput("no terminal for the confirmation", hint="add --yes to submit without confirmation")
    if (files := sending.survey_of(api, wanted)) is not None:
        terminal.say(*snapshot_view.about(files))
    wanted, commit = with_commit(wanted)
    terminal.say(*filter(None, [commit]))
    if not yes:
        seen = sending.planned(api, wanted, limit=3)
        terminal.show(*plan_view.screen(terminal.out, seen))
        if seen.refusal is not None:
            raise typer.Exit(seen.exit_code)
        if not typer.confirm("Submit this job?", default=False, err=True):
            terminal.say("Nothing was submitted.")
            raise typer.Exit(0)
    with snapshot_view.bytes_bar(terminal, "uploading the job's files") as progress:
        found = sending.submit(api, wanted, progress=progress)
    terminal.say(f"Submitted as {found['id']}; {view.sum_of(found['held'])} held.")
    if found["asked"]:
        terminal.say(f"It waits for approval by {', '.join(found['asked']['approvers'])}.")
    elif not detach:
        try:
            found = follow(terminal, api, found["id"], output=True)
        except KeyboardInterrupt:
            terminal.say(f"The job continues. `gpubroker jobs show {found['id']}`")
            raise typer.Exit(130) from None
    if as_json:
        terminal.answer(found)
    elif found["ended_at"] is not None:
        terminal.show(*view.job({**found, "events": ()}))
    if code := exit_code(found):
        raise typer.Exit(code)


def _given(context: typer.Context, files: list[Path] | None, given: given_job.JobOptions) -> Job:
    jobs = given_job.given_jobs(context, files or [], given)
    if len(jobs) > 1:
        raise InvalidInput("one job at a time through a server", hint="submit them in order, with `after: ID`")
    return jobs[0]
