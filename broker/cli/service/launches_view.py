"""Launches made elsewhere as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.app.results.outside import OutsideLaunchList, OutsideLaunchResult
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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
