"""`gpubroker jobs`: list, follow and control submitted jobs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.jobs import entering, kept_files, prune, resume
from broker.cli.jobs.job_output import no_output_yet, print_output
from broker.cli.options import AsJson, JobReference, MaxCost, MaxDuration, OneAttempt, OneNode, examples
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError, InvalidInput

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.core.events.views import JobView

app = typer.Typer(no_args_is_help=True, help="List, follow and control submitted jobs.")


@app.command(
    "list",
    epilog=examples(
        "gpubroker jobs list",
        "gpubroker jobs list --state running --state paused_budget --json",
        "gpubroker jobs list --array sweep --state failed",
    ),
)
def list_jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", autocompletion=completion.states, help="Only jobs in this state. Repeatable."),
    ] = None,
    team: Annotated[str | None, typer.Option("--team", help="Only jobs of this team.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only my jobs.")] = False,
    array: Annotated[
        str | None,
        typer.Option(
            "--array",
            metavar="JOB",
            autocompletion=completion.jobs,
            help="The tasks of this array instead, in order of start.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: state, machine, cost so far. An array is one row."""
    from broker.app.jobs import details, jobs
    from broker.app.jobs.bills import costs_of
    from broker.cli.jobs import job_view
    from broker.core.errors import UnknownName
    from broker.core.events.outcomes import JobState

    known = {one.value: one for one in JobState}
    wanted = [text.replace("-", "_") for text in state or []]
    for name in wanted:
        if name not in known:
            raise UnknownName("state", name, known)
    if array is not None and (mine or team):
        raise InvalidInput("the tasks of an array have one owner and one team", hint="remove --mine and --team")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    of_array = None if array is None else jobs.find_array(broker, array).id
    states, user = [known[name] for name in wanted], terminal.actor.identity if mine else None
    if as_json:
        terminal.answer(details.listing(broker, states=states, user=user, team=team, limit=limit, array=of_array))
        return
    found = jobs.search(broker, states=states, user=user, team=team, limit=limit, array=of_array)
    now = broker.clock.now()
    billed = list(zip(found.views, costs_of(broker, found.views), strict=True))
    for one in found.unreadable:
        terminal.say(f"not shown: {one} ({one.hint})")
    if billed:
        terminal.show(*job_view.job_table(terminal.out, billed, now), *job_view.about_time(broker.clock))
    elif not found.unreadable:
        terminal.show(
            "no matching jobs"
            if wanted or team or mine or array
            else "no jobs yet; submit one with `gpubroker submit JOB.yaml`"
        )


@app.command(epilog=examples("gpubroker jobs queue", "gpubroker jobs queue --json"))
def queue(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the waiting jobs in order, with the expected placement, start and cost of each.

    All waiting jobs are placed together: by priority, then deadline, then in turns between teams. A multi-node job gets
    all its machines at once. Recorded capacity (`gpubroker capacity add`) that no engine reaches is not used; the start
    and cost that it would bring are shown.
    """
    from broker.app.jobs.queue import explained
    from broker.app.results.queue import QueueResult
    from broker.cli.jobs import queue_view

    terminal = Terminal.of(context)
    found = explained(terminal.broker())
    terminal.result(lambda: QueueResult.of(found), lambda: queue_view.table(terminal.out, found))


@app.command(
    epilog=examples(
        "gpubroker jobs show bert",
        "gpubroker jobs show bert --wait",
        "gpubroker jobs show bert --files",
        "gpubroker jobs show bert --json",
    )
)
def show(
    context: typer.Context,
    job: JobReference,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Follow the job to its end; exit code 7 if it failed or was cancelled.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Show the files that the job was submitted with instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: state, cost and events."""
    from broker.app.jobs import details, jobs
    from broker.app.jobs.bills import bill_of
    from broker.app.jobs.keeping import kept_until
    from broker.app.jobs.past_events import story
    from broker.app.service import background
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    if files:
        _show_files(terminal, broker, view)
        return
    followed = wait and not view.closed
    if followed:
        from broker.cli.jobs.follow import follow

        last = follow(terminal, broker, view.id)
        if last is None:
            raise typer.Exit(130)
        view = last
    bill, progress, now = bill_of(broker, view), jobs.progress(broker, view), broker.clock.now()
    if as_json:
        terminal.answer(details.history(broker, view))
    elif followed:
        terminal.show(*job_view.ending(view, bill))
    else:
        watched = background.running(broker)
        told = story(broker, view)
        terminal.show(*job_view.story(view, bill, progress, told.events, now, watched=watched))
        if told.missing:
            terminal.say(told.missing)
        terminal.show(*job_view.failed_tasks(view, jobs.failed_tasks(broker, view)))
        if view.ended_at is not None:
            with suppress(BrokerError):  # shows the job even if the policy cannot be read
                terminal.show(*job_view.kept(kept_until(view, broker.policy().defaults), now))
        terminal.show(*job_view.about_time(broker.clock))
    if wait:
        from broker.cli.jobs.follow import exit_code

        if code := exit_code(view):
            raise typer.Exit(code)


def _show_files(terminal: Terminal, broker: Broker, view: JobView) -> None:
    from broker.app.jobs.job_sources import sources
    from broker.cli.jobs import kept_files_view

    found = sources(broker, view)
    terminal.result(found, lambda: kept_files_view.sources(terminal.out, found))


@app.command(
    epilog=examples(
        "gpubroker jobs logs bert",
        "gpubroker jobs logs bert --follow",
        "gpubroker jobs logs bert --attempt 2 --tail 100",
        "gpubroker jobs logs bert --node 1",
    )
)
def logs(
    context: typer.Context,
    job: JobReference,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")] = False,
    attempt: OneAttempt = None,
    node: OneNode = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, help="Only the last N lines.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the output of the job's command, attempt by attempt."""
    from broker.app.jobs import jobs

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    if attempt is not None and attempt > view.attempt_count:
        have = f"the last one is {view.attempt_count}" if view.attempts else "it has not been launched yet"
        raise InvalidInput(f"{view.id} has no attempt {attempt}; {have}")
    if follow:
        if as_json:
            raise InvalidInput("--follow and --json cannot be combined")
        if node is not None:
            raise InvalidInput("--follow prints the output of all nodes, each line with its node", hint="remove --node")
        from broker.cli.jobs.follow_logs import follow_logs

        follow_logs(terminal, broker, view, attempt, tail)
        return
    numbers = [attempt] if attempt else [one.number for one in view.attempts]
    printed: Iterable[tuple[int, str]] = ((n, text) for n in numbers for text in jobs.logs(broker, view, n, node))
    if tail is not None:
        printed = deque(printed, maxlen=tail)  # keeps only these in memory
    if as_json:
        from broker.app.results.jobs import JobLogs, LoggedLine

        terminal.answer(JobLogs(id=view.id, lines=[LoggedLine(attempt=n, line=text) for n, text in printed]))
        return
    nothing = True
    for number, group in groupby(printed, lambda one: one[0]):
        if len(numbers) > 1:
            terminal.say(f"--- attempt {number}")
        print_output(sys.stdout, (text for _, text in group))
        nothing = False
    if nothing:
        from broker.cli.jobs.job_view import state_text

        terminal.say(no_output_yet(view.id, state_text(view).plain, ended=view.state.final))


@app.command(epilog=examples("gpubroker jobs attempts bert", "gpubroker jobs attempts bert --json"))
def attempts(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """List a job's attempts: location, duration, steps, and why each ended."""
    from broker.app.jobs import details, jobs
    from broker.cli.jobs import job_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view, now = jobs.find_single(broker, job), broker.clock.now()
    found = jobs.every_attempt(broker, view)
    terminal.result(
        lambda: details.attempts(broker, view), lambda: job_view.attempt_table(terminal.out, view, found, now)
    )


@app.command(epilog=examples("gpubroker jobs cancel bert", "gpubroker jobs cancel bert --json"))
def cancel(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """Stop a job permanently, after a last checkpoint. Held money that is not spent is released."""
    from broker.app.jobs import details, jobs
    from broker.app.service import background

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    over = view.state.final
    after = jobs.cancel(broker, view, by=terminal.actor)
    background.revive(broker)
    if as_json:
        terminal.answer(details.details(broker, after))
    elif over:
        terminal.show(f"{after.id} has already ended ({after.state.value}); nothing to cancel")
    else:
        terminal.show(f"{after.id} is being stopped; see `gpubroker jobs show {after.id}`")


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
    from broker.app.jobs import details, jobs
    from broker.app.jobs.bills import bill_of
    from broker.app.jobs.extension import extend
    from broker.app.jobs.nearest import JobLimits
    from broker.app.results.money import shares_of
    from broker.app.service import background
    from broker.cli.jobs import held_view
    from broker.cli.jobs.submit import approval_needed, tell_approvers

    terminal = Terminal.of(context)
    cost = None if max_cost is None else filters.price("--max-cost", max_cost)
    duration = None if max_duration is None else filters.time_span("--max-duration", max_duration)
    broker = terminal.broker()
    after = extend(broker, jobs.find(broker, job), JobLimits(cost, duration), by=terminal.actor)
    background.revive(broker)
    tell_approvers(terminal, broker, after)
    if as_json:
        terminal.answer(details.details(broker, after))
    elif after.asked is not None:
        terminal.refuse(approval_needed(details.details(broker, after)))
    else:
        terminal.show(f"{after.id} extended; state: {after.state.value.replace('_', ' ')}")
        terminal.show(*(f"Held now: {line}." for line in held_view.shares_of(shares_of(bill_of(broker, after).shares))))
    if after.asked is not None:
        raise typer.Exit(6)


app.command(epilog=resume.RESUME_EXAMPLES)(resume.resume)
app.command(epilog=resume.RETRY_EXAMPLES)(resume.retry)
app.command(epilog=entering.ATTACH_EXAMPLES)(entering.attach)
app.command(epilog=kept_files.FILES_EXAMPLES)(kept_files.files)
app.command(epilog=kept_files.GET_EXAMPLES)(kept_files.get)
app.command(epilog=kept_files.CHECKPOINTS_EXAMPLES)(kept_files.checkpoints)
app.command(epilog=kept_files.DIFF_EXAMPLES)(kept_files.diff)
app.command(epilog=prune.EXAMPLES)(prune.prune)
