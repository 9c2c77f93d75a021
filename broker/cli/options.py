"""Options that many commands share, and the way examples are written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output; chatter goes elsewhere.")]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="A job file, or a SkyPilot task file.")]
JobReference = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's id, a unique beginning of it, or its name (the newest of it).")
]
PolicyFiles = Annotated[
    list[Path], typer.Argument(metavar="FILES...", help="Policy files, or folders of them (*.yaml).")
]


def one_line(text: str) -> str:
    """What a person says for the record: it is shown among the broker's own lines, and must not look like one, or steer
    a terminal."""
    if not text.isprintable():
        raise typer.BadParameter("expected one line, without line breaks and control characters")
    return text


def examples(*lines: str) -> str:
    """The end of a command's help. Each line is a command that works as it stands; a test parses them all."""
    return "\n\n".join(["[bold]Examples[/bold]", *(line.replace("[", r"\[") for line in lines)])
