"""`gpubroker jobs`: list, follow and control submitted jobs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.jobs import job_files, resume
from broker.cli.jobs.submit import tell_waiting
from broker.cli.options import AsJson, JobReference, MaxCost, MaxDuration, OneAttempt, OneNode, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState

if TYPE_CHECKING:
    from broker.app.jobs.documents import JobDetails, JobList
    from broker.app.jobs.history_documents import JobHistory
    from broker.app.jobs.jobs import JobCriteria

_JOBS = RowFilter(state=completion.states, team=completion.teams, user=completion.users, array=completion.jobs)
app = typer.Typer(no_args_is_help=True, help="List, follow and control submitted jobs.")


@app.command(
    "list",
    epilog=examples(
        "gpubroker jobs list",
        "gpubroker jobs list --where state=running,state=paused_budget --json",
        "gpubroker jobs list --mine --where 'team=nlp-*'",
        "gpubroker jobs list --where array=sweep,state=failed",
    ),
)
def list_jobs(
    context: typer.Context,
    where: Annotated[list[str] | None, _JOBS.option] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only my jobs.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: state, machine, cost so far. An array is one row.

    With `array=JOB` it lists the tasks of an array, in the order of their start; not through a server.
    """
    from broker.app.market.offer_rows import expand_patterns
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    filters = _JOBS.read(where)
    states = expand_patterns("state", filters.get("state", ()), [item.value for item in JobState])
    arrays, users = filters.get("array", []), filters.get("user", [])
    terminal.only_here({"--where array=": arrays})
    if arrays and (mine or len(arrays) > 1 or filters.keys() - {"array", "state"}):
        raise InvalidInput("with array=, only state= may be combined", where="--where")
    if mine and users:
        raise InvalidInput("give --mine or user=, not both", where="--where")
    criteria: JobCriteria = {
        "states": [item for item in JobState if item.value in states],
        "users": [_own_name(terminal)] if mine else users,
        "teams": filters.get("team", []),
        "array": arrays[0] if arrays else None,
        "limit": limit + 1,  # one more shows whether there are more
    }
    job_list = _load_jobs(terminal, criteria)
    has_more = len(job_list.jobs) > limit
    job_list = job_list.model_copy(update={"jobs": job_list.jobs[:limit]})
    if as_json:
        terminal.answer(job_list)
        return
    for item in job_list.unreadable:
        terminal.say(f"skipped: job {item.id} cannot be read here: {item.because} ({item.hint})")
    if job_list.jobs:
        terminal.show(*job_view.job_table(terminal.out, job_list, has_more=has_more))
    elif not job_list.unreadable:
        terminal.show(
            "no matching jobs" if filters or mine else "no jobs yet; submit one with `gpubroker submit JOB.yaml`"
        )


def _own_name(terminal: Terminal) -> str:
    """The name of the person who runs the command, here or at the server."""
    from broker.app.use_cases.people import me

    return terminal.ask(me).person.name


def _load_jobs(terminal: Terminal, criteria: JobCriteria) -> JobList:
    from broker.app.jobs.documents import JobList

    if terminal.through_server:
        parameters = {
            "state": [state.value for state in criteria["states"]],
            "team": criteria["teams"],
            "user": criteria["users"],
        }
        return terminal.api.whole(JobList, "/jobs", "jobs", criteria["limit"], 200, **parameters)
    from broker.app.jobs import details, jobs

    broker = terminal.broker()
    if (array := criteria["array"]) is not None:
        criteria["array"] = jobs.find_array(broker, array).id
    return details.listing(broker, held=terminal.as_json, **criteria)


@app.command(epilog=examples("gpubroker jobs queue", "gpubroker jobs queue --json"))
def queue(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the waiting jobs in order, with the expected placement, start and cost of each.

    All waiting jobs are placed together: by priority, then deadline, then in turns between teams. A multi-node job gets
    all its machines at once. A note says whose places a job takes whose priority preempts, and what both sides lose.
    Recorded capacity (`gpubroker capacity add`) that no engine reaches is not used; its start and cost are shown.
    """
    from broker.app.use_cases.approvals import show_queue
    from broker.cli.jobs import queue_view

    terminal = Terminal.of(context)
    queue_result = terminal.ask(show_queue)
    terminal.result(queue_result, lambda: queue_view.queue_table(terminal.out, queue_result))


def load_history(terminal: Terminal, reference: str) -> JobHistory:
    """The job and what happened to it."""
    from broker.app.use_cases.jobs import show_job

    return terminal.ask(show_job, terminal.job_id(reference))


STATUS_EXAMPLES = examples(
    "gpubroker status",
    "gpubroker status bert",
    "gpubroker status bert --wait",
    "gpubroker status bert --attempts",
)


def status(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", autocompletion=completion.jobs, help="Job: ID, ID prefix, or name."),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Without JOB: only my jobs.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Follow the job to its end; exit code 7 if it failed or was cancelled.")
    ] = False,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Show the job's attempts: location, duration, steps, why each ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: state, cost and events. Without JOB, list the newest jobs; `gpubroker jobs list` has filters."""
    if wait and attempts:
        raise InvalidInput("--wait and --attempts cannot be combined", hint="gpubroker status JOB --wait")
    if job is None and (wait or attempts):
        option = "--wait" if wait else "--attempts"
        raise InvalidInput(f"{option} needs a JOB", hint=f"gpubroker status JOB {option}")
    if job is not None and mine:
        raise InvalidInput("--mine belongs to the list", hint="leave it out, or the JOB")
    if job is None:
        list_jobs(context, None, mine, 30, as_json)
    elif attempts:
        _show_attempts(Terminal.of(context), job)
    else:
        _show_job(Terminal.of(context), job, wait=wait)


def _show_attempts(terminal: Terminal, job: str) -> None:
    from broker.app.use_cases.jobs import job_attempts
    from broker.cli.jobs import job_view

    attempt_list = terminal.ask(job_attempts, terminal.job_id(job, single=True))
    terminal.result(attempt_list, lambda: job_view.attempt_table(terminal.out, attempt_list))


def _show_job(terminal: Terminal, job: str, *, wait: bool) -> None:
    from broker.cli.jobs import job_view

    history, was_followed = load_history(terminal, job), False
    if wait and not history.closed:
        from broker.cli.jobs.follow import follow

        final_history, was_followed = follow(terminal, history.id), True
        if final_history is None:
            raise typer.Exit(130)
        history = final_history
    terminal.result(history, lambda: job_view.end_summary(history) if was_followed else job_view.job_story(history))
    if wait:
        from broker.cli.jobs.follow import exit_code

        if code := exit_code(history):
            raise typer.Exit(code)


@dataclass(frozen=True)
class OutputOptions:
    """Which part of the output."""

    attempt: OneAttempt = None
    node: OneNode = None
    task: Annotated[int | None, typer.Option("--task", min=0, help="Only this task of an array.")] = None
    failed: Annotated[bool, typer.Option("--failed", help="Only the tasks of an array that failed.")] = False
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=1, help="Only the last N lines; of an array, of each task.")
    ] = None


LOGS_EXAMPLES = examples(
    "gpubroker logs bert",
    "gpubroker logs bert --follow",
    "gpubroker logs bert --attempt 2 --tail 100",
    "gpubroker logs bert --node 1",
    "gpubroker logs sweep --follow",
    "gpubroker logs sweep --task 3",
    "gpubroker logs sweep --failed --tail 5",
)


@expand_options
def logs(
    context: typer.Context,
    job: JobReference,
    output: OutputOptions,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the output of the job's command, attempt by attempt.

    The lines of an array begin with the number of their task: `[3] loss 0.52`. With --follow they come as they are
    printed, otherwise task by task.
    """
    from broker.app.jobs.documents import JobLogs, LoggedLine
    from broker.app.jobs.logs import WantedOutput
    from broker.cli.jobs.follow import follow_logs, line_with_origin, no_output_text, output_lines, print_output
    from broker.cli.jobs.job_view import state_text

    terminal = Terminal.of(context)
    if follow and as_json:
        raise InvalidInput("--follow and --json cannot be combined")
    if follow and output.node is not None:
        raise InvalidInput("--follow prints the output of all nodes, each line with its node", hint="remove --node")
    output_filter = WantedOutput(**vars(output))
    if follow:
        follow_logs(terminal, job, output_filter)
        return
    id, log_lines = output_lines(terminal, job, output_filter)
    if as_json:
        document_lines = [LoggedLine(attempt=line.attempt, line=line.text, task=line.task) for line in log_lines]
        terminal.answer(JobLogs(id=id, lines=document_lines))
        return
    last_attempt = 0
    for (number, of_task), group in groupby(log_lines, lambda line: (line.attempt, line.task)):
        if output.attempt is None and of_task is None and (last_attempt or number > 1):
            terminal.say(f"--- attempt {number}")
        print_output(sys.stdout, map(line_with_origin, group))
        last_attempt = number
    if not last_attempt:
        history = load_history(terminal, id)
        terminal.say(no_output_text(id, state_text(history).plain, ended=history.state.final))


CANCEL_EXAMPLES = examples(
    "gpubroker cancel bert",
    "gpubroker cancel bert eval-3 --json",
    "gpubroker cancel --all",
    "gpubroker cancel --state queued --yes",
)


def cancel(
    context: typer.Context,
    job: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", autocompletion=completion.jobs, help="Job IDs, ID prefixes or names."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All my open jobs, after confirmation.")] = False,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", autocompletion=completion.states, help="All my jobs in this state, after confirmation."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop jobs permanently, after a last checkpoint. Held money that is not spent is released.

    With --json, one named JOB is printed as a document, several as a list of jobs.
    """
    from broker.app.jobs.documents import JobList
    from broker.app.use_cases.jobs import cancel_job

    terminal = Terminal.of(context)
    if bool(job) + every + (state is not None) != 1:
        raise InvalidInput("expected jobs, --all or --state", hint="gpubroker cancel JOB; gpubroker cancel --all")
    names = job or _my_open_jobs(terminal, state)
    if not job and names:
        terminal.say(*([] if yes else names))
        question = f"Cancel these {len(names)} jobs?" if len(names) > 1 else "Cancel this job?"
        if not terminal.confirm(question, yes=yes, hint="add --yes to cancel without confirmation"):
            terminal.say("Nothing was cancelled.")
            return
    ids = dict.fromkeys(map(terminal.job_id, names))  # all names are looked up before the first job is stopped
    stopped_jobs = [terminal.ask(cancel_job, id) for id in ids]
    job_list = JobList(as_of=terminal.now(), time_scale=1.0, jobs=stopped_jobs, unreadable=[])
    lines = [_cancellation_text(stopped_job) for stopped_job in stopped_jobs] or [
        "No open job of yours matches; nothing to cancel."
    ]
    terminal.result(stopped_jobs[0] if job and len(job) == 1 else job_list, lambda: lines)


def _my_open_jobs(terminal: Terminal, state: str | None) -> list[str]:
    states = [item for item in JobState if not item.final and state in (None, item.value)]
    if not states:
        open_states = [item.value for item in JobState if not item.final]
        raise InvalidInput(f"expected {', '.join(open_states)}; got {state!r}", where="--state")
    own_criteria: JobCriteria = {
        "states": states,
        "users": [_own_name(terminal)],
        "teams": [],
        "array": None,
        "limit": 10_000,
    }
    return [item.id for item in _load_jobs(terminal, own_criteria).jobs if not item.cancel_requested]


def _cancellation_text(job: JobDetails) -> str:
    if job.state.final:
        return f"{job.id} has already ended ({job.state.value}); nothing to cancel"
    return f"{job.id} is being stopped; see `gpubroker status {job.id}`"


@app.command(
    epilog=examples("gpubroker jobs extend bert --max-cost '$900'", "gpubroker jobs extend bert --max-duration 72h")
)
def extend(
    context: typer.Context,
    job: JobReference,
    max_cost: MaxCost = None,
    max_duration: MaxDuration = None,
    as_json: AsJson = False,
) -> None:
    """Raise a job's limit of cost or machine time; a paused job resumes.

    The policies judge the extension. Exits with 6 if it needs approval first; meanwhile a running job continues within
    its current limits.
    """
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    details = _extend_job(terminal, job, max_cost, max_duration)
    if as_json:
        terminal.answer(details)
    elif details.asked is not None:
        tell_waiting(terminal, details)
    else:
        terminal.show(f"{details.id} extended; state: {details.state.value.replace('_', ' ')}")
        terminal.show(
            *(f"Held now: {share_line}." for share_line in job_view.budget_share_lines(details.budget_shares))
        )
    if details.asked is not None:
        raise typer.Exit(6)


def _extend_job(terminal: Terminal, job: str, max_cost: str | None, max_duration: str | None) -> JobDetails:
    from broker.app.use_cases.approvals import extend_job

    cost = None if max_cost is None else filters.price_option("--max-cost", max_cost)
    if max_duration is not None:
        filters.time_span_option("--max-duration", max_duration)
    return terminal.ask(extend_job, terminal.job_id(job), None if cost is None else f"${cost.dollars}", max_duration)


app.command(epilog=resume.RESUME_EXAMPLES)(resume.resume)
app.command(epilog=job_files.FILES_EXAMPLES)(job_files.files)
app.command(epilog=job_files.GET_EXAMPLES)(job_files.get)
app.command(epilog=job_files.DIFF_EXAMPLES)(job_files.diff)
app.command(epilog=job_files.PRUNE_EXAMPLES)(job_files.prune)
