"""The job of `plan` and `submit`: a file, or a command after ``--``; and the options that override it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from broker.cli import completion
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.core.job.file.reading import JobOverrides
    from broker.core.job.jobs import Job

_COMMAND = "gpubroker.command"

Envs = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="K=V", help="Set a variable of the job; K alone takes its value from your shell. Repeatable."
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="NAME", help="Pass a variable of your shell to the job as a secret. Repeatable."),
]
JobName = Annotated[str | None, typer.Option("--name", help="Name of the job.")]
JobGpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        "-g",
        metavar="NAME[:COUNT]",
        autocompletion=completion.gpus,
        help="Accelerators of the machine, such as L4 or H100:8.",
    ),
]
JobFolder = Annotated[
    Path | None,
    typer.Option("--workdir", metavar="DIR", help="Folder of a command without a job file (default: the current one)."),
]


@dataclass(frozen=True)
class JobOptions:
    """Options beside a job's file, or instead of it. ``workdir``: of a command without a job file."""

    gpu: JobGpu = None
    env: Envs = None
    secret: Secrets = None
    name: JobName = None
    workdir: JobFolder = None


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TakesCommand(TyperCommand):
    """A command whose arguments after ``--`` are the job's command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def command_of(context: typer.Context) -> tuple[str, ...] | None:
    """The words after ``--``; None without it."""
    command: tuple[str, ...] | None = context.meta.get(_COMMAND)
    return command


def overrides(
    envs: Sequence[str] | None, secrets: Sequence[str] | None = None, name: str | None = None, gpu: str | None = None
) -> JobOverrides:
    """The options of a submission that override its job file. Raises `InvalidInput` for a variable without a value."""
    from broker.core.job.file.reading import JobOverrides

    return JobOverrides(dict(map(_variable, envs or ())), tuple(secrets or ()), name, gpu)


def coming_after(wanted: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """The jobs, which also come after the jobs with these names or ids. Raises `InvalidInput` for an invalid name."""
    if not names:
        return list(wanted)
    from broker.core.job.file.after import predecessor

    try:
        more = [predecessor(name) for name in names]
    except ValueError as error:
        raise InvalidInput(str(error), where="--after") from error
    return [job.model_copy(update={"after": (*job.after, *more)}) for job in wanted]


def given_jobs(context: typer.Context, files: Sequence[Path], given: JobOptions) -> list[Job]:
    """The jobs of the files, one a document, or the one of the command after ``--``. Raises `InvalidInput`."""
    from broker.app.jobs.job_input import job_of_command, read_jobs

    terminal = Terminal.of(context)
    now = datetime.now(UTC) if terminal.through_server else terminal.broker().clock.now()
    beside = overrides(given.env, given.secret, given.name, given.gpu)
    command = command_of(context)
    if command is None:
        if not files:
            raise InvalidInput("no job given", hint=f"give JOB.yaml, or a command: `{context.command_path} -- COMMAND`")
        if given.workdir is not None:
            raise InvalidInput("--workdir is for a command after `--`", hint="write `workdir:` in the job file")
        return [job for path in files for job in read_jobs(path, now, beside)]
    if files:
        raise InvalidInput(f"both a job file ({files[0]}) and a command are given", hint="give one of them")
    if not command or not command[0].strip():
        raise InvalidInput("nothing follows `--`", hint="write the job's command after it")
    return [job_of_command(command, given.workdir or Path.cwd(), now, beside)]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(
            f"expected NAME=VALUE, the name of letters, digits and '_', not starting with a digit; got {name[:40]!r}",
            where="--env",
        )
    if equals:
        return name, value
    if name not in os.environ:
        raise InvalidInput(f"{name} has no value in your shell", where="--env", hint=f"give one: `--env {name}=VALUE`")
    return name, os.environ[name]
