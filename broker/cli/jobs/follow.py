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

from broker.app.jobs import details, jobs, logs
from broker.app.jobs.logs import FollowedOutput, LogLine, WantedOutput
from broker.app.results.job_history import JobHistory
from broker.app.results.program_name import program
from broker.app.results.story import MachineContext, course_of
from broker.app.service import background
from broker.app.wiring import Broker
from broker.cli.jobs.job_view import come_back, line, state_text, step_words
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

    from broker.app.jobs.logs import LogLine
    from broker.app.results.jobs import JobDetails
    from broker.core.events.views import JobView
    from broker.remote.team_api import TeamApi

_LOOK_EVERY = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # polls
_SETTLING = 40  # polls of a job that has ended, until its bill is settled

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
        job = _OfServer(terminal.api, job_id) if terminal.through_server else _OfStore(terminal.broker(), job_id)
        with staying(terminal, job_id):
            return _follow(terminal, job, output)
    except KeyboardInterrupt:
        detached(terminal, job_id)
        return None


@contextmanager
def staying(terminal: Terminal, job_id: str) -> Iterator[None]:
    """Follow a job through a server that may restart: requests are repeated for about a minute. What ends the following
    does not end the job: errors say so, with the command to find it."""
    if not terminal.through_server:
        yield
        return
    from broker.remote.team_api import FOLLOWING

    terminal.api.tries = FOLLOWING
    try:
        yield
    except (RetryLater, LoginMissing) as error:
        error.hint = "; ".join(filter(None, [error.hint, f"the job continues: `{program()} jobs show {job_id}`"]))
        raise


def detached(terminal: Terminal, job_id: str) -> None:
    """Print that the job continues, and the commands to return to it."""
    terminal.say("", Text("Detached.", style="bold"), come_back(job_id))


class _FollowedJob(Protocol):
    """A job, wherever its store is."""

    def look(self) -> JobHistory:
        """The job now."""

    def output(self) -> Iterable[LogLine]:
        """The output since the last call. May raise `RetryLater`, possibly after some lines; the next call yields the
        rest."""

    def rest(self) -> None:
        """Wait until the next look."""


class _OfStore:
    def __init__(self, broker: Broker, job_id: str) -> None:
        self._broker, self._id, self._looks = broker, job_id, 0
        self._output = FollowedOutput(broker)

    def look(self) -> JobHistory:
        self._view = jobs.find(self._broker, self._id)
        return details.history(self._broker, self._view, followed=True)

    def output(self) -> Iterable[LogLine]:
        return self._output.new(self._view, None)

    def rest(self) -> None:
        if self._looks % _REVIVE_EVERY == 0:
            background.revive(self._broker)
        self._looks += 1
        self._broker.clock.sleep(_LOOK_EVERY)  # another process writes the store, and does not tell of it


class _OfServer:
    def __init__(self, api: TeamApi, job_id: str) -> None:
        self._api, self._id, self._printed = api, job_id, 0

    def look(self) -> JobHistory:
        return self._api.fetch(JobHistory, f"/jobs/{self._id}")

    def output(self) -> Iterable[LogLine]:
        from broker.remote.output import lines

        for one in lines(self._api, self._id, start=self._printed):
            self._printed += 1
            yield one

    def rest(self) -> None:
        from broker.remote.output import LOOK_EVERY

        time.sleep(LOOK_EVERY)  # each look is a request, which the server counts


def _follow(terminal: Terminal, followed: _FollowedJob, output: bool) -> JobHistory:
    told, ended = 0, 0
    with terminal.live() as live:
        while True:
            job = followed.look()
            course = course_of(job.events)
            # The output is printed after the event of the command's start and before later events.
            started = [n for n, event in enumerate(job.events) if isinstance(event.body, CommandStarted)]
            before = max(told, started[-1] + 1 if started else 0)
            _tell(terminal, job, course, job.events[told:before])
            if output:
                _print_output(terminal, live, followed.output())
            _tell(terminal, job, course, job.events[before:])
            told = len(job.events)
            ended += job.state.final
            if job.closed or job.waits_for_people or ended > _SETTLING:
                return job
            if live is not None:
                live.update(_status(job), refresh=True)
            followed.rest()


def _tell(terminal: Terminal, job: JobHistory, course: MachineContext, happened: Sequence[Event]) -> None:
    for event in happened:
        if (text := line(event, job.submitted_at, course)) is not None:
            terminal.show(text)


def _print_output(terminal: Terminal, live: Live | None, output: Iterable[LogLine]) -> None:
    """Print the new output; to stderr if stdout is for the JSON document."""
    fresh: list[str] = []
    with suppress(RetryLater):  # the next call prints the rest
        fresh.extend(line_of_job(one) for one in output)
    if not fresh:
        return
    if live is not None:
        live.stop()  # Rich would wrap each line, which is slow and changes it
    stream = sys.stderr if terminal.as_json else sys.stdout
    print_output(stream, fresh)
    stream.flush()
    if live is not None:
        live.start()


def _status(job: JobHistory) -> Text:
    """``running 3m  step 120 of 400  $0.12 so far  finishes in 3m  checkpoint 40s ago  Ctrl-C detaches``."""
    parts = [state_text(job).append(f" {formats.length(job.as_of - job.submitted_at)}")]
    if steps := step_words(job.step, job.total_steps) or job.phase:
        parts.append(Text(steps))
    parts.append(Text(f"{formats.money(job.cost_so_far)} so far"))
    if job.expected_finish is not None:
        parts.append(Text(f"finishes in {formats.length(max(job.expected_finish - job.as_of, timedelta(0)))}"))
    if job.checkpoint is not None:
        parts.append(Text(f"checkpoint {formats.age(job.as_of - job.checkpoint.at)} ago"))
    if job.wait_reason is not None:
        parts.append(Text(f"waiting: {job.waiting_because}", style="yellow"))
    parts += [Text(trouble, style="yellow") for trouble in job.troubles]
    parts.append(Text("Ctrl-C detaches", style="dim"))
    shown = Text("  ").join(parts)
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown


_LOT = 5000  # lines written at once; a job may print millions


def printed(terminal: Terminal, reference: str, wanted: WantedOutput) -> tuple[str, Iterable[LogLine]]:
    """The job's id, and the lines that its command printed, oldest first."""
    if terminal.through_server:
        from broker.remote import output

        api, id = terminal.api, _id_there(terminal, reference, wanted)
        if wanted.tail is None:
            return id, output.lines(api, id, attempt=wanted.attempt, node=wanted.node)
        return id, output.last_lines(api, id, wanted.tail, attempt=wanted.attempt, node=wanted.node)
    broker = terminal.broker()
    view = jobs.find(broker, reference)
    return view.id, logs.printed(broker, view, wanted)


def _id_there(terminal: Terminal, reference: str, wanted: WantedOutput) -> str:
    """The id of the job, or of the wanted task, at the server."""
    from broker.remote.sending import job_id

    terminal.only_here({"--failed": wanted.failed})
    id = job_id(terminal.api, reference)
    return id if wanted.task is None else task_id(id, wanted.task)


def follow_logs(terminal: Terminal, reference: str, wanted: WantedOutput) -> None:
    """Print the last lines, then new output until the job ends. Ctrl-C does not stop the job (exit 130)."""
    tail = wanted.tail
    if terminal.through_server:
        from broker.remote import output

        id = _id_there(terminal, reference, wanted)
        lines = output.follow(terminal.api, id, wanted.attempt)
    else:
        broker = terminal.broker()
        id = jobs.find(broker, reference).id
        lines = logs.follow(broker, id, wanted)
    shown, lot = 0, list[str]()

    def show(line: LogLine) -> None:
        nonlocal shown
        if line.task is None and line.attempt != shown:
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
_WRITTEN_AT_ONCE = 1 << 16


def print_output(stream: TextIO, lines: Iterable[str]) -> None:
    """Write the lines, each with a line break. Does not flush."""
    clean = stream.isatty()
    for lot in _lots(lines):
        text = "\n".join(lot)
        if clean and _CONTROL.search(text):
            text = "\n".join(map(harmless, lot))
        stream.write(f"{text}\n")


def _lots(lines: Iterable[str]) -> Iterator[list[str]]:
    lot, size = list[str](), 0
    for text in lines:
        lot.append(text)
        size += len(text) + 1
        if size >= _WRITTEN_AT_ONCE:
            yield lot
            lot, size = [], 0
    if lot:
        yield lot


def no_output_yet(job_id: str, state: str, *, ended: bool) -> str:
    """What `jobs logs` prints for a job without output; ``state``: as `jobs list` shows it."""
    return f"{job_id} has printed nothing; state: {state}" if ended else f"{job_id}: no output yet; state: {state}"


def line_of_job(line: LogLine) -> str:
    """The line, with the number of the array's task and the rank of the multi-node job that printed it in front."""
    origin = ".".join(str(number) for number in (line.task, line.rank) if number is not None)
    return f"[{origin}] {line.text}" if origin else line.text


def harmless(text: str) -> str:
    """The text with its colors, but without other control sequences."""
    return _CONTROL.sub(lambda found: found[1] or "", text)
