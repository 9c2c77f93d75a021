"""The job of `plan` and `submit`: a file, or a command after ``--``; and the options that override it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from broker.cli import completion, filters
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.core.job.file.reading import JobOverrides
    from broker.core.job.jobs import Job
    from broker.core.ports import PolicySet

_COMMAND = "gpubroker.command"

_PANEL = "The job, or changes to the job file"
Envs = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="K=V",
        help="Set an environment variable; K alone takes its value from your shell. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME",
        help="Pass a variable of your shell to the job as a secret. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        "-g",
        metavar="GPU[:N]",
        autocompletion=completion.gpus,
        help="Accelerators of the machine, such as L4 or H100:8.",
        rich_help_panel=_PANEL,
    ),
]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        autocompletion=completion.regions,
        help="Only in this region or pattern (us-*). Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        autocompletion=completion.providers,
        help="Only at this provider. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
JobFolder = Annotated[
    Path | None,
    typer.Option("--workdir", metavar="DIR", help="Folder of a command after `--` (default: the current one)."),
]


def _text_option(option: str, help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(option, help=help_text, metavar=metavar, rich_help_panel=_PANEL)


@dataclass(frozen=True)
class MachineOptions:
    """The machine of a job or session, who pays, and its variables."""

    gpu: Gpu = None
    cpus: Annotated[str | None, _text_option("--cpus", "Minimum number of CPUs.", "N")] = None
    memory: Annotated[str | None, _text_option("--memory", "Minimum memory, such as 64GB.", "SIZE")] = None
    spot: Annotated[bool | None, _text_option("--spot/--on-demand", "Use only spot machines, or none.")] = None
    region: Regions = None
    provider: Providers = None
    team: Annotated[str | None, _text_option("--team", "The team whose budget pays.")] = None
    env: Envs = None
    secret: Secrets = None


@dataclass(frozen=True)
class JobOptions:
    """Options beside a job's file, or instead of it."""

    machine: MachineOptions
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of machines.", rich_help_panel=_PANEL)] = (
        None
    )
    max_cost: Annotated[str | None, _text_option("--max-cost", "Maximum total cost, such as $40.", "USD")] = None
    max_duration: Annotated[
        str | None, _text_option("--max-duration", "Maximum machine time over all attempts, such as 12h.", "TIME")
    ] = None
    deadline: Annotated[
        str | None, _text_option("--deadline", "Finish by this time: 8h (from now) or 2030-01-31T18:00Z.", "TIME")
    ] = None
    name: Annotated[str | None, _text_option("--name", "Name of the job.")] = None


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


def command_after_dashes(context: typer.Context) -> tuple[str, ...] | None:
    """The words after ``--``; None without it."""
    command: tuple[str, ...] | None = context.meta.get(_COMMAND)
    return command


# Options by the key of the job file that they override.
_OPTION_NAMES = {
    "name": "--name",
    "team": "--team",
    "num_nodes": "--nodes",
    "max_cost": "--max-cost",
    "max_duration": "--max-duration",
    "deadline": "--deadline",
    "setup": "--setup",
    "resources.accelerators": "--gpu",
    "resources.cpus": "--cpus",
    "resources.memory": "--memory",
    "constraints.regions": "--region",
    "constraints.providers": "--provider",
}


def overrides(machine: MachineOptions, name: str | None = None, **keys: Any) -> JobOverrides:
    """The options that override a job file; ``keys``: of its top. Raises `InvalidInput` for a variable without a
    value."""
    from broker.core.job.file.machines import NOT_SPOT, SPOT
    from broker.core.job.file.reading import JobOverrides

    kinds = None if machine.spot is None else [kind.value for kind in (SPOT if machine.spot else NOT_SPOT)]
    top = _without_empty(team=machine.team, **keys)
    resources = _without_empty(accelerators=machine.gpu, cpus=machine.cpus, memory=machine.memory)
    constraints = _without_empty(regions=machine.region, providers=machine.provider, capacity_types=kinds)
    named = {*top, "name", *(f"resources.{key}" for key in resources), *(f"constraints.{key}" for key in constraints)}
    options = {
        key: option for key, option in _OPTION_NAMES.items() if key in named and (key != "name" or name is not None)
    }
    envs, secrets = variables(machine.env), tuple(machine.secret or ())
    return JobOverrides(envs, secrets, name, top, resources, constraints, options)


def _without_empty(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, [])}


def variables(envs: Sequence[str] | None) -> dict[str, str]:
    """The variables of ``--env``. Raises `InvalidInput`."""
    return dict(map(_parse_variable, envs or ()))


def add_predecessors(requested: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """The jobs, which also come after the jobs with these names or ids. Raises `InvalidInput` for an invalid name."""
    if not names:
        return list(requested)
    from broker.core.job.file.after import parse_predecessor

    try:
        predecessors = [parse_predecessor(name) for name in names]
    except ValueError as error:
        raise InvalidInput(str(error), where="--after") from error
    return [job.model_copy(update={"after": (*job.after, *predecessors)}) for job in requested]


def requested_jobs(
    context: typer.Context, files: Sequence[Path], given: JobOptions, folder: Path | None = None, *,
    policy: PolicySet | None = None,
) -> list[Job]:  # fmt: skip
    """The jobs of the files, one a document, or the one of the command after ``--``, in ``folder``. ``policy``: lists
    the teams (default: the active one). Raises `InvalidInput`."""
    from broker.app.jobs.job_input import job_of_command, read_jobs

    terminal, command = Terminal.of(context), command_after_dashes(context)
    if command is None and not files:
        raise InvalidInput("no job given", hint=f"give JOB.yaml, or a command: `{context.command_path} -- COMMAND`")
    if command is None and folder is not None:
        raise InvalidInput("--workdir is for a command after `--`", hint="write `workdir:` in the job file")
    if command is not None and files:
        raise InvalidInput(f"both a job file ({files[0]}) and a command are given", hint="give one of them")
    if command is not None and not "".join(command[:1]).strip():
        raise InvalidInput("nothing follows `--`", hint="write the job's command after it")
    max_cost = None if given.max_cost is None else filters.price_option("--max-cost", given.max_cost)
    limits = {"max_cost": max_cost, "max_duration": given.max_duration, "deadline": given.deadline}
    changes, now = overrides(given.machine, given.name, num_nodes=given.nodes, **limits), datetime.now(UTC)
    if not terminal.through_server:
        broker = terminal.broker()
        changes, now = replace(changes, teams=(policy or broker.policy()).teams), broker.clock.now()
    try:
        if command is not None:
            return [job_of_command(command, folder or Path.cwd(), now, changes)]
        return [job for path in files for job in read_jobs(path, now, changes)]
    except InvalidInput as error:
        _add_price(error, terminal)
        raise


_WHOLE_CARD = re.compile(r"`([^`]+):1` for a whole card")


def _add_price(error: InvalidInput, terminal: Terminal) -> None:
    """Give the error the price of a whole card as its hint, if it refuses a part of one."""
    whole = _WHOLE_CARD.search(" ".join(map(str, (error, *error.problems))))
    if whole is not None and not terminal.through_server:
        from broker.app.advise.prices import current_prices

        store_url, now = terminal.settings().store_url, datetime.now(UTC)
        quote = current_prices(store_url, now, terminal.broker).quote(whole[1])
        if quote is not None:
            error.hint = f"cheapest known: {quote.machine} for ${quote.usd_per_hour:.2f} an hour at {quote.where}"


def _parse_variable(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
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
