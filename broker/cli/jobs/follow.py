"""Follow a job: print its events as they happen, with a status line below them on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.jobs import jobs
from broker.app.jobs.bills import bill_of
from broker.app.jobs.logs import FollowedOutput
from broker.app.results import reasons
from broker.app.results.story import MachineContext, course_of
from broker.app.service import background
from broker.app.wiring import Broker
from broker.cli.jobs.job_output import line_of_job, print_output
from broker.cli.jobs.job_view import come_back, state_text, step_words
from broker.cli.render import formats
from broker.cli.render.event_format import line
from broker.cli.terminal import Terminal
from broker.core.errors import RetryLater
from broker.core.events.agent_events import CommandStarted
from broker.core.events.events import Event
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView

if TYPE_CHECKING:
    from rich.live import Live

    from broker.app.jobs.bills import Bill
    from broker.app.jobs.jobs import Progress
    from broker.app.results.jobs import JobDetails

_LOOK_EVERY = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # polls
_SETTLING = 40  # polls of a job that has ended, until its bill is settled

_EXIT_CODES = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: 7,
    JobState.CANCELLED: 7,
    JobState.STOPPED: 0,
    JobState.PAUSED_BUDGET: 3,
    JobState.AWAITING_APPROVAL: 6,
}


def exit_code(view: JobView | JobDetails) -> int:
    """The exit code after following a job: 0 succeeded, stopped early or still running, 7 failed or cancelled, 3
    paused because its money is used up, 6 waiting for approval."""
    return _EXIT_CODES.get(view.state, 0)


def follow(terminal: Terminal, broker: Broker, job_id: str, *, output: bool = False) -> JobView | None:
    """Print events until the job is closed or needs a person to continue. Returns its last view. ``output``: also print
    the output of the job's command.

    Returns None after Ctrl-C; the job continues. Restarts a background reconciler that stopped.
    """
    try:
        return _follow(terminal, broker, FollowedOutput(broker) if output else None, job_id)
    except KeyboardInterrupt:
        detached(terminal, job_id)
        return None


def detached(terminal: Terminal, job_id: str) -> None:
    """Print that the job continues, and the commands to return to it."""
    terminal.say("", Text("Detached.", style="bold"), come_back(job_id))


def _follow(terminal: Terminal, broker: Broker, output: FollowedOutput | None, job_id: str) -> JobView:
    told, looks, ended = 0, 0, 0
    with terminal.live() as live:
        while True:
            view = jobs.find(broker, job_id)
            happened = [event for event in jobs.events(broker, view) if event.seq <= view.seq]
            course = course_of(happened)
            # The output is printed after the event of the command's start and before later events.
            started = [n for n, event in enumerate(happened) if isinstance(event.body, CommandStarted)]
            before = max(told, started[-1] + 1 if started else 0)
            _tell(terminal, view, course, happened[told:before])
            if output is not None:
                _print_output(terminal, live, output, view)
            _tell(terminal, view, course, happened[before:])
            told = len(happened)
            ended += view.state.final
            if view.closed or jobs.waiting_for_people(view) or ended > _SETTLING:
                return view
            if looks % _REVIVE_EVERY == 0:
                background.revive(broker)
            if live is not None:
                now = broker.clock.now()
                live.update(_status(view, bill_of(broker, view), jobs.progress(broker, view), now), refresh=True)
            looks += 1
            broker.clock.sleep(_LOOK_EVERY)


def _tell(terminal: Terminal, view: JobView, course: MachineContext, happened: Sequence[Event]) -> None:
    for event in happened:
        if (text := line(event, view.submitted_at, course)) is not None:
            terminal.show(text)


def _print_output(terminal: Terminal, live: Live | None, output: FollowedOutput, view: JobView) -> None:
    """Print the output since the last call; to stderr if stdout is for the JSON document."""
    fresh: list[str] = []
    with suppress(RetryLater):  # the next call prints the rest
        fresh.extend(line_of_job(one) for one in output.new(view, None))
    if not fresh:
        return
    if live is not None:
        live.stop()  # Rich would wrap each line, which is slow and changes it
    stream = sys.stderr if terminal.as_json else sys.stdout
    print_output(stream, fresh)
    stream.flush()
    if live is not None:
        live.start()


def _status(view: JobView, bill: Bill, progress: Progress | None, now: datetime) -> Text:
    """``running 3m  step 120 of 400  $0.12 so far  finishes in 3m  checkpoint 40s ago  Ctrl-C detaches``."""
    parts = [state_text(view).append(f" {formats.length(now - view.submitted_at)}")]
    if steps := step_words(view, progress):
        parts.append(Text(steps))
    elif progress is not None and progress.phase:
        parts.append(Text(progress.phase))
    parts.append(Text(f"{formats.money(bill.so_far)} so far"))
    if progress is not None and progress.finish is not None:
        parts.append(Text(f"finishes in {formats.length(max(progress.finish - now, now - now))}"))
    if view.checkpoint is not None:
        parts.append(Text(f"checkpoint {formats.age(now - view.checkpoint.at)} ago"))
    if view.waiting is not None:
        parts.append(Text(f"waiting: {reasons.waits(view.waiting)}", style="yellow"))
    parts.append(Text("Ctrl-C detaches", style="dim"))
    shown = Text("  ").join(parts)
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown
