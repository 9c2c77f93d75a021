"""Groups of commands that are built one by one, when somebody asks: a command with thirty options costs 10 ms to build,
and nobody who runs another one should pay for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


class _Commands(MutableMapping[str, Any]):
    """Commands by name. Each comes from ``package.name``: its function of that name, and ``EXAMPLES``."""

    def __init__(self, package: str, names: tuple[str, ...]) -> None:
        self._package = package
        self._built: dict[str, Any] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            function = name.replace("-", "_")
            module = import_module(f"{self._package}.{function}")
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
            alone.command(name, epilog=module.EXAMPLES)(getattr(module, function))
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)


def lazy_group(package: str, names: tuple[str, ...]) -> type[TyperGroup]:
    """The ``cls`` of a `typer.Typer` whose commands are the modules ``names`` (with dashes) of ``package``, in that
    order."""

    class Lazy(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any] | None = None, **settings: Any) -> None:
            super().__init__(commands={}, **settings)
            self.commands = _Commands(package, names)
            self.commands.update(commands or {})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

    return Lazy
