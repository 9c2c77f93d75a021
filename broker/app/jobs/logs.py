"""Following the output of a job's command, over all attempts, on every engine."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from broker.app.jobs import background, jobs
from broker.app.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, RetryLater
from broker.core.events.outcomes import JobState
from broker.core.events.views import AttemptView, JobView
from broker.engines.runfolder.runfolder import OutputTail

_POLL_SECONDS = 0.5  # seconds of the wall clock
_REVIVE_EVERY = 4  # reads
_TASKS_PER_POLL = 100  # tasks: the more there are, the less often each is read


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and the attempt and rank that printed it. ``rank``: None for a job on one machine; ``task``: the number
    of the task that printed it, None if no array is read."""

    attempt: int
    rank: int | None
    text: str
    task: int | None = None


@dataclass
class OutputFollower:
    """The output read so far. ``output_lines``: by attempt, a reader for each rank; ``done``: attempts read to the
    end."""

    broker: Broker
    printed: dict[int, list[OutputTail]] = field(default_factory=dict)
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
                self.printed[number] = [OutputTail(folder, number, rank) for rank in range(view.job.num_nodes)]
            for rank, reader in enumerate(self.printed[number]):
                shown_rank = rank if view.job.num_nodes > 1 else None
                yield from (LogLine(number, shown_rank, text) for text in reader.new())
                if attempt.state.final:
                    yield from (LogLine(number, shown_rank, text) for text in reader.last())
            if attempt.state.final:
                self.done.add(number)


def _has_begun(view: JobView, attempt: AttemptView) -> bool:
    """Whether the view shows that the attempt started, so that its output does not precede that event."""
    started_at = attempt.running_at if view.job.setup is None else attempt.claimed_at
    return started_at is not None or attempt.state.final


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """Which output: of one attempt, of one node; of an array's tasks all, the one with a number, or those that failed.
    ``tail``: only the last lines of each job or task."""

    attempt: int | None = None
    node: int | None = None
    task: int | None = None
    failed: bool = False
    tail: int | None = None


def output_lines(broker: Broker, view: JobView, output_filter: WantedOutput) -> Iterator[LogLine]:
    """The lines that a job's command printed, oldest first; those of an array task by task. Raises `InvalidInput` for
    an attempt, node or task that there is not, `Unreachable`."""
    for job in _read_jobs(broker, view, output_filter):
        if output_filter.attempt is not None and output_filter.attempt > job.attempt_count and view.job.array is None:
            available_text = f"the last one is {job.attempt_count}" if job.attempts else "it has not been launched yet"
            raise InvalidInput(f"{job.id} has no attempt {output_filter.attempt}; {available_text}")
        task = _task_number(view, job)
        numbers = [output_filter.attempt] if output_filter.attempt else [attempt.number for attempt in job.attempts]
        lines = (
            LogLine(n, None, text, task) for n in numbers for text in jobs.logs(broker, job, n, output_filter.node)
        )
        yield from (
            lines if output_filter.tail is None else deque(lines, maxlen=output_filter.tail)
        )  # keeps only these in memory


def _read_jobs(broker: Broker, view: JobView, output_filter: WantedOutput) -> Sequence[JobView]:
    """The job, or the tasks of an array whose output is wanted, in the order of their start."""
    if view.job.array is None:
        if output_filter.task is not None or output_filter.failed:
            raise InvalidInput(f"{view.id} is not an array: --task and --failed select tasks of one")
        return [view]
    with broker.store.reading() as reader:
        tasks = reader.tasks_of(view.id, [JobState.FAILED.value] if output_filter.failed else ())
    if output_filter.task is None:
        return tasks
    matching_tasks = [task for task in tasks if _task_number(view, task) == output_filter.task]
    if not matching_tasks:
        raise InvalidInput(
            f"{view.id} has no task {output_filter.task} that has "
            f"started{' and failed' if output_filter.failed else ''}",
            hint=f"`gpubroker jobs list --where array={view.id}` lists its tasks",
        )
    return matching_tasks


def _task_number(array: JobView, task: JobView) -> int | None:
    return task.job.task.index if array.job.array is not None and task.job.task is not None else None


def follow(broker: Broker, job_id: str, output_filter: WantedOutput) -> Iterator[LogLine | None]:
    """Every line so far, then each new line, with None after each read, until the job has ended or only a person can
    continue it; with an attempt: until that one has ended. The lines of an array's tasks come as they are printed, also
    those of tasks that start meanwhile. Lines arrive with the delay of the agent's uploads; lines that an agent had not
    uploaded when it died are lost. Reads an unreachable run store again, and restarts a background reconciler that
    died. Raises `UnknownName`, `StoreProblem`, and `RetryLater` if the run store is unreachable at the end."""
    outputs, ended_ids, reads = dict[str, OutputFollower](), set[str](), 0
    while True:
        view = jobs.find(broker, job_id)
        jobs_read, is_over = _read_jobs(broker, view, output_filter), _is_finished(view, output_filter.attempt)
        try:
            for job in jobs_read:
                if job.id in ended_ids:
                    continue
                output, task = outputs.setdefault(job.id, OutputFollower(broker)), _task_number(view, job)
                for line in output.new(job, output_filter.attempt):
                    yield line if task is None else replace(line, task=task)
                if job.state.final:
                    ended_ids.add(job.id)
            is_over = is_over or (
                output_filter.task is not None and all(_is_finished(job, output_filter.attempt) for job in jobs_read)
            )
            if is_over:
                return
        except RetryLater:
            if is_over:
                raise
        yield None
        if reads % _REVIVE_EVERY == 0:
            background.revive(broker)
        reads += 1
        broker.clock.sleep(_POLL_SECONDS * (1 + len(jobs_read) // _TASKS_PER_POLL))


def _is_finished(view: JobView, attempt: int | None) -> bool:
    if attempt is not None and view.job.array is None and attempt <= view.attempt_count:
        attempt_view = view.attempt(attempt)
        return attempt_view is None or attempt_view.state.final
    return view.state.final or jobs.is_waiting_for_people(view)
