"""`gpubroker submit`: plan, confirm, hold the money, launch, follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from broker.cli.gathered import gathered
from broker.cli.jobs import given_job
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.jobs.preview import Preview
    from broker.app.results.jobs import JobDetails
    from broker.app.results.plans import PlanResult
    from broker.app.wiring import Broker
    from broker.core.events.views import JobView
    from broker.core.job.jobs import Job

EXAMPLES = examples(
    "gpubroker submit JOB.yaml",
    "gpubroker submit JOB.yaml --yes --detach",
    "gpubroker submit JOB.yaml --yes --json",
    "gpubroker submit JOB.yaml --name second-try --env LEARNING_RATE=0.001 --secret HF_TOKEN",
    "gpubroker submit --gpu L4 --spot --max-cost '$5' -- python train.py --epochs 3",
    "gpubroker submit JOB.yaml --provider aws --region 'us-*' --deadline 8h",
    "gpubroker submit prepare.yaml train.yaml --yes",
    "gpubroker submit evaluate.yaml --after train",
)
SUBMIT_CLASS = given_job.TakesCommand


@dataclass(frozen=True)
class Manner:
    """How a job is submitted and followed."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once; the job continues in the background.")
    ] = False
    events: Annotated[bool, typer.Option("--events", help="Follow the events only, without the output.")] = False


@gathered
def submit(
    context: typer.Context,
    how: Manner,
    given: given_job.JobOptions,
    job: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="JOB.yaml...",
            help="Job file or SkyPilot task file. Several may name each other under `after:`.",
            show_default=False,
        ),
    ] = None,
    workdir: given_job.JobFolder = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", metavar="JOB", help="Begin once this job has succeeded. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job: show plan and verdict, ask for confirmation, follow events and output to the job's end.

    The job is a file, or a command after `--`. Of several jobs, each begins after those that it names under `after:`;
    the last one is followed. The money is held before the launch. The job continues when this command, terminal or
    login session ends. Exits with 0 if the job succeeded, 7 if it failed or was cancelled, 3 if a policy denies it or
    its money is used up, 4 if no capacity is feasible, 6 if it is waiting for approval.

    Through a server, one job is submitted at a time. Files that the server has are not uploaded again; secrets are
    encrypted for the server before they leave this machine.
    """
    terminal = Terminal.of(context)
    wanted = given_job.coming_after(given_job.given_jobs(context, job or [], given, workdir), after or [])
    if not terminal.through_server:
        submit_graph(terminal, terminal.broker(), wanted, how)
        return
    from broker.cli.jobs.server_submission import submit_there

    terminal.only_here({"with several jobs": wanted[1:]})
    submit_there(terminal, wanted[0], how)


def submit_graph(terminal: Terminal, broker: Broker, wanted: Sequence[Job], how: Manner) -> None:
    """Submit jobs, predecessors first, and follow the last one. If one is refused, those submitted before it are
    cancelled. Raises `typer.Exit` with the exit code, `InvalidInput` for jobs that wait for each other."""
    from broker.app.jobs import after, jobs
    from broker.app.jobs.details import details

    *first, last = after.in_order(wanted)
    submitted: dict[str, JobView] = {}

    def referring(job: Job) -> Job:
        return after.referring(job, {name: view.id for name, view in submitted.items()})

    try:
        for job in first:
            submitted[job.name], left = submitted_one(terminal, broker, referring(job), how)
            if left:
                raise KeyboardInterrupt
        view, left = submitted_one(terminal, broker, referring(last), how)
    except BaseException:
        for view in submitted.values():
            jobs.cancel(broker, view, by=terminal.actor)
            terminal.say(f"{view.id} is cancelled, as not all jobs were submitted.")
        raise
    for one in (*submitted.values(), view):
        tell_approvers(terminal, broker, one)
    conclude(terminal, details(broker, jobs.find(broker, view.id), progress=terminal.as_json), how, left=left)


def submitted_one(terminal: Terminal, broker: Broker, wanted: Job, how: Manner) -> tuple[JobView, bool]:
    """As `_agree_and_submit`, but makes the plan first. Raises also `InvalidInput`."""
    from broker.app.jobs.after import with_predecessors
    from broker.app.jobs.job_input import with_commit
    from broker.app.jobs.preview import preview
    from broker.app.jobs.resume import with_resume_point
    from broker.app.jobs.snapshots import survey
    from broker.cli.jobs import snapshot_view

    wanted = with_predecessors(broker, with_resume_point(broker, wanted), by=terminal.actor)
    can_confirm(terminal, how)
    wanted = limited(terminal, broker, wanted, how)
    if (files := survey(broker, wanted)) is not None:
        terminal.say(*snapshot_view.about(files))
    if (point := wanted.resume_from) is not None:
        which = f"the checkpoint at step {point.step:,}" if point.step is not None else "the newest checkpoint"
        terminal.say(f"Resumes from {which} of {point.job}.")
    wanted, commit = with_commit(wanted)
    terminal.say(*filter(None, [commit]))
    terminal.adopt()
    return _agree_and_submit(terminal, broker, preview(broker, wanted, by=terminal.actor), how)


def _agree_and_submit(terminal: Terminal, broker: Broker, seen: Preview, how: Manner) -> tuple[JobView, bool]:
    """Show the plan, ask for confirmation, and submit. If the plan has become more expensive meanwhile, show it and ask
    again. With ``--yes``, any cost within the job's own limits is confirmed. Raises `typer.Exit` if nothing is
    submitted.

    Returns the job, and whether Ctrl-C was pressed meanwhile: money is held by then, so the job's ID is printed first.
    """
    from broker.app.jobs.details import details
    from broker.app.jobs.plans import shown
    from broker.app.jobs.snapshots import with_snapshot
    from broker.app.jobs.submit import DearerNow, record_refusal
    from broker.app.jobs.submit import submit as admit
    from broker.app.service import background
    from broker.cli.jobs.snapshot_view import bytes_bar
    from broker.cli.terminal import ctrl_c_waits

    while True:
        plan = shown(broker, seen, limit=3)
        if plan.refusal is not None:
            if plan.exit_code != 4:
                record_refusal(broker, seen)
            refuse(terminal, plan)
        confirm(terminal, plan, how)
        with bytes_bar(terminal, "uploading the job's files") as progress:
            wanted = with_snapshot(broker, seen.job, by=terminal.actor, progress=progress)
        try:
            with ctrl_c_waits() as pressed:
                view = admit(broker, wanted, agreed=None if how.yes else seen, by=terminal.actor)
                background.ensure(broker, for_secrets_of=view)
                tell_submitted(terminal, details(broker, view))
            return view, pressed()
        except DearerNow as error:
            if pressed():
                raise KeyboardInterrupt from None  # no money is held, and the user does not want to be asked again
            terminal.say(f"{error.message}. The new plan:")
            seen = error.preview


def limited(terminal: Terminal, broker: Broker, job: Job, how: Manner) -> Job:
    """The job with a time limit: its own, that of the policy's `defaults:`, or the answer to a question. With --yes, it
    is stated instead."""
    from broker.cli import filters
    from broker.cli.render import formats
    from broker.core.ports import PolicyDefaults

    default = broker.policy().defaults.max_duration
    if job.max_duration is not None or job.session is not None or default != PolicyDefaults().max_duration:
        return job
    if how.yes:
        terminal.say(
            f"No time limit given: it is stopped after {formats.length(default)} of billed time (--max-duration)."
        )
        return job
    answer = typer.prompt("No time limit given. Stop it after how much billed time?", default="24h", err=True)
    return job.model_copy(update={"max_duration": filters.time_span("--max-duration", answer)})


def can_confirm(terminal: Terminal, how: Manner) -> None:
    """Raises `InvalidInput` if the confirmation is needed and there is no terminal for it."""
    if not how.yes and not terminal.asks:
        raise InvalidInput("no terminal for the confirmation", hint="add --yes to submit without confirmation")


def confirm(terminal: Terminal, plan: PlanResult | None, how: Manner, question: str = "Submit this job?") -> None:
    """Show the plan and ask for confirmation. Raises `typer.Exit` without it."""
    from broker.cli.jobs import plan_view

    if plan is not None and not terminal.as_json:
        terminal.show(*plan_view.screen(terminal.out, plan))
    if not how.yes and not typer.confirm(question, default=False, err=True):
        terminal.say("Nothing was submitted.")
        raise typer.Exit(0)


def refuse(terminal: Terminal, plan: PlanResult) -> NoReturn:
    """Print why the job of a plan cannot be submitted. Raises `typer.Exit`."""
    from broker.app.results.plans import RefusedSubmission
    from broker.cli.jobs import plan_view

    error = plan.refusal
    assert error is not None
    if terminal.as_json:
        terminal.answer(RefusedSubmission(error=error, plan=plan))
    else:
        terminal.show(*plan_view.screen(terminal.out, plan))
        hint = plan.verdict.advice if plan.verdict.would_pass else error.hint  # the plan has shown what would pass
        terminal.refuse(BrokerError(error.message, where=error.where, hint=hint))
    raise typer.Exit(plan.exit_code)


def tell_submitted(terminal: Terminal, job: JobDetails) -> None:
    """Print the id of a new job, and the money that is held for it."""
    from broker.cli.jobs import job_view

    terminal.say(f"Submitted as {job.id}.")
    terminal.say(*(f"Held now: {line}." for line in job_view.shares_of(job.budget_shares)))


def conclude(terminal: Terminal, job: JobDetails, how: Manner, *, left: bool) -> None:
    """Follow a job that was just submitted to its end, unless it is detached or waits for people, and print its
    state. ``left``: Ctrl-C was pressed meanwhile. Raises `typer.Exit` unless the exit code is 0."""
    from broker.app.results.jobs import JobDetails
    from broker.cli.jobs import job_view
    from broker.cli.jobs.follow import detached, exit_code, follow

    waits, followed = job.waits_for_people, None
    if left:
        detached(terminal, job.id)
    elif not how.detach and not waits:
        followed = follow(terminal, job.id, output=not how.events)
    last = followed or job
    if terminal.as_json:
        terminal.answer(JobDetails.from_parts(last))
    elif waits:
        raise typer.Exit(tell_waiting(terminal, job))
    elif followed is not None:
        terminal.show(*job_view.ending(followed))
    elif how.detach and not left:
        terminal.show(job_view.come_back(job.id))
    if left or (followed is None and not how.detach and not waits):
        raise typer.Exit(130)
    if code := 0 if how.detach and not waits else exit_code(last):
        raise typer.Exit(code)


def tell_approvers(terminal: Terminal, broker: Broker, view: JobView) -> None:
    """Notify the approvers of a new request, and print the deliveries."""
    from broker.app.alerts import approvers
    from broker.cli.service import notices

    if view.asked is not None and (sent := approvers.tell(broker, view)):
        terminal.say(f"{notices.deliveries(sent)}.")


def tell_waiting(terminal: Terminal, job: JobDetails) -> int:
    """Print that a job, or its extension, waits for approval: by whom, until when, and how to approve it. Returns the
    exit code."""
    from broker.cli.render import formats

    asked = job.asked
    if asked is None:
        terminal.say(f"Submitted. Waiting for approval: {job.waiting_because}.")
        return ApprovalNeeded.exit_code
    until = f" until {formats.moment(asked.expires_at)}" if asked.expires_at else ""
    done, money = ("Extension requested", "") if asked.extension else ("Submitted", f" Its money is held{until}.")
    terminal.say(
        f"{done}. Waiting for approval by {asked.whom}: {asked.because}.{money}",
        f"To approve it: `gpubroker approvals grant {job.id}`; an approval covers: {asked.covers}.",
        f"`gpubroker jobs show {job.id}` shows the decision.",
    )
    return ApprovalNeeded.exit_code
