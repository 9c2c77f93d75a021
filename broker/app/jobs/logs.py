"""Following what a job's command prints, over all its attempts, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.app.jobs import jobs
from broker.app.service import background
from broker.app.service.reconciler_setup import run_folders
from broker.app.wiring import Broker
from broker.core.errors import RetryLater
from broker.core.events.views import AttemptView, JobView
from broker.runfolder.log_tail import Printed

_LOOK_EVERY = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # looks


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and which rank of which attempt printed it; ``rank`` None for a job on one machine."""

    attempt: int
    rank: int | None
    text: str


@dataclass
class FollowedOutput:
    """What has been read of each attempt's ranks, and which attempts have nothing more to say."""

    broker: Broker
    printed: dict[int, list[Printed]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def new(self, view: JobView, only: int | None) -> Iterator[LogLine]:
        """What is new of every attempt of a view that was read before; `only` of one. Raises `Unreachable`, possibly
        after some; the rest then comes with the next call."""
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
    """Whether the view tells of what prints: so that output does not come before the event of its start."""
    begun = attempt.running_at if view.job.setup is None else attempt.claimed_at
    return begun is not None or attempt.state.final


def follow(broker: Broker, job_id: str, attempt: int | None = None) -> Iterator[LogLine | None]:
    """Every line so far, None, and then each new one as it comes, None after each look, until the job has ended or
    only a person can move it on; with ``attempt`` until that one has ended. Lines come with the delay of the agent's
    uploads, and those of an agent that dies within it do not come at all. A store that is out of reach is asked again.
    A background reconciler that dies is restarted."""
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
