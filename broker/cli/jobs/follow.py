"""Following a job: its events until it ends, and its output: raw to files, without control sequences to a terminal."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TextIO

import typer
from rich.text import Text

from broker.app.jobs import background, details, jobs, logs
from broker.app.jobs.logs import LogLine, OutputFollower, WantedOutput
from broker.app.jobs.reasons import program_name
from broker.app.jobs.story import MachineContext, machine_context
from broker.app.use_cases.jobs import show_job
from broker.cli.jobs.job_view import event_line, return_commands, running_cost_text, state_text, step_text
from broker.cli.render import formats
from broker.cli.terminal import Terminal
from broker.core.errors import LoginMissing, RetryLater
from broker.core.events.agent_events import CommandStarted
from broker.core.events.events import Event
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.arrays import task_id

if TYPE_CHECKING:
    from rich.live import Live

    from broker.app.jobs.documents import JobDetails
    from broker.app.jobs.history_documents import JobHistory
    from broker.app.wiring import Broker
    from broker.server.client.team_api import TeamApi

_POLL_SECONDS = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # polls
_MAX_SETTLE_POLLS = 40  # polls of a job that has ended, until its bill is settled

_EXIT_CODES = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: 7,
    JobState.CANCELLED: 7,
    JobState.PAUSED_BUDGET: 3,
    JobState.AWAITING_APPROVAL: 6,
}


def exit_code(job: JobView | JobDetails) -> int:
    """The exit code after following a job: 0 succeeded or still running, 7 failed or cancelled, 3
    paused because its money is used up, 6 waiting for approval."""
    return _EXIT_CODES.get(job.state, 0)


def follow(terminal: Terminal, job_id: str, *, output: bool = False) -> JobHistory | None:
    """Print events until the job is closed or needs a person to continue. Returns its last state. ``output``: also
    print the output of the job's command.

    Returns None after Ctrl-C; the job continues. Restarts a background reconciler that stopped.
    """
    try:
        job = _ServerJob(terminal.api, job_id) if terminal.through_server else _StoreJob(terminal.broker(), job_id)
        with keep_following(terminal, job_id):
            return _follow(terminal, job, output)
    except KeyboardInterrupt:
        show_detached(terminal, job_id)
        return None


@contextmanager
def keep_following(terminal: Terminal, job_id: str) -> Iterator[None]:
    """Follow a job through a server that may restart: requests are repeated for about a minute. What ends the following
    does not end the job: errors say so, with the command to find it."""
    if not terminal.through_server:
        yield
        return
    from broker.server.client.team_api import FOLLOW_TRIES

    terminal.api.tries = FOLLOW_TRIES
    try:
        yield
    except (RetryLater, LoginMissing) as error:
        error.hint = "; ".join(filter(None, [error.hint, f"the job continues: `{program_name()} status {job_id}`"]))
        raise


def show_detached(terminal: Terminal, job_id: str) -> None:
    """Print that the job continues, and the commands to return to it."""
    terminal.say("", Text("Detached.", style="bold"), return_commands(job_id))


class _FollowedJob(Protocol):
    """A job, wherever its store is."""

    def look(self) -> JobHistory:
        """The job now."""

    def output(self) -> Iterable[LogLine]:
        """The output since the last call. May raise `RetryLater`, possibly after some lines; the next call yields the
        rest."""

    def rest(self) -> None:
        """Wait until the next look."""


class _StoreJob:
    def __init__(self, broker: Broker, job_id: str) -> None:
        self._broker, self._id, self._looks = broker, job_id, 0
        self._output = OutputFollower(broker)

    def look(self) -> JobHistory:
        self._view = jobs.find(self._broker, self._id)
        return details.history(self._broker, self._view, followed=True)

    def output(self) -> Iterable[LogLine]:
        return self._output.new(self._view, None)

    def rest(self) -> None:
        if self._looks % _REVIVE_EVERY == 0:
            background.revive(self._broker)
        self._looks += 1
        self._broker.clock.sleep(_POLL_SECONDS)  # another process writes the store, and does not tell of it


class _ServerJob:
    def __init__(self, api: TeamApi, job_id: str) -> None:
        self._api, self._id, self._printed = api, job_id, 0

    def look(self) -> JobHistory:
        return self._api.run(show_job, self._id)

    def output(self) -> Iterable[LogLine]:
        from broker.server.client.output import lines

        for log_line in lines(self._api, self._id, start=self._printed):
            self._printed += 1
            yield log_line

    def rest(self) -> None:
        from broker.server.client.output import POLL_SECONDS

        time.sleep(POLL_SECONDS)  # each look is a request, which the server counts


def _follow(terminal: Terminal, source: _FollowedJob, output: bool) -> JobHistory:
    shown_count, final_polls = 0, 0
    with terminal.live() as live:
        while True:
            job = source.look()
            context = machine_context(job.events)
            # The output is printed after the event of the command's start and before later events.
            start_positions = [n for n, event in enumerate(job.events) if isinstance(event.body, CommandStarted)]
            split = max(shown_count, start_positions[-1] + 1 if start_positions else 0)
            _show_events(terminal, job, context, job.events[shown_count:split])
            if output:
                _print_output(terminal, live, source.output())
            _show_events(terminal, job, context, job.events[split:])
            shown_count = len(job.events)
            final_polls += job.state.final
            if job.closed or job.waits_for_people or final_polls > _MAX_SETTLE_POLLS:
                return job
            if live is not None:
                live.update(_status(job), refresh=True)
            source.rest()


def _show_events(terminal: Terminal, job: JobHistory, context: MachineContext, events: Sequence[Event]) -> None:
    for event in events:
        if (text := event_line(event, job.submitted_at, context)) is not None:
            terminal.show(text)


def _print_output(terminal: Terminal, live: Live | None, output: Iterable[LogLine]) -> None:
    """Print the new output; to stderr if stdout is for the JSON document."""
    new_lines: list[str] = []
    with suppress(RetryLater):  # the next call prints the rest
        new_lines.extend(line_with_origin(log_line) for log_line in output)
    if not new_lines:
        return
    if live is not None:
        live.stop()  # Rich would wrap each line, which is slow and changes it
    stream = sys.stderr if terminal.as_json else sys.stdout
    print_output(stream, new_lines)
    stream.flush()
    if live is not None:
        live.start()


def _status(job: JobHistory) -> Text:
    """``running 3m  step 120 of 400  $0.1200 so far  finishes in 3m  checkpoint 40s ago  Ctrl-C detaches``."""
    pieces = [state_text(job).append(f" {formats.length(job.as_of - job.submitted_at)}")]
    if steps := step_text(job.step, job.total_steps) or job.phase:
        pieces.append(Text(steps))
    pieces.append(Text(running_cost_text(job.cost_so_far)))
    if job.expected_finish is not None:
        pieces.append(Text(f"finishes in {formats.length(max(job.expected_finish - job.as_of, timedelta(0)))}"))
    if job.checkpoint is not None:
        pieces.append(Text(f"checkpoint {formats.age(job.as_of - job.checkpoint.at)} ago"))
    if job.wait_reason is not None:
        pieces.append(Text(f"waiting: {job.waiting_because}", style="yellow"))
    pieces += [Text(trouble, style="yellow") for trouble in job.troubles]
    pieces.append(Text("Ctrl-C detaches", style="dim"))
    shown = Text("  ").join(pieces)
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown


_CHUNK_LINES = 5000  # lines written at once; a job may print millions


def output_lines(terminal: Terminal, reference: str, output_filter: WantedOutput) -> tuple[str, Iterable[LogLine]]:
    """The job's id, and the lines that its command printed, oldest first."""
    if terminal.through_server:
        from broker.server.client import output

        api, id = terminal.api, _remote_job_id(terminal, reference, output_filter)
        if output_filter.tail is None:
            return id, output.lines(api, id, attempt=output_filter.attempt, node=output_filter.node)
        return id, output.last_lines(
            api, id, output_filter.tail, attempt=output_filter.attempt, node=output_filter.node
        )
    broker = terminal.broker()
    view = jobs.find(broker, reference)
    return view.id, logs.output_lines(broker, view, output_filter)


def _remote_job_id(terminal: Terminal, reference: str, output_filter: WantedOutput) -> str:
    """The id of the job, or of the wanted task, at the server."""
    terminal.only_here({"--failed": output_filter.failed})
    id = terminal.job_id(reference)
    return id if output_filter.task is None else task_id(id, output_filter.task)


def follow_logs(terminal: Terminal, reference: str, output_filter: WantedOutput) -> None:
    """Print the last lines, then new output until the job ends. Ctrl-C does not stop the job (exit 130)."""
    tail = output_filter.tail
    if terminal.through_server:
        from broker.server.client import output

        id = _remote_job_id(terminal, reference, output_filter)
        lines = output.follow(terminal.api, id, output_filter.attempt)
    else:
        broker = terminal.broker()
        id = jobs.find(broker, reference).id
        lines = logs.follow(broker, id, output_filter)
    shown, chunk = 0, list[str]()

    def show(line: LogLine) -> None:
        nonlocal shown
        if line.task is None and line.attempt != shown:
            flush()
            if shown or line.attempt > 1:
                terminal.say(f"--- attempt {line.attempt}")
            shown = line.attempt
        chunk.append(line_with_origin(line))
        if len(chunk) >= _CHUNK_LINES:
            flush()

    def flush() -> None:
        print_output(sys.stdout, chunk)
        sys.stdout.flush()
        chunk.clear()

    try:
        with keep_following(terminal, id):
            earlier_lines = iter(lines.__next__, None)  # ends at None, after which new output begins
            for line in earlier_lines if tail is None else deque(earlier_lines, maxlen=tail):
                show(line)
            flush()
            for new_line in lines:
                if new_line is None:
                    flush()
                else:
                    show(new_line)
    except KeyboardInterrupt:
        flush()
        terminal.say("Stopped. The job continues.")
        raise typer.Exit(130) from None
    finally:
        flush()


# Colors and font weights pass (`_STYLE`). Sequences that set titles, write to the clipboard, move the cursor or query
# the terminal do not, because a job's output is not trusted. ECMA-48, sections 5.4 and 5.6.
_STYLE = r"\x1b\[[0-9;:]*m"
_CONTROL = re.compile(
    rf"({_STYLE})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings: of the operating system, of devices, of applications
    r"|\x1b[ -/]*[0-~]?"  # other escape sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


# Characters written at once: without a buffer (PYTHONUNBUFFERED, usual in containers) each write calls the system.
_CHUNK_CHARACTERS = 1 << 16


def print_output(stream: TextIO, lines: Iterable[str]) -> None:
    """Write the lines, each with a line break. Does not flush."""
    strips_control = stream.isatty()
    for chunk in _chunks(lines):
        text = "\n".join(chunk)
        if strips_control and _CONTROL.search(text):
            text = "\n".join(map(strip_control_sequences, chunk))
        stream.write(f"{text}\n")


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk, size = list[str](), 0
    for text in lines:
        chunk.append(text)
        size += len(text) + 1
        if size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def no_output_text(job_id: str, state: str, *, ended: bool) -> str:
    """What `logs` prints for a job without output; ``state``: as `jobs list` shows it."""
    return f"{job_id} has printed nothing; state: {state}" if ended else f"{job_id}: no output yet; state: {state}"


def line_with_origin(line: LogLine) -> str:
    """The line, with the number of the array's task and the rank of the multi-node job that printed it in front."""
    origin = ".".join(str(number) for number in (line.task, line.rank) if number is not None)
    return f"[{origin}] {line.text}" if origin else line.text


def strip_control_sequences(text: str) -> str:
    """The text with its colors, but without other control sequences."""
    return _CONTROL.sub(lambda match: match[1] or "", text)
