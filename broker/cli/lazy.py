"""Command groups that build each command on first use. Building a command with thirty options takes 10 ms; running
another command should not pay for it."""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Escaped(Exception):
    """Ctrl-C or a broken pipe during a command (its cause). Typer alone would exit silently."""


class _Commands(MutableMapping[str, Any]):
    """Commands by name, each imported and built on first access."""

    def __init__(self, panels: Mapping[str, Mapping[str, str]]) -> None:
        self._places = {name: (place, panel) for panel, places in panels.items() for name, place in places.items()}
        self._built: dict[str, Any] = dict.fromkeys(self._places)

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            place, panel = self._places[name]
            self._built[name] = _build_command(name, place)
            self._built[name].rich_help_panel = panel
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)


def _build_command(name: str, target: str) -> Any:
    package, _, attribute = target.partition(":")
    module = import_module(package)
    definition = getattr(module, attribute)
    if isinstance(definition, typer.Typer):
        group = typer.main.get_group(definition)
        group.name = name
        return simplify_help(_reflow_help(group))
    single_app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    prefix = attribute.rstrip("_").upper()
    command_class = getattr(module, f"{prefix}_CLASS", TyperCommand)
    epilog = getattr(module, f"{prefix}_EXAMPLES", None) or module.EXAMPLES
    single_app.command(name, cls=command_class, epilog=epilog, hidden=attribute in getattr(module, "HIDDEN", ()))(
        definition
    )
    return simplify_help(_reflow_help(typer.main.get_command(single_app)))


def simplify_help(command: Any) -> Any:
    """The command with help that names what an option takes (``--limit LIMIT``) instead of a type of Python
    (``<int>``), which Typer would print; and with usage lines without the options of groups, which have none."""
    command.get_help_option(typer.Context(command, help_option_names=["-h", "--help"]))
    for parameter in (*command.params, command._help_option):
        parameter._get_number_range_help_str = lambda: None  # `[x>=1]`; a number out of range is told what is expected
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
            parameter._usage_display_name = partial(_usage_name, parameter)
        elif parameter.metavar is None:
            parameter.metavar = _value_name(parameter)
    if hasattr(command, "commands"):
        command.options_metavar, command.subcommand_metavar = "", "COMMAND [ARGS]..."
        if isinstance(command.commands, dict):
            for subcommand in command.commands.values():
                simplify_help(subcommand)
    return command


def _usage_name(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    if argument.nargs != 1 and "..." not in name:
        name += "..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _value_name(option: Any) -> str:
    if option.is_flag or option.param_type_name != "option":
        return ""
    kind = option.type_descriptor
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    if kind.annotation in (int, float):
        return "N"
    return str(max(option.opts, key=len)).strip("-").replace("-", "_").upper()


def _reflow_help(command: Any) -> Any:
    """The command with each paragraph of its help on one line: Typer keeps the line breaks of docstrings, which are set
    for the width of the source code."""
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    commands = getattr(command, "commands", {})
    if isinstance(commands, dict):  # the others are reflowed when they are built
        for subcommand in commands.values():
            _reflow_help(subcommand)
    return command


def lazy_group(panels: Mapping[str, Mapping[str, str]]) -> type[TyperGroup]:
    """The ``cls`` of a `typer.Typer` with these commands. ``panels`` maps the title of each panel of the help to its
    commands, and each name to ``module:attribute``, in the order of the help.

    The attribute is the `typer.Typer` of a group or the function of a command. A module with a command function also
    defines ``EXAMPLES`` (``PLAN_EXAMPLES`` for the function ``plan``, if it has several), ``HIDDEN`` with the functions
    that the help should not list, and ``PLAN_CLASS`` to parse its arguments differently.
    """

    class Lazy(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any] | None = None, **settings: Any) -> None:
            super().__init__(commands={}, **settings)
            self.commands = _Commands(panels)
            self.commands.update(commands or {})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except (KeyboardInterrupt, BrokenPipeError) as error:
                raise Escaped from error

    return Lazy
