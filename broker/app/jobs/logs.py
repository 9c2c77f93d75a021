"""Following the output of a job's command, over all attempts, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.app.jobs import jobs
from broker.app.jobs.runs_root import run_folders
from broker.app.service import background
from broker.app.wiring import Broker
from broker.core.errors import RetryLater
from broker.core.events.views import AttemptView, JobView
from broker.runfolder.runfolder import Printed

_LOOK_EVERY = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # reads


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and the attempt and rank that printed it. ``rank``: None for a job on one machine."""

    attempt: int
    rank: int | None
    text: str


@dataclass
class FollowedOutput:
    """The output read so far. ``printed``: by attempt, a reader for each rank; ``done``: attempts read to the
    end."""

    broker: Broker
    printed: dict[int, list[Printed]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def new(self, view: JobView, only: int | None) -> Iterator[LogLine]:
        """The new lines of every attempt, or of the attempt ``only``. Raises `Unreachable`, possibly after some lines;
        the next call yields the rest."""
        for attempt in view.attempts:
            number = attempt.number
            if number in self.done or only not in (None, number) or not _has_begun(view, attempt):
                continue
            if number not in self.printed:
                folder = run_folders(self.broker).of(view.id)
                self.printed[number] = [Printed(folder, number, rank) for rank in range(view.job.num_nodes)]
            for rank, printed in enumerate(self.printed[number]):
                shown = rank if view.job.num_nodes > 1 else None
                yield from (LogLine(number, shown, text) for text in printed.new())
                if attempt.state.final:
                    yield from (LogLine(number, shown, text) for text in printed.last())
            if attempt.state.final:
                self.done.add(number)


def _has_begun(view: JobView, attempt: AttemptView) -> bool:
    """Whether the view shows that the attempt started, so that its output does not precede that event."""
    begun = attempt.running_at if view.job.setup is None else attempt.claimed_at
    return begun is not None or attempt.state.final


def follow(broker: Broker, job_id: str, attempt: int | None = None) -> Iterator[LogLine | None]:
    """Every line so far, then each new line, with None after each read, until the job has ended or only a person can
    continue it; with ``attempt``: until that one has ended. Lines arrive with the delay of the agent's uploads; lines
    that an agent had not uploaded when it died are lost. Reads an unreachable run store again, and restarts a
    background reconciler that died. Raises `UnknownName`, `StoreProblem`, and `RetryLater` if the run store is
    unreachable at the end."""
    attempts, looks = FollowedOutput(broker), 0
    while True:
        view = jobs.find(broker, job_id)
        try:
            yield from attempts.new(view, attempt)
            if _over(view, attempt):
                return
        except RetryLater:
            if _over(view, attempt):
                raise
        yield None
        if looks % _REVIVE_EVERY == 0:
            background.revive(broker)
        looks += 1
        broker.clock.sleep(_LOOK_EVERY)


def _over(view: JobView, attempt: int | None) -> bool:
    if attempt is not None and attempt <= view.attempt_count:
        asked = view.attempt(attempt)
        return asked is None or asked.state.final
    return view.state.final or jobs.waiting_for_people(view)
