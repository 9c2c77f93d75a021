"""Groups of commands that are built one by one, when somebody asks: a command with thirty options costs 10 ms to build,
and nobody who runs another one should pay for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


class _Commands(MutableMapping[str, Any]):
    """Commands by name, from where they are written."""

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
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name, epilog=module.EXAMPLES, hidden=getattr(module, "HIDDEN", False))(written)
    return typer.main.get_command(alone)


def lazy_group(places: Mapping[str, str]) -> type[TyperGroup]:
    """The ``cls`` of a `typer.Typer` whose commands stand in ``places``: by name, in that order, ``module:attribute``.

    The attribute is the `typer.Typer` of a group, or a command's function; beside a function its module has
    ``EXAMPLES``, and ``HIDDEN`` where no help should list it.
    """

    class Lazy(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any] | None = None, **settings: Any) -> None:
            super().__init__(commands={}, **settings)
            self.commands = _Commands(places)
            self.commands.update(commands or {})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

    return Lazy
