"""`gpubroker people`: who may use a team server, and their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import UnknownName

if TYPE_CHECKING:
    from broker.core.access.people import Person, TeamRole
    from broker.core.actors import Role

app = typer.Typer(no_args_is_help=True, help="People and service accounts of a team server: list, add, give roles.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The person's account name, as in events and policies.")]


@app.command("list", epilog=examples("gpubroker people list", "gpubroker people list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List people with their roles."""
    from broker.app.access.people import people
    from broker.app.results.access import PeopleList
    from broker.cli.access import view

    terminal = Terminal.of(context)
    if terminal.through_server:
        found = terminal.api.fetch(PeopleList, "/people")
    else:
        found = PeopleList.of(people(terminal.broker()))
    terminal.result(found, lambda: view.people_table(terminal.out, found))


@app.command(
    epilog=examples(
        "gpubroker people add ann --administrator", "gpubroker people add bob", "gpubroker people add ci --service"
    )
)
def add(
    context: typer.Context,
    name: Name,
    administrator: Annotated[bool, typer.Option("--administrator", help="Make the person an administrator.")] = False,
    service: Annotated[
        bool, typer.Option("--service", help="A program, such as CI. It can never approve or administer.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a person or a service account. Without a role, the account has no permissions.

    The first person must be an administrator. From then on only administrators, and root on this machine, may change
    people and tokens.
    """
    from broker.app.access.people import add as use_case

    terminal = Terminal.of(context)
    person = use_case(terminal.broker(), name, by=terminal.actor, service=service, administrator=administrator)
    _told(terminal, person)


@app.command(
    epilog=examples("gpubroker people invite bob", "gpubroker people invite bob --url https://gpu.example.org")
)
def invite(
    context: typer.Context,
    name: Name,
    url: Annotated[str, typer.Option("--url", help="The server's address, as people reach it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Print a link by which a person chooses a password for the page, once, within three days.

    Also for a forgotten one. Whoever has the link chooses: give it to the person alone.
    """
    from broker.app.access.passwords import invite as use_case
    from broker.app.results.access import CreatedInvitation

    terminal = Terminal.of(context)
    broker = terminal.broker()
    base = (url or f"http://{broker.settings.serve.listen}").rstrip("/")
    made = CreatedInvitation.told(use_case(broker, name, by=terminal.actor), base)
    if not as_json:
        terminal.say(f"{name} chooses a password there, once, until {made.ends_at:%Y-%m-%d %H:%M} UTC:")
    terminal.result(made, lambda: [made.link])


@app.command(
    "second-factor",
    epilog=examples(
        "gpubroker people second-factor bob",
        "gpubroker people second-factor bob --code 492039",
        "gpubroker people second-factor bob --remove",
    ),
)
def second_factor(
    context: typer.Context,
    name: Name,
    code: Annotated[str, typer.Option("--code", metavar="CODE", help="The first code that the app shows.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Remove it, as for a lost phone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set up a person's second factor for the page: a code of an authenticator app, required in addition to the
    password.

    The first call prints the key for the app. With --code, the code that the app then shows, within an hour, the second
    factor is required from then on, and recovery codes are printed, once. Run it where `gpubroker serve` runs, with the
    same home folder.
    """
    from broker.app.access import second_factors as use_case
    from broker.app.results.access import SecondFactorChange
    from broker.core.errors import InvalidInput

    if remove and code:
        raise InvalidInput("--code sets a second factor up, and --remove removes it", hint="leave one of them out")
    terminal = Terminal.of(context)
    broker, by = terminal.broker(), terminal.actor
    if remove:
        use_case.remove(broker, name, origin=by.came_from, by=by)
        said, found = [f"{name} signs in without a second factor."], SecondFactorChange(person=name)
    elif code:
        codes = list(use_case.confirm(broker, name, code, origin=by.came_from, by=by))
        said = [f"It is asked for from now on. Each of these codes lets {name} in once without it:", *codes]
        found = SecondFactorChange(person=name, recovery_codes=codes)
    else:
        new = use_case.begin(broker, name, origin=by.came_from, by=by)
        then = f"then: gpubroker people second-factor {name} --code CODE"
        said = [f"key for the app: {new.letters}", f"as a link:       {new.uri}", then]
        found = SecondFactorChange(person=name, uri=new.uri, letters=new.letters)
    terminal.result(found, lambda: said)


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
    _told(terminal, give_role(terminal.broker(), name, _role(role), team, by=terminal.actor))


@app.command(epilog=examples("gpubroker people link bob 248289761001"))
def link(
    context: typer.Context,
    name: Name,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The `sub` that the identity provider gives them.")],
    as_json: AsJson = False,
) -> None:
    """Link an account that was added by name to an identity of the identity provider (setting `sign_in`).

    A person who signs in there for the first time is added under the name that the provider gives. If that name is
    taken, the sign-in is refused until an administrator links the identity with this command.
    """
    from broker.app.access.provider_sign_ins import link as use_case
    from broker.core.errors import InvalidInput

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if broker.settings.sign_in is None:
        raise InvalidInput("no identity provider is set", hint="set sign_in.issuer and sign_in.client_id")
    _told(terminal, use_case(broker, name, broker.settings.sign_in.issuer, subject, by=terminal.actor))


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
    from broker.core.actors import Role

    terminal = Terminal.of(context)
    held = None if role is None else _role(role)
    if held is not None and not isinstance(held, Role):
        raise UnknownName("global role", held, Role)
    _told(terminal, take_role(terminal.broker(), name, held, team, by=terminal.actor))


@app.command(epilog=examples("gpubroker people disable bob"))
def disable(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Disable an account. All its tokens stop working at once; its jobs continue."""
    from broker.app.access.people import disable as use_case

    terminal = Terminal.of(context)
    _told(terminal, use_case(terminal.broker(), name, by=terminal.actor))


@app.command(epilog=examples("gpubroker people enable bob"))
def enable(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Enable a disabled account. Tokens that were not revoked and have not expired work again."""
    from broker.app.access.people import enable as use_case

    terminal = Terminal.of(context)
    _told(terminal, use_case(terminal.broker(), name, by=terminal.actor))


def _role(name: str) -> Role | TeamRole:
    from broker.core.access.people import ROLES

    wanted = name.replace("-", "_")
    if wanted not in ROLES:
        raise UnknownName("role", name, ROLES)
    return ROLES[wanted]


def _told(terminal: Terminal, person: Person) -> None:
    from broker.app.results.access import PersonResult

    terminal.result(PersonResult.of(person), lambda: [f"{person.name}: {person.in_words}"])
