"""`gpubroker jobs`: what was submitted, how it goes, what it cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import typer

from broker.cli import jobs_prune
from broker.cli.options import AsJson, JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="What was submitted: how it goes, what happened, what it cost.")


@app.command(
    "list", epilog=examples("gpubroker jobs list", "gpubroker jobs list --state running --state paused_budget --json")
)
def list_jobs(
    context: typer.Context,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only jobs in this state. Repeatable.")] = None,
    team: Annotated[str | None, typer.Option("--team", help="Only jobs of this team.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only jobs that I submitted.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The newest so many.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first, with their state, where they run and what they cost so far."""
    from broker.app import jobs
    from broker.cli import job_document, job_view
    from broker.core.errors import UnknownName
    from broker.core.outcomes import JobState

    known = {one.value: one for one in JobState}
    wanted = [text.replace("-", "_") for text in state or []]
    for name in wanted:
        if name not in known:
            raise UnknownName("state", name, known)
    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = jobs.search(
        broker, states=[known[name] for name in wanted], user=broker.user if mine else None, team=team, limit=limit
    )
    now = broker.clock.now()
    billed = [(view, jobs.bill(broker, view)) for view in found]
    if as_json:
        terminal.answer({"jobs": [job_document.document(view, bill, None, now) for view, bill in billed]})
    elif billed:
        terminal.show(*job_view.job_table(terminal.out, billed, now), *job_view.about_time(broker.clock))
    else:
        terminal.show(
            "no such jobs" if wanted or team or mine else "no jobs yet; `gpubroker submit JOB.yaml` makes one"
        )


@app.command(epilog=examples("gpubroker jobs queue", "gpubroker jobs queue --json"))
def queue(context: typer.Context, as_json: AsJson = False) -> None:
    """Who waits for a machine, in turn, and what each would get, when, and for how much.

    All of them are placed together: by priority, keeping deadlines, teams taking turns, gangs whole.
    """
    from broker.app.queue import queue as placed
    from broker.cli import queue_view

    terminal = Terminal.of(context)
    found = placed(terminal.broker())
    if as_json:
        terminal.answer(queue_view.document(found))
    else:
        terminal.show(*queue_view.table(terminal.out, found))


@app.command(
    epilog=examples("gpubroker jobs show bert", "gpubroker jobs show bert --wait", "gpubroker jobs show bert --json")
)
def show(
    context: typer.Context,
    job: JobReference,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Follow it to its end; exits with 7 when it failed or was cancelled.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One job: where it stands, what it cost, and all that happened, in words."""
    from broker.app import background, jobs
    from broker.cli import job_document, job_view
    from broker.cli.follow import exit_code, follow

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    followed = wait and not view.closed
    if followed:
        last = follow(terminal, broker, view.id)
        if last is None:
            raise typer.Exit(130)
        view = last
    bill, progress, now = jobs.bill(broker, view), jobs.progress(broker, view), broker.clock.now()
    happened = [event for event in jobs.events(broker, view) if event.seq <= view.seq]  # the rest came after the view
    if as_json:
        events = [{"seq": e.seq, "at": e.at, "attempt": e.attempt, **_body(e.body)} for e in happened]
        terminal.answer(job_document.document(view, bill, progress, now) | {"events": events})
    elif followed:
        terminal.show(*job_view.ending(view, bill))
    else:
        watched = background.running(broker)
        terminal.show(*job_view.story(view, bill, progress, happened, now, watched=watched))
        terminal.show(*job_view.about_time(broker.clock))
    if wait and (code := exit_code(view)):
        raise typer.Exit(code)


@app.command(
    epilog=examples(
        "gpubroker jobs logs bert",
        "gpubroker jobs logs bert --follow",
        "gpubroker jobs logs bert --attempt 2 --tail 100",
    )
)
def logs(
    context: typer.Context,
    job: JobReference,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what it prints, until the job has ended.")
    ] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Of this attempt only.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, help="The last so many lines only.")] = None,
    as_json: AsJson = False,
) -> None:
    """What the job's command has printed, attempt by attempt."""
    from broker.app import jobs

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    if attempt is not None and attempt > len(view.attempts):
        have = f"it has had {len(view.attempts)}" if view.attempts else "it has not been launched yet"
        raise InvalidInput(f"{view.id} has no attempt {attempt}; {have}")
    if follow:
        if as_json:
            raise InvalidInput("--follow prints as it comes, and --json at the end: leave one of them out")
        from broker.cli.follow_logs import follow_logs

        follow_logs(terminal, broker, view, attempt, tail)
        return
    numbers = [attempt] if attempt else [one.number for one in view.attempts]
    printed: Iterable[tuple[int, str]] = ((n, text) for n in numbers for text in jobs.logs(broker, view, n))
    if tail is not None:
        printed = deque(printed, maxlen=tail)  # never more than these in memory
    if as_json:
        terminal.answer({"id": view.id, "lines": [{"attempt": n, "line": text} for n, text in printed]})
        return
    for number, group in groupby(printed, lambda one: one[0]):
        if len(numbers) > 1:
            terminal.say(f"--- attempt {number}")
        for _, text in group:
            print(text)  # noqa: T201  # the program's own words, as they are


@app.command(epilog=examples("gpubroker jobs attempts bert", "gpubroker jobs attempts bert --json"))
def attempts(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """Every attempt of a job: where it ran, how long, how far it came and why it ended."""
    from broker.app import jobs
    from broker.cli import job_document, job_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view, now = jobs.find(broker, job), broker.clock.now()
    if as_json:
        terminal.answer({"id": view.id, "attempts": [job_document.attempt_json(one, now) for one in view.attempts]})
    else:
        terminal.show(*job_view.attempt_table(terminal.out, view, now))


@app.command(epilog=examples("gpubroker jobs cancel bert", "gpubroker jobs cancel bert --json"))
def cancel(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """Stop a job for good, checkpoint first. What is not spent is released."""
    from broker.app import background, jobs
    from broker.cli import job_document

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    over = view.state.final
    after = jobs.cancel(broker, view)
    background.revive(broker)
    if as_json:
        terminal.answer(job_document.document(after, jobs.bill(broker, after), None, broker.clock.now()))
    elif over:
        terminal.show(f"{after.id} is over already ({after.state.value}); nothing to cancel")
    else:
        terminal.show(f"{after.id} is being stopped; see `gpubroker jobs show {after.id}`")


@app.command(
    epilog=examples("gpubroker jobs extend bert --max-cost '$900'", "gpubroker jobs extend bert --max-duration 72h")
)
def extend(
    context: typer.Context,
    job: JobReference,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", metavar="USD", help="The new limit in all, such as $900.")
    ] = None,
    max_duration: Annotated[
        str | None, typer.Option("--max-duration", metavar="TIME", help="The new billed time in all, such as 72h.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a job more money or more time; a paused one goes on. The policies judge it; exits with 6 when somebody must
    approve it first (a running job goes on with what it has meanwhile)."""
    from broker.app import background, jobs
    from broker.app.jobs import More
    from broker.cli import job_document
    from broker.cli.submit import approval_needed, tell_approvers
    from broker.core.units import parse_duration, parse_money

    terminal = Terminal.of(context)
    option = "--max-cost"
    try:
        cost = None if max_cost is None else parse_money(max_cost)
        option = "--max-duration"
        duration = None if max_duration is None else parse_duration(max_duration)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error
    broker = terminal.broker()
    after = jobs.extend(broker, jobs.find(broker, job), More(cost, duration))
    background.revive(broker)
    tell_approvers(terminal, broker, after)
    if as_json:
        terminal.answer(job_document.document(after, jobs.bill(broker, after), None, broker.clock.now()))
    elif after.asked is not None:
        terminal.refuse(approval_needed(after))
    else:
        terminal.show(f"{after.id} extended; it is {after.state.value.replace('_', ' ')}")
    if after.asked is not None:
        raise typer.Exit(6)


app.command(epilog=jobs_prune.EXAMPLES)(jobs_prune.prune)


def _body(body: object) -> dict[str, object]:
    from pydantic import BaseModel

    assert isinstance(body, BaseModel)
    return body.model_dump(mode="json")
