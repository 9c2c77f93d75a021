"""The commands that act through a team server, with the names and options of those that use a store of this machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from broker.cli.terminal import NotThroughServer, Terminal

if TYPE_CHECKING:
    from broker.remote.team_api import TeamApi


def through(context: typer.Context) -> tuple[Terminal, TeamApi]:
    """The terminal and the server that the user is logged in to."""
    terminal = Terminal.of(context)
    assert terminal.server is not None
    return terminal, terminal.server


def api_of(context: typer.Context) -> TeamApi:
    """The server that the user is logged in to."""
    return through(context)[1]


def group_of(local: str) -> type[TyperGroup]:
    """The class of a group with some of the commands of a local group (``module:attribute``): for the others, the error
    says that the server does not offer them."""

    class Offered(TyperGroup):
        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            found = super().get_command(ctx, cmd_name)
            if found is None and cmd_name in _names(local):
                raise NotThroughServer(f"{self.name} {cmd_name}")
            return found

    return Offered


def _names(local: str) -> set[str]:
    module, _, attribute = local.partition(":")
    group: typer.Typer = getattr(import_module(module), attribute)
    return set(typer.main.get_group(group).commands)
