"""`gpubroker autostart`: continue jobs after a restart of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.service.autostart import AutostartState

EXAMPLES = examples("gpubroker autostart on", "gpubroker autostart status --json", "gpubroker autostart off")


class Switch(StrEnum):
    """What to do."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


def autostart(
    context: typer.Context,
    switch: Annotated[Switch, typer.Argument(metavar="on|off|status", help="Default: status.")] = Switch.STATUS,
    as_json: AsJson = False,
) -> None:
    """Continue jobs after a restart of this machine: at login, systemd or launchd starts the process that runs them.

    It ends when no job is left. Run `on` again after you changed GPUBROKER_* variables. It was never tried on macOS.
    """
    from broker.app.service.autostart import state, turn_off, turn_on

    terminal = Terminal.of(context)
    act = {Switch.ON: turn_on, Switch.OFF: turn_off, Switch.STATUS: state}[switch]
    current = act(terminal.broker())
    terminal.result(current, lambda: _lines(current))


def _lines(current: AutostartState) -> Iterator[str]:
    running = "a background process runs the jobs" if current.running else "no background process runs"
    if not current.on:
        yield f"off ({running}); to continue jobs after a restart of this machine: `gpubroker autostart on`"
        return
    yield f"on ({running}): {current.file}"
    if current.lingering is False:
        yield "Jobs continue when you log in; to continue them when the machine starts: `loginctl enable-linger`"
