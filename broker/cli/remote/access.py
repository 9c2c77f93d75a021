"""`gpubroker people`, `tokens` and `audit` through a team server, for its administrators. They change nothing: roles
and tokens are managed on the server itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.options import AsJson, examples
from broker.cli.remote import api_of, group_of
from broker.cli.remote.tables import DocumentColumn, listed, text, time

people = typer.Typer(
    cls=group_of("broker.cli.access.people:app"), no_args_is_help=True, help="People of the server, with their roles."
)
tokens = typer.Typer(
    cls=group_of("broker.cli.access.tokens:app"), no_args_is_help=True, help="API tokens of the server."
)
EXAMPLES = examples("gpubroker audit", "gpubroker audit --person ann --limit 200", "gpubroker audit --json")


@people.callback()
def _people() -> None:
    """People of the server, with their roles."""


@people.command("list", epilog=examples("gpubroker people list", "gpubroker people list --json"))
def list_people(context: typer.Context, as_json: AsJson = False) -> None:
    """List people with their roles."""
    api = api_of(context)
    found = api.get("/people")
    columns = (text("name"), DocumentColumn("roles", _roles, folds=True), time("disabled_at", "disabled", 1))
    listed(context, found, "people", columns, "no people")


def _roles(person: Any) -> str:
    teams = (f"{role} of {team}" for team, role in person["teams"].items())
    service = ["service account"] if person["service"] else []
    return ", ".join([*service, *person["roles"], *teams]).replace("_", " ") or "no role"


@tokens.callback()
def _tokens() -> None:
    """API tokens of the server."""


@tokens.command("list", epilog=examples("gpubroker tokens list", "gpubroker tokens list --person ann --json"))
def list_tokens(
    context: typer.Context,
    person: Annotated[str | None, typer.Option("--person", help="Only this person's tokens.")] = None,
    as_json: AsJson = False,
) -> None:
    """List tokens: whose they are, what they allow, and when each was last used. Their texts are not stored."""
    api = api_of(context)
    found = api.get("/tokens", person=person)
    columns = (
        text("id"), text("person"), text("label", rank=3), text("scopes"), time("expires_at", "expires"),
        time("revoked_at", "revoked", 1), time("used_at", "last used", 2),
    )  # fmt: skip
    listed(context, found, "tokens", columns, "no tokens")


def audit(
    context: typer.Context,
    person: Annotated[str | None, typer.Option("--person", help="Only changes by this person.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only changes of this job, person or token.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Maximum lines.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the server's audit log, newest line first: who changed what, from where, before and after."""
    api = api_of(context)
    found = api.get("/audit", person=person, subject=subject, limit=limit)
    columns = (
        time("at"), text("person"), text("action"), text("subject"), text("outcome"),
        text("before", rank=2, folds=True), text("after", rank=1, folds=True), text("origin", "from", 3),
    )  # fmt: skip
    listed(context, found, "lines", columns, "no lines")
