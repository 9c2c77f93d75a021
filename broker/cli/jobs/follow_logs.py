"""`gpubroker jobs logs --follow`: print a job's output as it is written."""

from __future__ import annotations

from collections import deque

import typer

from broker.app.jobs.logs import Line, follow
from broker.app.wiring import Broker
from broker.cli.terminal import Terminal
from broker.core.events.views import JobView


def follow_logs(terminal: Terminal, broker: Broker, view: JobView, attempt: int | None, tail: int | None) -> None:
    """Print the last ``tail`` lines, then new output until the job ends. Ctrl-C does not stop the job (exit 130)."""
    shown = 0

    def show(line: Line) -> None:
        nonlocal shown
        if line.attempt != shown:
            if shown or line.attempt > 1:
                terminal.say(f"--- attempt {line.attempt}")
            shown = line.attempt
        rank = "" if line.rank is None else f"[{line.rank}] "
        print(f"{rank}{line.text}", flush=True)  # noqa: T201  # the job's own output, unchanged

    lines = follow(broker, view.id, attempt)
    try:
        before = iter(lines.__next__, None)  # up to None, which marks the start of new output
        for line in before if tail is None else deque(before, maxlen=tail):
            show(line)
        for new in lines:
            if new is not None:
                show(new)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
