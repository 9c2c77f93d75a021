"""`gpubroker jobs logs`: a job's output so far, or as it is written."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable

import typer

from broker.app.jobs import jobs, logs
from broker.app.jobs.logs import LogLine
from broker.cli.jobs.follow import staying
from broker.cli.jobs.job_output import line_of_job, print_output
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.events.views import JobView

_LOT = 5000  # lines written at once; a job may print millions


def printed(
    terminal: Terminal, reference: str, attempt: int | None, node: int | None, tail: int | None
) -> tuple[str, Iterable[LogLine]]:
    """The job's id, and the lines that its command printed, oldest first; the last ``tail`` ones if that is given."""
    if terminal.through_server:
        from broker.remote import output
        from broker.remote.sending import job_id

        api, id = terminal.api, job_id(terminal.api, reference)
        if tail is None:
            return id, output.lines(api, id, attempt=attempt, node=node)
        return id, output.last_lines(api, id, tail, attempt=attempt, node=node)
    view = _find(terminal, reference, attempt)
    numbers = [attempt] if attempt else [one.number for one in view.attempts]
    lines = (LogLine(n, None, text) for n in numbers for text in jobs.logs(terminal.broker(), view, n, node))
    return view.id, lines if tail is None else deque(lines, maxlen=tail)  # keeps only these in memory


def _find(terminal: Terminal, reference: str, attempt: int | None) -> JobView:
    view = jobs.find_single(terminal.broker(), reference)
    if attempt is not None and attempt > view.attempt_count:
        have = f"the last one is {view.attempt_count}" if view.attempts else "it has not been launched yet"
        raise InvalidInput(f"{view.id} has no attempt {attempt}; {have}")
    return view


def follow_logs(terminal: Terminal, reference: str, attempt: int | None, tail: int | None) -> None:
    """Print the last ``tail`` lines, then new output until the job ends. Ctrl-C does not stop the job (exit 130)."""
    if terminal.through_server:
        from broker.remote import output
        from broker.remote.sending import job_id

        id = job_id(terminal.api, reference)
        lines = output.follow(terminal.api, id, attempt)
    else:
        id = _find(terminal, reference, attempt).id
        lines = logs.follow(terminal.broker(), id, attempt)
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

    try:
        with staying(terminal, id):
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
