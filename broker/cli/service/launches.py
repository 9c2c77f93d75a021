"""`gpubroker launches`: launches outside gpubroker, with SkyPilot or Slurm, that count against its budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType

from broker.cli.filters import term_option
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from broker.app.outside.documents import OutsideLaunchList, OutsideLaunchResult


_LAUNCH_COLUMNS: tuple[ValueColumn[OutsideLaunchResult], ...] = (
    ValueColumn("launch", lambda row: row.id),
    ValueColumn("user", lambda row: row.user),
    ValueColumn("team", lambda row: row.team or "", 2),
    ValueColumn("GPUs", lambda row: f"{row.gpus} {row.accelerator or ''}".strip(), 1),
    ValueColumn("since", lambda row: formats.moment(row.since)),
    ValueColumn("held until", lambda row: formats.moment(row.until)),
    ValueColumn("held", lambda row: row.held_usd.rounded(2), align="right"),
)


def launch_lines(console: Console, launch_list: OutsideLaunchList) -> Iterator[RenderableType]:
    """The overdue launches with what to do, then one row per open one."""
    for overdue_launch in launch_list.overdue:
        yield (
            f"OVERDUE {overdue_launch.id}: {overdue_launch.machines}, launched by {overdue_launch.user}, should have "
            f"ended {formats.moment(overdue_launch.until)}"
            f" ({overdue_launch.spent_usd.rounded(2)} spent); check whether it still runs, then `gpubroker launches "
            f"--end {overdue_launch.id}`"
        )
    if launch_list.launches:
        yield from table_parts(console, _LAUNCH_COLUMNS, launch_list.launches)
    elif not launch_list.overdue:
        yield "no launch outside gpubroker is open"


EXAMPLES = examples(
    "gpubroker launches",
    "gpubroker launches --json",
    "gpubroker launches --end outside:skypilot-4f1c",
    "gpubroker launches --end skypilot-4f1c --ran 90m",
)


def launches(
    context: typer.Context,
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="LAUNCH", help="Record that its machines are gone. Not through a server."),
    ] = None,
    ran: Annotated[
        str | None,
        typer.Option("--ran", metavar="TIME", help="With --end: how long they ran. Default: since it was judged."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the open SkyPilot and Slurm launches outside gpubroker, which count against its budgets.

    Overdue ones come first: they are past their approved run time, and their machines may still run at a cost that is
    in no budget. The others follow, oldest first. Slurm reports the end of a launch itself; with SkyPilot, use --end.

    With --end, the cost of a launch is spent, and the rest of the held money is released. It ends no machine: do that
    with SkyPilot or Slurm first. A launch that has ended stays as it is. If the store has people, only a person who may
    judge launches, or an administrator, may do so.
    """
    from broker.app.use_cases.outside import list_launches

    terminal = Terminal.of(context)
    terminal.only_here({"--end": end})
    if end is not None:
        _end_launch(terminal, end, ran)
        return
    if ran is not None:
        raise InvalidInput("--ran belongs to --end", hint="gpubroker launches --end LAUNCH --ran 90m")
    launch_list = terminal.ask(list_launches)
    terminal.result(launch_list, lambda: launch_lines(terminal.out, launch_list))


def _end_launch(terminal: Terminal, id: str, ran: str | None) -> None:
    from broker.app.access.people import require_role
    from broker.app.outside import launches as use_case
    from broker.app.outside.documents import OutsideEnd, report_end
    from broker.app.use_cases.outside import list_launches

    broker, by = terminal.broker(), terminal.actor
    launch_id = id if id.startswith(use_case.PREFIX) else use_case.PREFIX + id
    require_role(broker, by, Permission.JUDGE_LAUNCHES)
    launch_list = terminal.ask(list_launches)
    start_by_id = {launch.id: launch.since for launch in launch_list.launches} | {
        launch.id: launch.since for launch in launch_list.overdue
    }
    if launch_id not in start_by_id:
        raise UnknownName("open launch", id, start_by_id)
    since_judged = broker.clock.now() - start_by_id[launch_id]
    time = None if ran is None else term_option("--ran", ran)
    cost = report_end(broker, launch_id, time, by=by)
    duration_text = (
        "" if time is None else f" for {formats.length(time)} of the {formats.length(since_judged)} since it was judged"
    )
    message = f"{launch_id}: ended, {cost.rounded(2)} spent{duration_text}; the rest of its money is released"
    terminal.result(OutsideEnd(id=launch_id, cost_usd=cost), lambda: [message])
