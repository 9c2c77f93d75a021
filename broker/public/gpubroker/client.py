"""The client: one broker over one store, the jobs submitted to it, and their results."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from broker.app.alerts import approvers
from broker.app.jobs import details, job_files, jobs
from broker.app.jobs.bills import bill_of
from broker.app.jobs.job_input import pin_commit, read_job
from broker.app.jobs.preview import Preview, preview
from broker.app.jobs.submit import submit
from broker.app.policy.policies import adopt_configured
from broker.app.service import background
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.cli.jobs.job_view import step_text
from broker.core.actors import Actor, EntryPoint, ProcessAccount
from broker.core.errors import BrokerError
from broker.core.events.events import body_to_json
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import EndReason, WaitReason
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from broker.settings import check_names, read_settings
from cli import registries
from gpubroker.job_array import combinations

_POLL_INTERVAL = timedelta(seconds=0.5)  # between two reads of the store during a wait (broker's clock)
_BILL_WAIT = timedelta(seconds=20)  # longest wait for the bill of an ended job (wall clock)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job that has ended, or its state if it needs a person to continue.

    ``state``: `SUCCEEDED`, `FAILED`, `CANCELLED` or `STOPPED` (early, as its array asks); or `AWAITING_APPROVAL` or
    `PAUSED_BUDGET`, when a person must act before it continues. ``end_reason`` says why it ended, ``wait_reason`` what
    it waits for. All amounts are USD. ``cost``: what was settled in the ledger, plus an estimate of what a running
    machine has used since; final once the bill is settled. ``on_demand``: the cost of the same work on the machine that
    was the cheapest on demand at submission; ``savings``: its difference to what was paid for the job, without
    amortized money. Both are None if there was no such machine, or the job has not ended.
    """

    id: str
    state: JobState
    end_reason: EndReason | None
    wait_reason: WaitReason | None
    cost: Money
    on_demand: Money | None
    savings: Money | None
    attempts: int
    interruptions: int

    @property
    def succeeded(self) -> bool:
        return self.state is JobState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job. ``number``: its place in the order of recording, from 1; ``at``: UTC; ``attempt``: None for
    an event of the whole job. ``kind`` and ``fields``: the kind of event and its data, as in `gpubroker jobs show
    --json`."""

    number: int
    at: datetime
    attempt: int | None
    kind: str
    fields: Mapping[str, Any]


class SubmittedJob:
    """A job in the store. Each property and method reads the store when it is called. All may raise `StoreProblem`."""

    def __init__(self, broker: Broker, job_id: str, actor: Actor) -> None:
        self._broker = broker
        self._actor = actor
        self.id = job_id
        self._final_since: float | None = None  # when a wait first saw its end (monotonic clock)

    def __repr__(self) -> str:
        return f"<SubmittedJob {self.id}>"

    @property
    def job(self) -> Job:
        """The job as it was submitted."""
        return self._view().job

    @property
    def state(self) -> JobState:
        """The current state."""
        return self._view().state

    @property
    def submitted_at(self) -> datetime:
        """The time of submission (UTC)."""
        return self._view().submitted_at

    @property
    def cost(self) -> Money:
        """What was settled in the ledger, plus an estimate of what a running machine has used since (USD)."""
        return bill_of(self._broker, self._view()).so_far

    @property
    def progress(self) -> str:
        """``step 120 of 400``, as its command last reported; empty without a report."""
        job_details = details.details(self._broker, self._view(), progress=True)
        return step_text(job_details.step, job_details.total_steps)

    def result(self, timeout: timedelta | None = None) -> JobResult:
        """Wait until the job has ended and its bill is settled, or until it needs a person to continue;
        `JobResult.state` says which. During the wait, a background reconciler that stopped is started again.

        Raises `TimeoutError` if ``timeout`` (wall clock; None: no limit) ends first; the job continues.
        """
        started = time.monotonic()
        while True:
            view, now = self._view(), time.monotonic()
            if view.state.final and self._final_since is None:
                self._final_since = now  # kept between calls: `watch` makes many short ones
            is_settling = self._final_since is not None and now - self._final_since <= _BILL_WAIT.total_seconds()
            if view.closed or jobs.is_waiting_for_people(view) or (view.state.final and not is_settling):
                return self._result(view)
            background.revive(self._broker)
            if timeout is not None and now - started > timeout.total_seconds():
                raise TimeoutError(f"{self.id} is {view.state.value} after {timeout.total_seconds():g} s; it continues")
            self._broker.clock.sleep(_POLL_INTERVAL.total_seconds())

    def logs(self, attempt: int | None = None) -> Iterator[str]:
        """The lines that the job's command has printed so far, of all attempts or of one, oldest first. Raises
        `Unreachable`."""
        return jobs.logs(self._broker, self._view(), attempt)

    def fetch(self, to: Path, path: str | None = None) -> list[Path]:
        """Download the job's results into the folder ``to``, under their own paths. Returns the paths of the files. Of
        an array, the results of each task are put into a folder named by its number. ``path``: only results at or below
        this path, or that match it as a pattern.

        Idempotent: every file is verified, complete files are not read again, interrupted downloads are continued.
        Files with other content are overwritten. Raises `UnknownName` if there is no such result, `InvalidInput` if a
        file cannot be written, `Unreachable`.
        """
        view = self._view()
        if view.job.array is not None:
            download = job_files.fetch_array(self._broker, view, path, to)
        else:
            results = job_files.matching_outputs(job_files.outputs(self._broker, view), path)
            download = job_files.fetch_outputs(self._broker, view, results, to)
        return [to / file.path for file in download.files]

    def events(self) -> list[JobEvent]:
        """The job's events so far, in order."""
        job_events = []
        for event in jobs.events(self._broker, self._view()):
            fields = json.loads(body_to_json(event.body))
            kind = fields.pop("kind")
            fields.pop("format", None)
            job_events.append(JobEvent(event.seq, event.at, event.attempt, kind, fields))
        return job_events

    def cancel(self) -> None:
        """Request that the job be stopped after a last checkpoint; returns at once. Idempotent; a job that has ended
        stays as it is. Raises `NotAllowed` for another person's job."""
        jobs.cancel(self._broker, self._view(), by=self._actor)
        background.revive(self._broker)

    def _view(self) -> JobView:
        return jobs.find(self._broker, self.id)

    def _result(self, view: JobView) -> JobResult:
        bill = bill_of(self._broker, view)
        return JobResult(
            id=view.id,
            state=view.state,
            end_reason=view.ending,
            wait_reason=view.waiting,
            cost=bill.so_far,
            on_demand=bill.on_demand,
            savings=bill.savings,
            attempts=view.attempt_count,
            interruptions=view.interruptions,
        )


class Client:
    """A broker over one store, as the operating-system user of this process. Thread-safe.

    ``home``: the data folder; None: the one in the settings (``gpubroker.toml``, ``GPUBROKER_*``). Everything else is
    as the settings say. Raises `InvalidInput` for invalid settings.
    """

    def __init__(self, *, home: Path | None = None) -> None:
        settings, plugins = read_settings(), registries()
        if home is not None:
            settings = settings.model_copy(update={"home": home})
        check_names(settings, plugins.providers, plugins.engines)
        self._actor = process_actor(EntryPoint.PYTHON)
        self._broker = Broker(settings, plugins, ProcessAccount(self._actor.identity))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. Jobs continue in the background."""
        self._broker.close()

    def read_job(
        self, path: Path, *, envs: Mapping[str, str] | None = None, secrets: Sequence[str] = (), name: str | None = None
    ) -> Job:
        """The job of a job file or SkyPilot task file; ``envs``, ``secrets`` (names of variables of this process) and
        ``name`` take precedence over those of the file. Raises `InvalidInput` with every problem of the file."""
        overrides = JobOverrides(envs=dict(envs or {}), secrets=tuple(secrets), name=name)
        return read_job(path, self._broker.clock.now(), overrides)

    def plan(self, job: Job) -> Preview:
        """Where the job would run, at what cost (USD), and what the policies say, by the prices now in the store. Holds
        no money and launches nothing. Raises `InvalidInput` for a job that cannot be planned."""
        adopt_configured(self._broker, by=self._actor)
        return preview(self._broker, job, by=self._actor)

    def submit(self, job: Job, agreed: Preview | None = None) -> SubmittedJob:
        """Hold the money and start the job in the background, as `gpubroker submit --yes` does.

        ``agreed``: a plan that the caller accepted: the job is not submitted if it costs more now. Without a plan, any
        cost within the job's own limits is accepted. A job that needs approval is submitted and waits for it. Not
        idempotent: each call submits a job. Raises `NotAllowed`, `NoFeasibleCapacity`, `DearerNow`, `InvalidInput`,
        `StoreProblem` or `Unreachable`; then no job exists.
        """
        adopt_configured(self._broker, by=self._actor)
        view = submit(self._broker, pin_commit(job)[0], agreed, by=self._actor)
        background.ensure(self._broker, for_secrets_of=view)
        approvers.notify_approvers(self._broker, view)
        return SubmittedJob(self._broker, view.id, self._actor)

    def map(self, job: Job, /, **values: Iterable[object]) -> list[SubmittedJob]:
        """Submit one job for each combination of the values, at most 10,000. A job gets its values in environment
        variables: ``client.map(job, LEARNING_RATE=[1e-4, 3e-4], SEED=range(4))`` submits eight jobs. Each is judged by
        itself and has its own hold.

        If one is refused, those submitted before it are cancelled. Raises what `submit` raises.
        """
        submitted: list[SubmittedJob] = []
        try:
            for variant in list(combinations(job, values)):
                submitted.append(self.submit(variant))
        except BaseException:
            for earlier in submitted:
                with suppress(BrokerError):  # if one cannot be cancelled, still cancel the others
                    earlier.cancel()
            raise
        return submitted

    def job(self, reference: str) -> SubmittedJob:
        """The job with that id, that unique beginning of an id, or that name (the open one, else the newest).
        Raises `UnknownName`, `InvalidInput` if several open jobs have that name, and `UnreadableJob` for one that this
        version cannot read."""
        return SubmittedJob(self._broker, jobs.find(self._broker, reference).id, self._actor)

    def jobs(
        self,
        *,
        states: Sequence[JobState] = (),
        user: str | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> list[SubmittedJob]:
        """The jobs that match all given arguments, newest first; jobs that this version cannot read are left out.
        ``limit``: the maximum number; None: all."""
        users, teams = [user] if user else [], [team] if team else []
        listing = jobs.search(self._broker, states=states, users=users, teams=teams, limit=limit)
        return [SubmittedJob(self._broker, view.id, self._actor) for view in listing.views]
