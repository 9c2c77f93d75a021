"""`gpubroker launches list | end`: launches made elsewhere, with SkyPilot or Slurm, whose money is held here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.results.outside import OutsideLaunchList, OutsideLaunchResult


_OPEN: tuple[ValueColumn[OutsideLaunchResult], ...] = (
    ValueColumn("launch", lambda one: one.id),
    ValueColumn("user", lambda one: one.user),
    ValueColumn("team", lambda one: one.team or "", 2),
    ValueColumn("GPUs", lambda one: f"{one.gpus} {one.accelerator or ''}".strip(), 1),
    ValueColumn("since", lambda one: formats.moment(one.since)),
    ValueColumn("held until", lambda one: formats.moment(one.until)),
    ValueColumn("held", lambda one: one.held_usd.rounded(2), align="right"),
)


def table(console: Console, found: OutsideLaunchList) -> Iterator[RenderableType]:
    """The overdue launches with what to do, then one row per open one."""
    for one in found.overdue:
        yield (
            f"OVERDUE {one.id}: {one.machines}, launched by {one.user}, should have ended {formats.moment(one.until)}"
            f" ({one.spent_usd.rounded(2)} spent); check whether it still runs, then `gpubroker launches end {one.id}`"
        )
    if found.launches:
        yield from listed(console, _OPEN, found.launches)
    elif not found.overdue:
        yield "no launch made elsewhere is open"


app = typer.Typer(
    no_args_is_help=True, help="SkyPilot and Slurm launches outside gpubroker that count against its budgets."
)


@app.callback()
def launches() -> None:
    """SkyPilot and Slurm launches outside gpubroker that count against its budgets."""


@app.command("list", epilog=examples("gpubroker launches list", "gpubroker launches list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the launches whose end is not reported yet, oldest first.

    Overdue ones come first: they are past their approved run time, and their machines may still run at a cost that is
    in no budget.
    """

    terminal = Terminal.of(context)
    found = _found(terminal)
    terminal.result(found, lambda: table(terminal.out, found))


def _found(terminal: Terminal) -> OutsideLaunchList:
    from broker.app.results.outside import OutsideLaunchList

    if terminal.through_server:
        return terminal.api.fetch(OutsideLaunchList, "/launches")
    from broker.app.outside.launches import open_launches
    from broker.app.outside.overdue import overdue

    broker = terminal.broker()
    with broker.store.reading() as look:
        return OutsideLaunchList.of(open_launches(look), overdue(broker))


@app.command(
    epilog=examples("gpubroker launches end outside:skypilot-4f1c", "gpubroker launches end skypilot-4f1c --ran 90m")
)
def end(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="LAUNCH", help="ID in `gpubroker launches list`.")],
    ran: Annotated[
        str | None,
        typer.Option("--ran", metavar="TIME", help="Time that its machines ran. Default: since it was judged."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record that the machines of a launch are gone: their cost is spent, and the rest of the held money is released.

    It ends no machine: do that with SkyPilot or Slurm first. A launch that has ended stays as it is. If the store has
    people, only a person who may judge launches, or an administrator, may do so.
    """
    from broker.app.access.people import only_permitted
    from broker.app.outside import launches as use_case
    from broker.app.outside.overdue import reported
    from broker.app.results.outside import OutsideEnd
    from broker.cli.filters import length
    from broker.cli.render import formats
    from broker.core.access.permissions import Permission
    from broker.core.errors import UnknownName

    terminal = Terminal.of(context)
    broker, by = terminal.broker(), terminal.actor
    whole = id if id.startswith(use_case.PREFIX) else use_case.PREFIX + id
    with broker.store.access.reading() as look:
        if look.people():
            only_permitted(look, by, Permission.JUDGE_LAUNCHES)
    listed = _found(terminal)
    known = {one.id: one.since for one in listed.launches} | {one.id: one.since for one in listed.overdue}
    if whole not in known:
        raise UnknownName("open launch", id, known)
    longest = broker.clock.now() - known[whole]
    time = None if ran is None else length("--ran", ran)
    cost = reported(broker, whole, time, by=by)
    stated = "" if time is None else f" for {formats.length(time)} of the {formats.length(longest)} since it was judged"
    said = f"{whole}: ended, {cost.rounded(2)} spent{stated}; the rest of its money is released"
    terminal.result(OutsideEnd(id=whole, cost_usd=cost), lambda: [said])
