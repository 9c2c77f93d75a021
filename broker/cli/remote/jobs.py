"""`gpubroker jobs` through a team server."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.jobs import kept_files
from broker.cli.jobs.resume import RESUME_EXAMPLES, RETRY_EXAMPLES, resume, retry
from broker.cli.options import (
    AsJson,
    JobReference,
    MaxCost,
    MaxDuration,
    OneAttempt,
    OneNode,
    examples,
)
from broker.cli.remote import group_of, through
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.remote.team_api import TeamApi

app = typer.Typer(
    cls=group_of("broker.cli.jobs.jobs:app"),
    no_args_is_help=True,
    help="List, follow and control jobs of your teams, through the server.",
)
_LOOK_EVERY = 2.0  # seconds
_LINES = 5_000  # the most lines in one answer


@app.command("list", epilog=examples("gpubroker jobs list", "gpubroker jobs list --state running --json"))
def list_jobs(
    context: typer.Context,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only jobs in this state. Repeatable.")] = None,
    team: Annotated[str | None, typer.Option("--team", help="Only jobs of this team.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only my jobs.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 30,
    as_json: AsJson = False,
) -> None:
    """List jobs of your teams, newest first: state, machine, cost so far."""
    from broker.cli.remote import view

    terminal, api = through(context)
    states = [text.replace("-", "_") for text in state or []] or None
    user = api.get("/me")["person"]["name"] if mine else None
    found = list(api.pages("/jobs", "jobs", limit, state=states, team=team, user=user))
    if as_json:
        terminal.answer({"jobs": found, "unreadable": []})
    elif found:
        terminal.show(*view.jobs(terminal.out, found, datetime.now(UTC)))
    else:
        terminal.show("no matching jobs")


@app.command(epilog=examples("gpubroker jobs queue", "gpubroker jobs queue --json"))
def queue(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the waiting jobs of your teams in order."""
    from broker.cli.remote import view

    terminal, api = through(context)
    found = api.get("/queue")
    if as_json:
        terminal.answer(found)
        return
    terminal.show(*view.queue(found))


@app.command(
    epilog=examples("gpubroker jobs show bert", "gpubroker jobs show bert --wait", "gpubroker jobs show bert --json")
)
def show(
    context: typer.Context,
    job: JobReference,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the job's end; exit code 7 if it failed or was cancelled.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: state, cost and events."""
    from broker.cli.remote import view
    from broker.remote.sending import job_id

    terminal, api = through(context)
    id = job_id(api, job)
    found = follow(terminal, api, id, output=False) if wait else api.get(f"/jobs/{id}")
    terminal.result(found, lambda: view.job(found))
    if wait and (code := exit_code(found)):
        raise typer.Exit(code)


@app.command(
    epilog=examples(
        "gpubroker jobs logs bert", "gpubroker jobs logs bert --follow", "gpubroker jobs logs bert --attempt 2 -n 100"
    )
)
def logs(
    context: typer.Context,
    job: JobReference,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")] = False,
    attempt: OneAttempt = None,
    node: OneNode = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=1, max=_LINES, help="Only the last N lines (default 5,000).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the end of the output of the job's command."""
    from broker.cli.jobs.job_output import no_output_yet, print_output
    from broker.cli.remote import view
    from broker.remote.sending import job_id

    terminal, api = through(context)
    id = job_id(api, job)
    if follow_:
        if as_json:
            raise InvalidInput("--follow and --json cannot be combined")
        follow(terminal, api, id, output=True)
        return
    found = api.get(f"/jobs/{id}/logs", attempt=attempt, node=node, tail=tail or _LINES)
    if as_json:
        terminal.answer(found)
    elif found["lines"]:
        print_output(sys.stdout, (line["line"] for line in found["lines"]))
    else:
        one = api.get(f"/jobs/{id}")
        terminal.say(no_output_yet(id, view.state(one).plain, ended=one["ended_at"] is not None))


@app.command(epilog=examples("gpubroker jobs attempts bert"))
def attempts(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """List a job's attempts: location, price, and why each ended."""
    from broker.cli.remote import view
    from broker.remote.sending import job_id

    terminal, api = through(context)
    found = api.get(f"/jobs/{job_id(api, job)}/attempts")
    terminal.result(found, lambda: view.attempts(terminal.out, found["attempts"]))


@app.command(epilog=examples("gpubroker jobs cancel bert"))
def cancel(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """Stop a job permanently, after a last checkpoint. Held money that is not spent is released."""
    from broker.remote.sending import job_id

    terminal, api = through(context)
    after = api.change(f"/jobs/{job_id(api, job)}/cancel")
    if as_json:
        terminal.answer(after)
    elif after["ended_at"] is not None:
        terminal.show(f"{after['id']} has already ended ({after['state']}); nothing to cancel")
    else:
        terminal.show(f"{after['id']} is being stopped; see `gpubroker jobs show {after['id']}`")


@app.command(epilog=examples("gpubroker jobs extend bert --max-cost '$900'"))
def extend(
    context: typer.Context,
    job: JobReference,
    max_cost: MaxCost = None,
    max_duration: MaxDuration = None,
    as_json: AsJson = False,
) -> None:
    """Raise a job's limit of cost or billed time. Exits with 6 if it needs approval first."""
    from broker.remote.sending import job_id

    terminal, api = through(context)
    after = api.change(f"/jobs/{job_id(api, job)}/extend", {"max_cost": max_cost, "max_duration": max_duration})
    if as_json:
        terminal.answer(after)
    elif after["asked"]:
        terminal.say(f"{after['id']} waits for approval by {', '.join(after['asked']['approvers'])}.")
    else:
        terminal.show(f"{after['id']} extended; state: {after['state'].replace('_', ' ')}")
    if after["asked"]:
        raise typer.Exit(6)


app.command("resume", epilog=RESUME_EXAMPLES)(resume)
app.command("retry", epilog=RETRY_EXAMPLES)(retry)
app.command("files", epilog=kept_files.FILES_EXAMPLES)(kept_files.files)
app.command("get", epilog=kept_files.GET_EXAMPLES)(kept_files.get)
app.command("checkpoints", epilog=kept_files.CHECKPOINTS_EXAMPLES)(kept_files.checkpoints)


def follow(terminal: Terminal, api: TeamApi, id: str, *, output: bool) -> dict[str, Any]:
    """Print state changes, and with ``output`` the job's output, until the job is closed or needs a person to continue.
    Returns the job's last document. After Ctrl-C the job continues."""
    from broker.cli.jobs.job_output import print_output

    last, printed = "", 0
    while True:
        found = api.get(f"/jobs/{id}")
        said = f"{found['id']}: {found['state'].replace('_', ' ')}"
        if said != last:
            terminal.say(said)
            last = said
        while output and (lines := api.get(f"/jobs/{id}/logs", start=printed, tail=_LINES)["lines"]):
            print_output(sys.stdout, (line["line"] for line in lines))
            sys.stdout.flush()
            printed += len(lines)
        if found["closed"] or found["state"] in ("awaiting_approval", "paused_budget"):
            return found
        time.sleep(_LOOK_EVERY)


def exit_code(job: dict[str, Any]) -> int:
    """The exit code after following a job; the same as without a server."""
    return {"failed": 7, "cancelled": 7, "paused_budget": 3, "awaiting_approval": 6}.get(job["state"], 0)
