"""Submitted jobs, their results, and the tasks of an array."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, TypeVar, cast, overload

from broker.app.jobs.documents import JobDetails
from broker.app.jobs.history_documents import event_document
from broker.cli.jobs.follow import line_with_origin, print_output, strip_control_sequences
from broker.core.errors import BrokerError, InvalidInput, Malformed, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.job.arrays import task_id
from gpubroker import calls
from gpubroker.calls import NoResult, RemoteError
from gpubroker.job_input import Job, money, path, time_span
from gpubroker.local import StoreBackend
from gpubroker.server import ServerBackend
from gpubroker.tables import JOB_COLUMNS, html_table

Backend = StoreBackend | ServerBackend
Timeout = timedelta | float | str | None
"""A time span as `timedelta`, seconds, or text such as ``5m``; None: no limit."""
T = TypeVar("T")

_BILL_WAIT = 20.0  # seconds: the longest wait for the bill of an ended job
_LAST_LINES = 10
_MAX_TASK_ROWS = 20


class TimedOut(BrokerError, TimeoutError):
    """A wait took longer than its timeout. The job continues."""


class SubmittedJob(Generic[T]):
    """A job in the store or at the server, which every property and method asks. In a notebook it shows itself as a
    small table."""

    def __init__(self, backend: Backend, job_id: str, *, array: str | None = None, is_call: bool | None = None) -> None:
        self._backend = backend
        self.id = job_id
        self._array = array  # of a task, which exists once it begins
        self._is_call = is_call  # None: not known yet
        self._final_since: float | None = None  # when a wait first saw its end (monotonic clock)

    def __repr__(self) -> str:
        return f"<SubmittedJob {self.id}>"

    def _repr_html_(self) -> str:
        try:
            job = self.look()
        except BrokerError as error:
            return f"<p>{escape(self.id)}: {escape(str(error))}</p>"
        return html_table([job], JOB_COLUMNS) if job else f"<p>{escape(self.id)}: not begun</p>"

    @property
    def job(self) -> Job:
        """The job as it was submitted."""
        return Job.of(self._backend.job(self.id))

    @property
    def state(self) -> JobState:
        """The current state."""
        job = self.look()
        return job.state if job else JobState.QUEUED

    def look(self) -> JobDetails | None:
        """The job now: state, cost (USD), step, attempts, and why, as in `gpubroker status --json`; None for a task
        that has not begun."""
        try:
            return self._backend.details(self.id)
        except BrokerError as error:
            is_unknown = isinstance(error, UnknownName) or getattr(error, "kind", "") == "unknown_name"
            if self._array is None or not is_unknown:
                raise
            return None

    def wait(self, timeout: Timeout = None) -> JobDetails:
        """Wait until the job has ended and its bill is settled, or until it needs a person to continue;
        its ``state`` says which. During the wait, a background process that stopped is started again.

        Raises `TimedOut` if ``timeout`` (wall clock) ends first; the job continues, also after Ctrl-C.
        """
        return self._wait(timeout, with_bill=True)

    def result(self, timeout: Timeout = None, *, trust: bool = False) -> T:
        """Wait for the job. Of a function: what it returned, or raises what it raised: an exception of a class of
        Python itself, else `RemoteError`; `NoResult` if the job has none to give. Of any other job: as `wait`.

        A result is data: numbers, text, bytes, lists, tuples, dicts, sets and NumPy arrays. Anything else is a pickle,
        which could run any code of the machine here: it is loaded only with ``trust``.
        """
        if not self._is_function():
            return cast("T", self.wait(timeout))
        return cast("T", self._value(self._wait(timeout, with_bill=False), trust=trust))

    def exception(self, timeout: Timeout = None) -> Exception | None:
        """Wait for the job, and return why it has no result: what its function raised, as `result` raises it, or
        `NoResult`; None if it succeeded. Raises `TimedOut` as `wait`."""
        job = self._wait(timeout, with_bill=False)
        if job.state is JobState.SUCCEEDED:
            return None
        try:
            self._value(job, trust=False)
        except (NoResult, RemoteError, Malformed) as error:
            return error
        except BrokerError:  # its result cannot be asked for now
            raise
        except Exception as error:  # noqa: BLE001  # whatever the function raised
            return error
        return None

    def done(self) -> bool:
        """Whether the job has ended, with a result or without. Does not wait."""
        job = self.look()
        return job.state.final if job else self._array_is_over()

    def _is_function(self) -> bool:
        if self._is_call is None:
            job = self._backend.job(self.id)
            self._is_call = calls.FOLDER in job.file_mounts and job.array is None
        return self._is_call

    @overload
    def logs(
        self, *, follow: Literal[False] = False, attempt: int | None = ..., tail: int | None = ...
    ) -> list[str]: ...
    @overload
    def logs(self, *, follow: Literal[True], attempt: int | None = ...) -> None: ...
    def logs(self, *, follow: bool = False, attempt: int | None = None, tail: int | None = None) -> list[str] | None:
        """The lines that the job's command has printed so far, oldest first: of all attempts or of one, all or the last
        ``tail``. With ``follow``, print them to stdout as they come instead, until the job has ended."""
        if not follow:
            return [line_with_origin(line) for line in self._backend.lines(self._begun_id(), attempt, tail)]
        while self.look() is None and not self._array_is_over():
            self._backend.rest()
        for line in self._backend.follow(self._begun_id(), attempt):
            if line is None:
                sys.stdout.flush()
            else:
                print_output(sys.stdout, [line_with_origin(line)])
        return None

    def fetch(self, to: str | Path, path_in_job: str | None = None) -> list[Path]:
        """Download the job's results into the folder ``to``, under their own paths. Returns the paths of the files. Of
        an array, the results of each task are put into a folder named by its number. ``path_in_job``: only results at
        or below this path, or that match it as a pattern.

        Idempotent: every file is verified, complete files are not read again, interrupted downloads are continued.
        Files with other content are overwritten. Raises `UnknownName` if there is no such result, `InvalidInput` if a
        file cannot be written, `Unreachable`.
        """
        return self._backend.fetch(self._begun_id(), path_in_job, path(to, "fetch"))

    def events(self) -> list[dict[str, Any]]:
        """The job's events so far, in order: ``seq``, ``at``, ``attempt``, ``kind`` and the fields of that kind."""
        return [event_document(event) for event in self._backend.events(self._begun_id())]

    def cancel(self) -> None:
        """Request that the job be stopped after a last checkpoint; returns at once. Idempotent; a job that has ended
        stays as it is. Raises `NotAllowed` for another person's job."""
        self._backend.cancel(self._begun_id())

    def extend(self, *, max_cost: object = None, max_duration: object = None) -> None:
        """Raise a job's limits; a paused job continues. The policies judge it, and may want an approval. Raises
        `InvalidInput`, `NotAllowed`."""
        cost = None if max_cost is None else money(max_cost, "max_cost")
        duration = None if max_duration is None else time_span(max_duration, "max_duration")
        self._backend.extend(self._begun_id(), cost, duration)

    def resume(
        self, *, workdir: str | Path | None = None, envs: Mapping[str, object] | None = None, step: int | None = None
    ) -> SubmittedJob[T]:
        """Continue an ended job from its newest checkpoint, or that of ``step``, with its files as they are now, or
        those of ``workdir``: a new job. A function runs again as it was submitted. Raises what `Client.submit`
        raises."""
        job_id, is_call = self._begun_id(), calls.FOLDER in self._backend.job(self.id).file_mounts
        if is_call and (workdir is not None or envs or step is not None):
            hint = f"submit the changed function: submit(f, …, resume_from={self.id!r})"
            raise InvalidInput("a function is resumed as it was submitted", where="resume", hint=hint)
        if is_call:
            return self.retry()
        folder = None if workdir is None else path(workdir, "workdir").expanduser().absolute()
        texts = {str(name): str(value) for name, value in (envs or {}).items()}
        return SubmittedJob(self._backend, self._backend.resume(job_id, folder, texts, step))

    def retry(self, *, from_start: bool = False) -> SubmittedJob[T]:
        """Run an ended job again with the files that it was submitted with, from its newest checkpoint if it has one
        and ``from_start`` is not set: a new job. Of an array, the tasks that did not succeed."""
        new_id = self._backend.retry(self._begun_id(), from_start=from_start)
        return SubmittedJob(self._backend, new_id, is_call=self._is_call)

    def _begun_id(self) -> str:
        if self._array is not None and self.look() is None:
            hint = "`result()` waits for it; `cancel()` of all tasks cancels it"
            raise InvalidInput(f"{self.id} has not begun", hint=hint)
        return self.id

    def _array_is_over(self) -> bool:
        array = self._backend.details(self._array) if self._array else None
        return array is not None and (array.state.final or array.waits_for_people)

    def _wait(self, timeout: Timeout, *, with_bill: bool) -> JobDetails:
        limit = None if timeout is None else time_span(timeout, "timeout").total_seconds()
        started = time.monotonic()
        try:
            while True:
                job, now = self.look(), time.monotonic()
                if job is None and self._array_is_over():
                    raise NoResult(
                        f"{self.id} never began: its array has ended or waits", hint=f"client.job({self._array!r})"
                    )
                if job is not None and self._is_over(job, now, with_bill=with_bill):
                    return job
                if limit is not None and now - started > limit:
                    state = job.state.value if job else "not begun"
                    hint = "wait again, or `cancel()` it"
                    raise TimedOut(f"{self.id} is {state} after {limit:g} s; it continues", hint=hint)
                self._backend.rest()
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"{self.id} continues; client.job({self.id!r}).result() waits for it again")
            raise

    def _is_over(self, job: JobDetails, now: float, *, with_bill: bool) -> bool:
        if job.state.final and self._final_since is None:
            self._final_since = now  # kept between calls: `watch` makes many short ones
        is_settling = with_bill and self._final_since is not None and now - self._final_since <= _BILL_WAIT
        return job.closed or job.waits_for_people or (job.state.final and not is_settling)

    def _value(self, job: JobDetails, *, trust: bool) -> Any:
        if job.waits_for_people:
            hint = f"`client.grant({job.id!r})` approves it, `extend(max_cost=…)` gives it more money"
            raise NoResult(f"{job.id} waits for a person: {job.waiting_because or job.state.value}", hint=hint)
        with TemporaryDirectory() as folder:
            if job.attempt_count:
                with suppress(UnknownName):
                    self._backend.fetch(job.id, calls.RESULT_FILES, Path(folder), job.attempt_count)
            if calls.has_result(Path(folder)):
                return calls.value_of(Path(folder), job.id, trust=trust)
        error = NoResult(f"{job.id} has no result: {job.because or job.state.value}", hint="`logs()` has its output")
        lines = [strip_control_sequences(line.text) for line in self._backend.lines(job.id, None, _LAST_LINES)]
        if lines:
            error.add_note("\n".join(["Its last lines:", *lines]))
        raise error


class Tasks(SubmittedJob[JobDetails], Sequence[SubmittedJob[T]]):
    """The tasks of an array, in the order of their values, and the array itself: its state, cost and output. If one
    fails, the others go on."""

    def __init__(self, backend: Backend, array_id: str, count: int, *, is_call: bool) -> None:
        super().__init__(backend, array_id, is_call=False)
        self._jobs: list[SubmittedJob[T]] = [
            SubmittedJob(backend, task_id(array_id, number), array=array_id, is_call=is_call) for number in range(count)
        ]

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, place: int) -> SubmittedJob[T]: ...
    @overload
    def __getitem__(self, place: slice) -> list[SubmittedJob[T]]: ...
    def __getitem__(self, place: int | slice) -> SubmittedJob[T] | list[SubmittedJob[T]]:
        return self._jobs[place]

    def __repr__(self) -> str:
        return f"<{len(self)} tasks of {self.id}>"

    def _repr_html_(self) -> str:
        shown: list[SubmittedJob[Any]] = [self, *self._jobs[:_MAX_TASK_ROWS]]
        rows = [job for task in shown if (job := task.look()) is not None]
        return html_table(rows, JOB_COLUMNS)

    def results(self, timeout: Timeout = None, *, trust: bool = False) -> list[T]:
        """The results of all tasks, in order; ``timeout`` is for each. Raises what the first of them raises."""
        return [task.result(timeout, trust=trust) for task in self]

    def exception(self, timeout: Timeout = None) -> Exception | None:
        """Wait for the tasks, ``timeout`` for each, until one has failed, and return its exception; None if all
        succeeded."""
        return next((error for task in self if (error := task.exception(timeout)) is not None), None)
