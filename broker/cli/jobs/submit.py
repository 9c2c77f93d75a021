"""`gpubroker submit`: plan, confirm, hold the money, launch, follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from broker.cli import filters
from broker.cli.jobs import job_options
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.prices.watch import deliveries_text
from broker.cli.render import formats
from broker.cli.terminal import Terminal, defer_ctrl_c
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.jobs.documents import JobDetails
    from broker.app.jobs.plan_documents import PlanResult
    from broker.app.jobs.preview import Preview
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
SUBMIT_CLASS = job_options.TakesCommand


@dataclass(frozen=True)
class SubmitManner:
    """How a job is submitted and followed."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once; the job continues in the background.")
    ] = False
    events: Annotated[bool, typer.Option("--events", help="Follow the events only, without the output.")] = False


@expand_options
def submit(
    context: typer.Context,
    how: SubmitManner,
    given: job_options.JobOptions,
    job: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="JOB.yaml...",
            help="Job file or SkyPilot task file. Several may name each other under `after:`.",
            show_default=False,
        ),
    ] = None,
    workdir: job_options.JobFolder = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", metavar="JOB", help="Start after this job succeeds. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job: show its plan and what the policies say, ask for confirmation, follow it to its end.

    The job is a file, or a command after `--`. Several jobs start in the order of their `after:`; you see the
    output of the last one. The money is held before the launch. The job continues when this command,
    terminal or login session ends. Exits with 0 if the job succeeded (with --detach: was submitted), 7 if it failed or
    was cancelled, 3 if a policy denies it or its money is used up, 4 if no capacity fits it, 6 if it is waiting for
    approval.

    Through a server, one job is submitted at a time. Only files that the server does not have yet are uploaded; secrets
    are encrypted for the server before they leave this machine.
    """
    terminal = Terminal.of(context)
    requested = job_options.add_predecessors(
        job_options.requested_jobs(context, job or [], given, workdir), after or []
    )
    if not terminal.through_server:
        submit_graph(terminal, terminal.broker(), requested, how)
        return

    terminal.only_here({"with several jobs": requested[1:]})
    submit_to_server(terminal, requested[0], how)


def submit_graph(terminal: Terminal, broker: Broker, requested: Sequence[Job], manner: SubmitManner) -> None:
    """Submit jobs, predecessors first, and follow the last one. If one is refused, those submitted before it are
    cancelled. Raises `typer.Exit` with the exit code, `InvalidInput` for jobs that wait for each other."""
    from broker.app.jobs import jobs, predecessors
    from broker.app.jobs.details import details

    *earlier, last_job = predecessors.dependency_order(requested)
    submitted_views: dict[str, JobView] = {}

    def with_ids(job: Job) -> Job:
        return predecessors.replace_names_with_ids(job, submitted_views)

    try:
        for job in earlier:
            submitted_views[job.name], was_interrupted = plan_and_submit(terminal, broker, with_ids(job), manner)
            if was_interrupted:
                raise KeyboardInterrupt
        view, was_interrupted = plan_and_submit(terminal, broker, with_ids(last_job), manner)
    except BaseException:
        for view in submitted_views.values():
            jobs.cancel(broker, view, by=terminal.actor)
            terminal.say(f"{view.id} is cancelled, as not all jobs were submitted.")
        raise
    for submitted_view in (*submitted_views.values(), view):
        show_notified_approvers(terminal, broker, submitted_view)
    if not manner.yes:
        offer_once(terminal, broker)
    follow_to_end(
        terminal,
        details(broker, jobs.find(broker, view.id), progress=terminal.as_json),
        manner,
        was_interrupted=was_interrupted,
    )


def plan_and_submit(terminal: Terminal, broker: Broker, requested: Job, manner: SubmitManner) -> tuple[JobView, bool]:
    """As `_confirm_and_submit`, but makes the plan first. Raises also `InvalidInput`."""
    from broker.app.jobs.job_input import pin_commit
    from broker.app.jobs.predecessors import resolve_predecessors
    from broker.app.jobs.preview import preview
    from broker.app.jobs.resume import complete_resume_point
    from broker.app.jobs.snapshots import survey
    from broker.cli.jobs import snapshot_view

    requested = resolve_predecessors(broker, complete_resume_point(broker, requested), by=terminal.actor)
    check_can_confirm(terminal, manner)
    requested = with_time_limit(terminal, broker, requested, manner)
    if (survey_result := survey(broker, requested)) is not None:
        terminal.say(*snapshot_view.survey_lines(survey_result))
    if (point := requested.resume_from) is not None:
        checkpoint_text = (
            f"the checkpoint at step {point.step:,}" if point.step is not None else "the newest checkpoint"
        )
        terminal.say(f"Resumes from {checkpoint_text} of {point.job}.")
    requested, commit_note = pin_commit(requested)
    terminal.say(*filter(None, [commit_note]))
    terminal.adopt()
    return _confirm_and_submit(terminal, broker, preview(broker, requested, by=terminal.actor), manner)


def _confirm_and_submit(
    terminal: Terminal, broker: Broker, job_preview: Preview, manner: SubmitManner
) -> tuple[JobView, bool]:
    """Show the plan, ask, and submit; again if it became more expensive meanwhile, without ``--yes``. Raises
    `typer.Exit` if nothing is submitted. Returns the job, and whether Ctrl-C was pressed once money was held."""
    from broker.app.jobs import background
    from broker.app.jobs.details import details
    from broker.app.jobs.plan_documents import plan_result
    from broker.app.jobs.snapshots import take_snapshot
    from broker.app.jobs.submit import DearerNow, record_refusal
    from broker.app.jobs.submit import submit as admit
    from broker.cli.jobs.snapshot_view import bytes_bar

    while True:
        plan = plan_result(broker, job_preview, limit=3)
        if plan.refusal is not None:
            if plan.exit_code != 4:
                record_refusal(broker, job_preview)
            refuse(terminal, plan)
        confirm(terminal, plan, manner)
        with bytes_bar(terminal, "uploading the job's files") as progress:
            submittable = take_snapshot(broker, job_preview.job, by=terminal.actor, progress=progress)
        try:
            with defer_ctrl_c() as was_interrupted:
                view = admit(broker, submittable, agreed_preview=None if manner.yes else job_preview, by=terminal.actor)
                background.ensure(broker, for_secrets_of=view)
                show_submitted(terminal, details(broker, view))
            return view, was_interrupted()
        except DearerNow as error:
            if was_interrupted():
                raise KeyboardInterrupt from None  # no money is held, and the user does not want to be asked again
            terminal.say(f"{error.message}. The new plan:")
            job_preview = error.preview


def with_time_limit(terminal: Terminal, broker: Broker, job: Job, how: SubmitManner) -> Job:
    """The job with a time limit: its own, that of the policy's `defaults:`, or the answer to a question. With --yes, it
    is stated instead."""
    from broker.core.ports import PolicyDefaults

    default = broker.policy().defaults.max_duration
    if job.max_duration is not None or job.session is not None or default != PolicyDefaults().max_duration:
        return job
    if how.yes:
        terminal.say(
            f"No time limit given: it is stopped after {formats.length(default)} of machine time (--max-duration)."
        )
        return job
    answer = typer.prompt("No time limit given. Stop it after how much machine time?", default="24h", err=True)
    return job.model_copy(update={"max_duration": filters.time_span_option("--max-duration", answer)})


def check_can_confirm(terminal: Terminal, manner: SubmitManner) -> None:
    """Raises `InvalidInput` if the confirmation is needed and there is no terminal for it."""
    if not manner.yes and not terminal.asks:
        raise InvalidInput("no terminal for the confirmation", hint="add --yes to submit without confirmation")


def confirm(
    terminal: Terminal, plan: PlanResult | None, manner: SubmitManner, question: str = "Submit this job?"
) -> None:
    """Show the plan and ask for confirmation. Raises `typer.Exit` without it."""
    from broker.cli.jobs import plan_view

    if plan is not None and not terminal.as_json:
        terminal.show(*plan_view.plan_screen(terminal.out, plan))
    if not manner.yes and not typer.confirm(question, default=False, err=True):
        terminal.say("Nothing was submitted.")
        raise typer.Exit(0)


def refuse(terminal: Terminal, plan: PlanResult) -> NoReturn:
    """Print why the job of a plan cannot be submitted. Raises `typer.Exit`."""
    from broker.app.jobs.plan_documents import RefusedSubmission
    from broker.cli.jobs import plan_view

    error = plan.refusal
    assert error is not None
    if terminal.as_json:
        terminal.answer(RefusedSubmission(error=error, plan=plan))
    else:
        terminal.show(*plan_view.plan_screen(terminal.out, plan))
        is_explained = plan.exit_code == 4 and plan.reasons  # the plan has shown what to change, or what would pass
        hint = plan.verdict.advice if plan.verdict.would_pass else "" if is_explained else error.hint
        terminal.refuse(BrokerError(error.message, where=error.where, hint=hint))
    raise typer.Exit(plan.exit_code)


def show_submitted(terminal: Terminal, job: JobDetails) -> None:
    """Print the id of a new job, and the money that is held for it."""
    from broker.cli.jobs import job_view

    terminal.say(f"Submitted as {job.id}.")
    terminal.say(*(f"Held now: {share_line}." for share_line in job_view.budget_share_lines(job.budget_shares)))


def follow_to_end(terminal: Terminal, job: JobDetails, manner: SubmitManner, *, was_interrupted: bool) -> None:
    """Follow a job that was just submitted to its end, unless it is detached or waits for people, and print its
    state. ``was_interrupted``: Ctrl-C was pressed meanwhile. Raises `typer.Exit` unless the exit code is 0."""
    from broker.app.jobs.documents import JobDetails
    from broker.cli.jobs import job_view
    from broker.cli.jobs.follow import exit_code, follow, show_detached

    needs_person, final_history = job.waits_for_people, None
    if was_interrupted:
        show_detached(terminal, job.id)
    elif not manner.detach and not needs_person:
        final_history = follow(terminal, job.id, output=not manner.events)
    final_state = final_history or job
    if terminal.as_json:
        terminal.answer(JobDetails.from_parts(final_state))
    elif needs_person:
        raise typer.Exit(tell_waiting(terminal, job))
    elif final_history is not None:
        terminal.show(*job_view.end_summary(final_history))
    elif manner.detach and not was_interrupted:
        terminal.show(job_view.return_commands(job.id))
    if was_interrupted or (final_history is None and not manner.detach and not needs_person):
        raise typer.Exit(130)
    if code := 0 if manner.detach and not needs_person else exit_code(final_state):
        raise typer.Exit(code)


def show_notified_approvers(terminal: Terminal, broker: Broker, view: JobView) -> None:
    """Notify the approvers of a new request, and print the deliveries."""
    from broker.app.alerts import approvers

    if view.asked is not None and (deliveries := approvers.notify_approvers(broker, view)):
        terminal.say(f"{deliveries_text(deliveries)}.")


def tell_waiting(terminal: Terminal, job: JobDetails) -> int:
    """Print that a job, or its extension, waits for approval: by whom, until when, and how to approve it. Returns the
    exit code."""
    asked = job.asked
    if asked is None:
        terminal.say(f"Submitted. Waiting for approval: {job.waiting_because}.")
        return ApprovalNeeded.exit_code
    until = f" until {formats.moment(asked.expires_at)}" if asked.expires_at else ""
    waiting = "Its money is held" if any(amount for _, amount in job.held) else "Nothing is held; the request stands"
    done, money = ("Extension requested", "") if asked.extension else ("Submitted", f" {waiting}{until}.")
    terminal.say(
        f"{done}. Waiting for approval by {asked.whom}: {asked.because}.{money}",
        f"To approve it: `gpubroker approvals grant {job.id}`; an approval covers: {asked.covers}.",
        f"`gpubroker status {job.id}` shows the decision.",
    )
    return ApprovalNeeded.exit_code


def offer_once(terminal: Terminal, broker: Broker) -> None:
    """Name the command in one line, to a person at a terminal, once on this machine."""
    from broker.app.service.autostart import autostart_file

    mark, file = broker.settings.home / "autostart-offered", autostart_file()
    if not terminal.asks or not terminal.err.is_terminal or file is None or file.exists() or mark.exists():
        return
    mark.touch(mode=0o600)
    terminal.say("To continue jobs after a restart of this machine: `gpubroker autostart on`.")


def submit_to_server(terminal: Terminal, job: Job, manner: SubmitManner) -> None:
    """Submit a job: show its plan, ask for confirmation, upload its files, and follow it. Raises `typer.Exit` with the
    exit code."""
    from broker.app.use_cases.submission import submit_job
    from broker.server.client import sending

    api = terminal.api
    job = prepare_job(terminal, sending.resolve_job_ids(api, job), manner)
    plan = None
    if not (manner.yes and terminal.as_json):  # the plan would not be shown
        plan = sending.plan_on_server(api, job, limit=3)
        if plan.refusal is not None and not manner.yes:  # with --yes, the server decides, and records its refusal
            refuse(terminal, plan)
    confirm(terminal, plan, manner)
    submit_request(terminal, manner, submit_job, **upload_files(terminal, job))


def prepare_job(terminal: Terminal, job: Job, manner: SubmitManner) -> Job:
    """The job with the commit of its repository; prints which files it takes. Raises `InvalidInput`."""
    from broker.app.jobs.job_input import pin_commit
    from broker.cli.jobs import snapshot_view
    from broker.server.client import sending

    check_can_confirm(terminal, manner)
    if (survey := sending.survey_of(terminal.api, job)) is not None:
        terminal.say(*snapshot_view.survey_lines(survey))
    job, commit_note = pin_commit(job)
    terminal.say(*filter(None, [commit_note]))
    return job


def upload_files(terminal: Terminal, job: Job) -> dict[str, Any]:
    """The request that submits the job, once its files are uploaded."""
    from broker.cli.jobs import snapshot_view
    from broker.server.client import sending

    with snapshot_view.bytes_bar(terminal, "uploading the job's files") as progress:
        return sending.submission_body(terminal.api, job, progress)


def submit_request(
    terminal: Terminal, manner: SubmitManner, use_case: Callable[..., JobDetails], *ids: str, **body: Any
) -> None:
    """Request a new job and, unless it is detached, follow it to its end. Raises `typer.Exit` with the exit code."""
    with defer_ctrl_c() as was_interrupted:  # money is held by then
        details = terminal.api.run(use_case, *ids, **body)
        show_submitted(terminal, details)
    follow_to_end(terminal, details, manner, was_interrupted=was_interrupted())
