"""`gpubroker jobs`: list, follow and control submitted jobs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.gathered import gathered
from broker.cli.jobs import kept_files, resume
from broker.cli.options import AsJson, JobReference, MaxCost, MaxDuration, OneAttempt, OneNode, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.jobs.jobs import JobCriteria
    from broker.app.results.job_history import JobHistory
    from broker.app.results.jobs import AttemptList, JobDetails, JobList
    from broker.app.results.queue import QueueResult

_JOBS = RowFilter(state=completion.states, team=completion.teams, user=completion.users, array=completion.jobs)
app = typer.Typer(no_args_is_help=True, help="List, follow and control submitted jobs.")


def _of_group(shown: str) -> str:
    """The examples of a command that is also at the top level, with its longer name."""
    return shown.replace("gpubroker ", "gpubroker jobs ")


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: state, machine, cost so far. An array is one row.

    With `array=JOB` it lists the tasks of an array, in the order of their start; not through a server.
    """
    from broker.app.market.offer_rows import matching
    from broker.cli.jobs import job_view
    from broker.core.events.outcomes import JobState

    terminal = Terminal.of(context)
    wanted = _JOBS.read(where)
    states = matching("state", wanted.get("state", ()), [one.value for one in JobState])
    arrays, users = wanted.get("array", []), wanted.get("user", [])
    terminal.only_here({"--where array=": arrays})
    if arrays and (mine or len(arrays) > 1 or wanted.keys() - {"array", "state"}):
        raise InvalidInput("with array=, only state= may be combined", where="--where")
    if mine and users:
        raise InvalidInput("give --mine or user=, not both", where="--where")
    criteria: JobCriteria = {
        "states": [one for one in JobState if one.value in states],
        "users": [_me(terminal)] if mine else users,
        "teams": wanted.get("team", []),
        "array": arrays[0] if arrays else None,
        "limit": limit,
    }
    found = _listed(terminal, criteria)
    if as_json:
        terminal.answer(found)
        return
    for one in found.unreadable:
        terminal.say(f"skipped: job {one.id} cannot be read here: {one.because} ({one.hint})")
    if found.jobs:
        terminal.show(*job_view.job_table(terminal.out, found))
    elif not found.unreadable:
        terminal.show(
            "no matching jobs" if wanted or mine else "no jobs yet; submit one with `gpubroker submit JOB.yaml`"
        )


def _me(terminal: Terminal) -> str:
    """The name of the person who runs the command, here or at the server."""
    if not terminal.through_server:
        return terminal.actor.identity
    from broker.app.results.access import CallerIdentity

    return terminal.api.fetch(CallerIdentity, "/me").person.name


def _listed(terminal: Terminal, wanted: JobCriteria) -> JobList:
    from broker.app.results.jobs import JobList

    if terminal.through_server:
        asked = {"state": [one.value for one in wanted["states"]], "team": wanted["teams"], "user": wanted["users"]}
        return terminal.api.whole(JobList, "/jobs", "jobs", wanted["limit"], 200, **asked)
    from broker.app.jobs import details, jobs

    broker = terminal.broker()
    if (array := wanted["array"]) is not None:
        wanted["array"] = jobs.find_array(broker, array).id
    return details.listing(broker, held=terminal.as_json, **wanted)


@app.command(epilog=examples("gpubroker jobs queue", "gpubroker jobs queue --json"))
def queue(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the waiting jobs in order, with the expected placement, start and cost of each.

    All waiting jobs are placed together: by priority, then deadline, then in turns between teams. A multi-node job gets
    all its machines at once. Recorded capacity (`gpubroker capacity add`) that no engine reaches is not used; the start
    and cost that it would bring are shown.
    """
    from broker.cli.jobs import queue_view

    terminal = Terminal.of(context)
    found = _queued(terminal)
    terminal.result(found, lambda: queue_view.table(terminal.out, found))


def _queued(terminal: Terminal) -> QueueResult:
    from broker.app.results.queue import QueueResult

    if terminal.through_server:
        return terminal.api.fetch(QueueResult, "/queue")
    from broker.app.jobs.queue import explained

    return QueueResult.of(explained(terminal.broker()))


@app.command(
    epilog=examples(
        "gpubroker jobs show bert",
        "gpubroker jobs show bert --wait",
        "gpubroker jobs show bert --json",
    )
)
def show(
    context: typer.Context,
    job: JobReference,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Follow the job to its end; exit code 7 if it failed or was cancelled.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: state, cost and events."""
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    found, followed = history_of(terminal, job), False
    if wait and not found.closed:
        from broker.cli.jobs.follow import follow

        last, followed = follow(terminal, found.id), True
        if last is None:
            raise typer.Exit(130)
        found = last
    terminal.result(found, lambda: job_view.ending(found) if followed else job_view.story(found))
    if wait:
        from broker.cli.jobs.follow import exit_code

        if code := exit_code(found):
            raise typer.Exit(code)


def history_of(terminal: Terminal, reference: str) -> JobHistory:
    """The job and what happened to it."""
    if terminal.through_server:
        from broker.app.results.job_history import JobHistory
        from broker.remote.sending import job_id

        return terminal.api.fetch(JobHistory, f"/jobs/{job_id(terminal.api, reference)}")
    from broker.app.jobs import details, jobs

    broker = terminal.broker()
    return details.history(broker, jobs.find(broker, reference))


STATUS_EXAMPLES = examples("gpubroker status", "gpubroker status --mine", "gpubroker status bert --wait")


def status(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", autocompletion=completion.jobs, help="Show this job instead of the list."),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only my jobs.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Follow the job to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs, or show one: state, cost and events.

    As `gpubroker jobs list` and `gpubroker jobs show`, which have more options.
    """
    if job is not None and not mine:
        show(context, job, wait, as_json)
    elif job is None and not wait:
        list_jobs(context, None, mine, 30, as_json)
    else:
        raise InvalidInput("--mine is for the list, --wait for one JOB", hint="gpubroker status JOB --wait")


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


@app.command(epilog=_of_group(LOGS_EXAMPLES))
@gathered
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
    from broker.app.jobs.logs import WantedOutput
    from broker.app.results.jobs import JobLogs, LoggedLine
    from broker.cli.jobs.follow import follow_logs, line_of_job, no_output_yet, print_output, printed
    from broker.cli.jobs.job_view import state_text

    terminal = Terminal.of(context)
    if follow and as_json:
        raise InvalidInput("--follow and --json cannot be combined")
    if follow and output.node is not None:
        raise InvalidInput("--follow prints the output of all nodes, each line with its node", hint="remove --node")
    wanted = WantedOutput(**vars(output))
    if follow:
        follow_logs(terminal, job, wanted)
        return
    id, lines = printed(terminal, job, wanted)
    if as_json:
        logged = [LoggedLine(attempt=line.attempt, line=line.text, task=line.task) for line in lines]
        terminal.answer(JobLogs(id=id, lines=logged))
        return
    last = 0
    for (number, of_task), group in groupby(lines, lambda line: (line.attempt, line.task)):
        if output.attempt is None and of_task is None and (last or number > 1):
            terminal.say(f"--- attempt {number}")
        print_output(sys.stdout, map(line_of_job, group))
        last = number
    if not last:
        found = history_of(terminal, id)
        terminal.say(no_output_yet(id, state_text(found).plain, ended=found.state.final))


@app.command(epilog=examples("gpubroker jobs attempts bert", "gpubroker jobs attempts bert --json"))
def attempts(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """List a job's attempts: location, duration, steps, and why each ended."""
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    found = _attempts(terminal, job)
    terminal.result(found, lambda: job_view.attempt_table(terminal.out, found))


def _attempts(terminal: Terminal, job: str) -> AttemptList:
    if terminal.through_server:
        from broker.app.results.jobs import AttemptList
        from broker.remote.sending import job_id

        return terminal.api.fetch(AttemptList, f"/jobs/{job_id(terminal.api, job)}/attempts")
    from broker.app.jobs import details, jobs

    broker = terminal.broker()
    return details.attempts(broker, jobs.find_single(broker, job))


CANCEL_EXAMPLES = examples(
    "gpubroker cancel bert",
    "gpubroker cancel bert eval-3 --json",
    "gpubroker cancel --all",
    "gpubroker cancel --state queued --yes",
)


@app.command(epilog=_of_group(CANCEL_EXAMPLES))
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
    from broker.app.results.jobs import JobList

    terminal = Terminal.of(context)
    if bool(job) + every + (state is not None) != 1:
        raise InvalidInput("expected jobs, --all or --state", hint="gpubroker cancel JOB; gpubroker cancel --all")
    names = job or _my_open_jobs(terminal, state)
    if not job and names and not _agreed(terminal, names, yes=yes):
        return
    stopped = _cancelled(terminal, names)
    found = JobList(as_of=terminal.now(), time_scale=1.0, jobs=stopped, unreadable=[])
    lines = [_cancellation(each) for each in stopped] or ["No open job of yours matches; nothing to cancel."]
    terminal.result(stopped[0] if job and len(job) == 1 else found, lambda: lines)


def _my_open_jobs(terminal: Terminal, state: str | None) -> list[str]:
    from broker.core.events.outcomes import JobState

    states = [each for each in JobState if not each.final and state in (None, each.value)]
    if not states:
        known = [each.value for each in JobState if not each.final]
        raise InvalidInput(f"expected {', '.join(known)}; got {state!r}", where="--state")
    mine: JobCriteria = {"states": states, "users": [_me(terminal)], "teams": [], "array": None, "limit": 10_000}
    return [each.id for each in _listed(terminal, mine).jobs if not each.cancel_requested]


def _agreed(terminal: Terminal, names: list[str], *, yes: bool) -> bool:
    """Whether these jobs may be cancelled. Raises `InvalidInput` if there is no terminal to ask on."""
    if yes:
        return True
    if not terminal.asks:
        raise InvalidInput("no terminal for the confirmation", hint="add --yes to cancel without confirmation")
    terminal.say(*names)
    if typer.confirm(f"Cancel these {len(names)} jobs?" if len(names) > 1 else "Cancel this job?", err=True):
        return True
    terminal.say("Nothing was cancelled.")
    return False


def _cancellation(job: JobDetails) -> str:
    if job.state.final:
        return f"{job.id} has already ended ({job.state.value}); nothing to cancel"
    return f"{job.id} is being stopped; see `gpubroker jobs show {job.id}`"


def _cancelled(terminal: Terminal, names: list[str]) -> list[JobDetails]:
    """The jobs, each asked to stop. All names are looked up before the first is."""
    if terminal.through_server:
        from broker.app.results.jobs import JobDetails
        from broker.remote.sending import job_id

        ids = dict.fromkeys(job_id(terminal.api, name) for name in names)
        return [terminal.api.request(JobDetails, f"/jobs/{id}/cancel") for id in ids]
    from broker.app.jobs import details, jobs
    from broker.app.service import background

    broker = terminal.broker()
    views = {view.id: view for view in (jobs.find(broker, name) for name in names)}
    stopped = [jobs.cancel(broker, view, by=terminal.actor) for view in views.values()]
    background.revive(broker)
    return [details.details(broker, view) for view in stopped]


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
    """Raise a job's limit of cost or billed time; a paused job resumes.

    The policies judge the extension. Exits with 6 if it needs approval first; meanwhile a running job continues within
    its current limits.
    """
    from broker.cli.jobs import job_view
    from broker.cli.jobs.submit import tell_waiting

    terminal = Terminal.of(context)
    after = _extended(terminal, job, max_cost, max_duration)
    if as_json:
        terminal.answer(after)
    elif after.asked is not None:
        tell_waiting(terminal, after)
    else:
        terminal.show(f"{after.id} extended; state: {after.state.value.replace('_', ' ')}")
        terminal.show(*(f"Held now: {line}." for line in job_view.shares_of(after.budget_shares)))
    if after.asked is not None:
        raise typer.Exit(6)


def _extended(terminal: Terminal, job: str, max_cost: str | None, max_duration: str | None) -> JobDetails:
    from broker.app.jobs.nearest import JobLimits

    cost = None if max_cost is None else filters.price("--max-cost", max_cost)
    duration = None if max_duration is None else filters.time_span("--max-duration", max_duration)
    if terminal.through_server:
        from broker.app.results.jobs import JobDetails
        from broker.remote.sending import job_id

        limits = {"max_cost": max_cost, "max_duration": max_duration}
        return terminal.api.request(JobDetails, f"/jobs/{job_id(terminal.api, job)}/extend", limits)
    from broker.app.jobs import details, jobs
    from broker.app.jobs.extension import extend
    from broker.app.service import background
    from broker.cli.jobs.submit import tell_approvers

    broker = terminal.broker()
    after = extend(broker, jobs.find(broker, job), JobLimits(cost, duration), by=terminal.actor)
    background.revive(broker)
    tell_approvers(terminal, broker, after)
    return details.details(broker, after)


app.command(epilog=resume.RESUME_EXAMPLES)(resume.resume)
app.command(epilog=kept_files.FILES_EXAMPLES)(kept_files.files)
app.command(epilog=kept_files.GET_EXAMPLES)(kept_files.get)
app.command(epilog=kept_files.DIFF_EXAMPLES)(kept_files.diff)
app.command(epilog=kept_files.PRUNE_EXAMPLES)(kept_files.prune)
