"""Options that several commands share, and the helper that writes the examples of a command's help."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from broker.agent.names import is_one_line
from broker.cli import completion
from broker.core.values.provider_names import provider_name

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Job file or SkyPilot task file.")]
JobReference = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        autocompletion=completion.jobs,
        help="Job ID, unique ID prefix, or name (the open job of that name, else the newest).",
    ),
]
PolicyFiles = Annotated[
    list[Path], typer.Argument(metavar="FILES...", help="Policy files, or folders of policy files (*.yaml).")
]

OnlyProviders = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "-p",
        autocompletion=completion.providers,
        help="Poll only this provider. Repeatable. Default: all except the sandbox.",
    ),
]
NamedProviders = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "-p",
        metavar="NAME",
        autocompletion=completion.providers,
        parser=provider_name,
        help="Repeatable.",
    ),
]
MONTH_HELP = "2026-11, month or last-month."
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="Of months, such as Europe/Berlin. Default: the policy's."),
]
PERIOD_HELP = "month, last-month, quarter, last-quarter or 2026-11."
NamedPeriod = Annotated[str, typer.Option("--period", metavar="NAME", help=PERIOD_HELP)]
OnlyTeam = Annotated[str | None, typer.Option("--team", metavar="TEAM", help="Only this team.")]
OneAttempt = Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Only this attempt.")]
OneNode = Annotated[int | None, typer.Option("--node", min=0, help="Only this node; 0 is the first.")]
MaxCost = Annotated[str | None, typer.Option("--max-cost", metavar="USD", help="New total cost limit, such as $900.")]
MaxDuration = Annotated[
    str | None, typer.Option("--max-duration", metavar="TIME", help="New total limit of machine time, such as 72h.")
]

WhatIfPolicies = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy", metavar="FILES", help="What-if: judge by these files instead of the active policy. Repeatable."
    ),
]
OnDemandPrice = Annotated[
    str | None, typer.Option("--on-demand-price", metavar="USD", help="Per GPU-hour, instead of the market's.")
]
SpotPrice = Annotated[
    str | None, typer.Option("--spot-price", metavar="USD", help="Per GPU-hour, instead of the market's.")
]


_MAX_EXAMPLE_WIDTH = 75  # with the margins of the help, and what continues the line: 80


def check_one_line(text: str) -> str:
    """Check text that a user gives for the record. The broker prints it next to its own lines, so it must not contain
    line breaks or control characters. Raises `typer.BadParameter`."""
    if not is_one_line(text):
        raise typer.BadParameter("expected one line without line breaks or control characters")
    return text


Reason = Annotated[
    str, typer.Option("--reason", "-m", metavar="WHY", callback=check_one_line, help="Reason, for the record.")
]


def examples(*lines: str) -> str:
    """The examples at the end of a command's help. Each line is a complete command; a test parses all of them."""
    return "\n".join(["[bold]Examples[/bold]", *(_fold(line).replace("[", r"\[") for line in lines)])


def _fold(line: str) -> str:
    """A command that is too long for a terminal of 80 columns is continued, before an option, as a shell reads it."""
    start, *options = re.split(r" (?=--)", line)
    rows = [start]
    for option in options:
        if len(rows[-1]) + len(option) > _MAX_EXAMPLE_WIDTH:
            rows.append(f"  {option}")
        else:
            rows[-1] += f" {option}"
    return " \\\n".join(rows)


T = TypeVar("T")


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command in the form that Typer needs: each parameter whose type is a dataclass is replaced by the fields of
    that dataclass, in their order, also of nested dataclasses. All names must differ."""
    types = get_type_hints(command, include_extras=True)
    parameters = signature(command).parameters

    def flat(**values: Any) -> None:
        command(**{name: _build_argument(types[name], name, values) for name in parameters})

    flat_parameters = [
        parameter
        for name, original in parameters.items()
        for parameter in _flat_parameters(name, types[name], original.default)
    ]
    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__signature__ = Signature(flat_parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in flat_parameters}
    return flat


def _flat_parameters(name: str, kind: Any, default: Any) -> Iterator[Parameter]:
    if not is_dataclass(kind):
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        return
    types = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        field_default = Parameter.empty if field.default is MISSING else field.default
        yield from _flat_parameters(field.name, types[field.name], field_default)


def _build_argument(kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    if not is_dataclass(kind):
        return values[name]
    types = get_type_hints(kind)
    constructor: Callable[..., Any] = kind  # type: ignore[assignment]  # a dataclass is called like a function
    return constructor(**{field.name: _build_argument(types[field.name], field.name, values) for field in fields(kind)})
