"""The commands that act through a team server, with the names and options of those that use a store of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    import typer

    from broker.remote.team_api import TeamApi


def through(context: typer.Context) -> tuple[Terminal, TeamApi]:
    """The terminal and the server of the login, which the program has found."""
    terminal = Terminal.of(context)
    assert terminal.server is not None
    return terminal, terminal.server
