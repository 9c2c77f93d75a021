"""`gpubroker people`: who may use a team server, and their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.access.people import ROLES, Person, TeamRole
from broker.core.actors import Role
from broker.core.errors import UnknownName

if TYPE_CHECKING:
    from broker.app.access.documents import PeopleList, PersonResult

app = typer.Typer(no_args_is_help=True, help="People of a team server: list, invite, give roles.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The person's account name, as in events and policies.")]


@app.command("list", epilog=examples("gpubroker people list", "gpubroker people list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List people with their roles."""
    from broker.app.use_cases.people import list_people

    terminal = Terminal.of(context)
    people_list = terminal.ask(list_people)
    terminal.result(people_list, lambda: people_table(terminal.out, people_list))


@app.command(
    epilog=examples(
        "gpubroker people invite bob",
        "gpubroker people invite ann --administrator --url https://gpus.example.org",
        "gpubroker people invite bob --subject 248289761001",
    )
)
def invite(
    context: typer.Context,
    name: Name,
    administrator: Annotated[
        bool, typer.Option("--administrator", help="Add the person as an administrator; the first one has to be.")
    ] = False,
    url: Annotated[str, typer.Option("--url", help="The server's address, as people reach it.")] = "",
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="Validity of the link, at most 7d.")
    ] = "24h",
    subject: Annotated[
        str,
        typer.Option(
            "--subject", metavar="SUBJECT", help="Make no link; NAME has this `sub` at the identity provider."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Add a person, if they are not on record yet, and print a one-time link with which they sign in to the web UI.

    Whoever has the link signs in as NAME: give it to that person alone. A new link ends an earlier one. Without a role
    (`gpubroker people grant`), a person has no permissions. Only administrators, and root on this machine, change
    people and tokens; while there are no people, anybody may invite the first administrator.

    At an identity provider (setting `sign_in`) people need no invitation: they are added when they first sign in. If
    their name is taken by then, --subject says that it is theirs. For programs, see `gpubroker tokens create`.
    """
    from broker.app.access.documents import CreatedLink
    from broker.app.access.sessions import invite as use_case

    lifetime = filters.time_span_option("--expires", expires)
    terminal = Terminal.of(context)
    broker = terminal.broker()
    if subject:
        from broker.app.access.identity_provider import link

        _show_person(terminal, link(broker, name, subject, by=terminal.actor))
        return
    base = (url or broker.settings.serve.public_url or f"http://{broker.settings.serve.listen}").rstrip("/")
    new_link = use_case(broker, name, by=terminal.actor, administrator=administrator, lifetime=lifetime)
    created = CreatedLink.of(new_link, base)
    if not as_json:
        terminal.say(f"{name} signs in there, once, until {created.ends_at:%Y-%m-%d %H:%M} UTC:")
    terminal.result(created, lambda: [created.link])


@app.command(epilog=examples("gpubroker people grant bob member --team nlp", "gpubroker people grant fay finops"))
def grant(
    context: typer.Context,
    name: Name,
    role: Annotated[
        str,
        typer.Argument(
            metavar="ROLE", help="viewer, member, approver, team_administrator (--team); finops, gate, administrator."
        ),
    ],
    team: Annotated[str | None, typer.Option("--team", metavar="TEAM", help="The team of the role.")] = None,
    as_json: AsJson = False,
) -> None:
    """Grant a role in a team, where it replaces the present role, or a global role."""
    from broker.app.access.people import give_role

    terminal = Terminal.of(context)
    _show_person(terminal, give_role(terminal.broker(), name, _parse_role(role), team, by=terminal.actor))


@app.command(epilog=examples("gpubroker people withdraw bob --team nlp", "gpubroker people withdraw fay --role finops"))
def withdraw(
    context: typer.Context,
    name: Name,
    team: Annotated[str | None, typer.Option("--team", metavar="TEAM", help="The role in this team.")] = None,
    role: Annotated[str | None, typer.Option("--role", metavar="ROLE", help="finops, gate or administrator.")] = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a role, effective from the next request."""
    from broker.app.access.people import take_role

    terminal = Terminal.of(context)
    role_to_remove = None if role is None else _parse_role(role)
    if role_to_remove is not None and not isinstance(role_to_remove, Role):
        raise UnknownName("global role", role_to_remove, Role)
    _show_person(terminal, take_role(terminal.broker(), name, role_to_remove, team, by=terminal.actor))


@app.command(epilog=examples("gpubroker people disable bob", "gpubroker people disable bob --undo"))
def disable(
    context: typer.Context,
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Enable the account again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Disable an account. All its tokens stop working at once, its sessions and sign-in links for good; its jobs
    continue.

    With --undo, tokens that were not revoked and have not expired work again.
    """
    from broker.app.access import people

    terminal = Terminal.of(context)
    change = people.enable if undo else people.disable
    _show_person(terminal, change(terminal.broker(), name, by=terminal.actor))


def _parse_role(name: str) -> Role | TeamRole:
    role_name = name.replace("-", "_")
    if role_name not in ROLES:
        raise UnknownName("role", name, ROLES)
    return ROLES[role_name]


def _show_person(terminal: Terminal, person: Person) -> None:
    from broker.app.access.documents import PersonResult

    terminal.result(PersonResult.of(person), lambda: [f"{person.name}: {person.in_words}"])


_PEOPLE_COLUMNS: tuple[ValueColumn[PersonResult], ...] = (
    ValueColumn("name", lambda row: row.name),
    ValueColumn("kind", lambda row: "service" if row.service else "person", 2),
    ValueColumn("roles", lambda row: row.in_words, folds=True),
    ValueColumn("added", lambda row: formats.moment(row.added_at), 3),
)


def people_table(console: Console, people_list: PeopleList) -> list[RenderableType]:
    """One row per person."""
    empty_text = "No people are recorded. Start with `gpubroker people invite NAME --administrator`."
    return table_parts(console, _PEOPLE_COLUMNS, people_list.people) if people_list.people else [empty_text]
