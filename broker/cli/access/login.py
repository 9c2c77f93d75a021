"""`gpubroker login`, `logout` and `whoami`: which team server commands act through, and as whom."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import BrokerError, InvalidInput
from broker.server.client.logins import SERVER, TOKEN, save_login, server_url

if TYPE_CHECKING:
    from broker.server.client.device_login import ShownCode

LOGIN_EXAMPLES = examples(
    "gpubroker login https://gpus.example.org", "gpubroker login gpus.example.org --scope read --scope purchases"
)
LOGOUT_EXAMPLES = examples("gpubroker logout")
WHOAMI_EXAMPLES = examples("gpubroker whoami", "gpubroker whoami --json")
_DEFAULT_SCOPES = ("read", "jobs", "approvals", "policies")
_SCOPES = (*_DEFAULT_SCOPES, "purchases")
_MAX_NAME_LENGTH = 60  # characters of a machine's name


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the team server, as in a browser.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What commands may do here: read, jobs, approvals, policies, purchases. Repeatable. "
            "Default: all but purchases (quotes included), so that a stolen login cannot buy."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Log in to a team server: commands about jobs, money, prices, policies and capacity then act through it, as you.

    Prints a code; enter it at the server's page, where you sign in. The token is saved in a file that only you can
    read, and is valid for 30 days. For a service account, set GPUBROKER_SERVER and GPUBROKER_TOKEN instead.
    """
    from broker.server.client.device_login import log_in

    terminal = Terminal.of(context)
    if terminal.environment.get(TOKEN):
        raise InvalidInput(f"{TOKEN} is set and takes precedence over a login", hint=f"unset {SERVER} and {TOKEN}")
    scopes = scope or list(_DEFAULT_SCOPES)
    for name in scopes:
        if name not in _SCOPES:
            raise InvalidInput(f"unknown scope {name!r}", where="--scope", hint=f"known: {', '.join(_SCOPES)}")

    def show(code: ShownCode) -> None:
        terminal.say(f"Open  {code.page_with_code}", f"or enter the code  {code.code}  at {code.page}")
        terminal.say(f"Waiting for up to {code.seconds // 60} minutes; Ctrl-C ends it.")

    machine = platform.node()[:_MAX_NAME_LENGTH] or "unknown machine"
    new_login = log_in(server_url(url), scopes, machine, show, time.sleep)
    save_login(new_login)
    _show_identity(terminal, "Logged in: ", as_json=as_json)


def logout(context: typer.Context, as_json: AsJson = False) -> None:
    """Log out: the token is revoked at the server and deleted here.

    Commands use the store of this machine again.
    """
    from broker.app.access.documents import LoggedOut
    from broker.server.client import device_login, logins

    terminal = Terminal.of(context)
    for name in (logins.SERVER, logins.TOKEN):
        if name in terminal.environment:
            message = f"you are logged in through the variable {name}, which `logout` cannot delete"
            raise InvalidInput(message, hint=f"unset {logins.SERVER} and {logins.TOKEN}")
    is_revoked = False
    try:
        current_login = logins.current_login(terminal.environment)
        message = f"Logged out of {current_login.url}." if current_login else "Not logged in."
    except InvalidInput:
        current_login, message = None, "Deleted a login that could not be read; its token stays valid until it expires."
    logins.delete_login(terminal.environment)
    if current_login is not None:
        try:
            device_login.revoke_login(current_login)
            is_revoked = True
        except BrokerError as error:
            terminal.say(f"warning: the token could not be revoked and stays valid until it expires: {error}")
    terminal.result(
        lambda: LoggedOut(server=current_login.url if current_login else None, revoked=is_revoked), lambda: [message]
    )


def whoami(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the person that commands act as, the server, and the permissions there."""
    terminal = Terminal.of(context)
    if terminal.server is not None:
        _show_identity(terminal, "", as_json=as_json)
        return
    if as_json:
        from broker.app.access.documents import LocalIdentity

        roles = sorted(terminal.actor.roles)
        terminal.answer(LocalIdentity(name=terminal.actor.identity, roles=roles))
    else:
        terminal.show(f"{terminal.actor.identity}, the user of this process; no team server (`gpubroker login URL`)")


def _show_identity(terminal: Terminal, prefix: str, *, as_json: bool) -> None:
    from broker.app.use_cases.people import me

    server = terminal.server
    if server is None:
        raise InvalidInput("the login is disabled", hint="unset GPUBROKER_SERVER")
    identity = server.run(me)
    if as_json:
        terminal.answer(identity)
        return
    person = identity.person
    teams = [f"{role.replace('_', ' ')} of {team}" for team, role in sorted(person.teams.items())]
    roles = ", ".join([*person.roles, *teams]) or "no role yet"
    terminal.show(f"{prefix}{person.name} at {server.url}: {roles} (this login: {', '.join(identity.scopes)})")
