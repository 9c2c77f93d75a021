"""Command groups that build each command on first use. Building a command with thirty options takes 10 ms; running
another command should not pay for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Escaped(Exception):
    """Ctrl-C or a broken pipe during a command (its cause). Typer itself would exit without a message."""


class _Commands(MutableMapping[str, Any]):
    """Commands by name, each imported and built on first access."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._built: dict[str, Any] = dict.fromkeys(places)

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            self._built[name] = _build(name, self._places[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)


def _build(name: str, place: str) -> Any:
    package, _, attribute = place.partition(":")
    module = import_module(package)
    written = getattr(module, attribute)
    if isinstance(written, typer.Typer):
        group = typer.main.get_group(written)
        group.name = name
        return _reflowed(group)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    prefix = attribute.rstrip("_").upper()
    made = getattr(module, f"{prefix}_CLASS", TyperCommand)
    shown = getattr(module, f"{prefix}_EXAMPLES", None) or module.EXAMPLES
    alone.command(name, cls=made, epilog=shown, hidden=attribute in getattr(module, "HIDDEN", ()))(written)
    return _reflowed(typer.main.get_command(alone))


def _reflowed(command: Any) -> Any:
    """The command with each paragraph of its help on one line: Typer keeps the line breaks of docstrings, which are set
    for the width of the source code."""
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    commands = getattr(command, "commands", {})
    if isinstance(commands, dict):  # the others are reflowed when they are built
        for each in commands.values():
            _reflowed(each)
    return command


def lazy_group(places: Mapping[str, str]) -> type[TyperGroup]:
    """The ``cls`` of a `typer.Typer` with these commands. ``places`` maps each name to ``module:attribute``; its order
    is the order of the help.

    The attribute is the `typer.Typer` of a group or the function of a command. A module with a command function also
    defines ``EXAMPLES`` (``PLAN_EXAMPLES`` for the function ``plan``, if it has several), ``HIDDEN`` with the functions
    that the help should not list, and ``PLAN_CLASS`` to parse its arguments differently.
    """

    class Lazy(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any] | None = None, **settings: Any) -> None:
            super().__init__(commands={}, **settings)
            self.commands = _Commands(places)
            self.commands.update(commands or {})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except (KeyboardInterrupt, BrokenPipeError) as error:
                raise Escaped from error

    return Lazy
