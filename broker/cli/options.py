"""Options that several commands share, and the helper that writes the examples of a command's help."""

import re
from pathlib import Path
from typing import Annotated

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
