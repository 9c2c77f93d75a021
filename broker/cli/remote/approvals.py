"""`gpubroker approvals` through a team server."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, JobReference, Reason, examples
from broker.cli.remote import group_of, through

app = typer.Typer(
    cls=group_of("broker.cli.jobs.approvals:app"),
    no_args_is_help=True,
    help="Approval requests of your teams: list, grant or refuse them.",
)


@app.command("list", epilog=examples("gpubroker approvals list", "gpubroker approvals list --mine"))
def list_(
    context: typer.Context,
    all_of_them: Annotated[bool, typer.Option("--all", "-a", help="Also decided requests.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only requests that I may decide.")] = False,
    as_json: AsJson = False,
) -> None:
    """List approval requests with requester, amount, approvers and reason."""
    from broker.cli.remote import view

    terminal, api = through(context)
    found = api.get("/approvals", decided=True if all_of_them else None)
    if mine:
        found["requests"] = [one for one in found["requests"] if one["mine"]]
    terminal.result(found, lambda: view.requests(terminal.out, found))


@app.command(epilog=examples("gpubroker approvals grant bert --reason 'agreed in the stand-up'"))
def grant(context: typer.Context, job: JobReference, reason: Reason = "", as_json: AsJson = False) -> None:
    """Approve the request of a waiting job. Nobody approves their own."""
    _decided(context, job, "grant", reason, as_json=as_json)


@app.command(epilog=examples("gpubroker approvals refuse bert --reason 'too expensive this quarter'"))
def refuse(context: typer.Context, job: JobReference, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse the request of a job; the money held for it is released."""
    _decided(context, job, "refuse", reason, as_json=as_json)


@app.command(epilog=examples("gpubroker approvals revoke 3"))
def revoke(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in `gpubroker approvals list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a standing grant of yours. Jobs launched under it continue."""
    terminal, api = through(context)
    after = api.change(f"/approvals/standing/{number}/revoke")
    terminal.result(after, lambda: [f"Revoked standing grant {after['number']}."])


def _decided(context: typer.Context, job: str, decision: str, reason: str, *, as_json: bool) -> None:
    from broker.remote.sending import job_id

    terminal, api = through(context)
    after = api.change(f"/approvals/{job_id(api, job)}/{decision}", {"reason": reason})
    if as_json:
        terminal.answer(after)
    elif after["asked"]:
        terminal.show(f"{after['id']}: recorded; still waiting for {', '.join(after['asked']['approvers'])}")
    else:
        terminal.show(f"{after['id']}: {after['state'].replace('_', ' ')}")
