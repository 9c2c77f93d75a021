"""`gpubroker jobs logs --follow`: print a job's output as it is written."""

from __future__ import annotations

import sys
from collections import deque

import typer

from broker.app.jobs.logs import LogLine, follow
from broker.app.wiring import Broker
from broker.cli.jobs.job_output import line_of_job, print_output
from broker.cli.terminal import Terminal
from broker.core.events.views import JobView

_LOT = 5000  # lines written at once; a job may print millions


def follow_logs(terminal: Terminal, broker: Broker, view: JobView, attempt: int | None, tail: int | None) -> None:
    """Print the last ``tail`` lines, then new output until the job ends. Ctrl-C does not stop the job (exit 130)."""
    shown, lot = 0, list[str]()

    def show(line: LogLine) -> None:
        nonlocal shown
        if line.attempt != shown:
            flush()
            if shown or line.attempt > 1:
                terminal.say(f"--- attempt {line.attempt}")
            shown = line.attempt
        lot.append(line_of_job(line))
        if len(lot) >= _LOT:
            flush()

    def flush() -> None:
        print_output(sys.stdout, lot)
        sys.stdout.flush()
        lot.clear()

    lines = follow(broker, view.id, attempt)
    try:
        before = iter(lines.__next__, None)  # ends at None, after which new output begins
        for line in before if tail is None else deque(before, maxlen=tail):
            show(line)
        flush()
        for new in lines:
            if new is None:
                flush()
            else:
                show(new)
    except KeyboardInterrupt:
        flush()
        terminal.say("Stopped. The job continues.")
        raise typer.Exit(130) from None
    finally:
        flush()
