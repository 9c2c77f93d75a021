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
from broker.app.jobs import jobs, kept_files
from broker.app.jobs.bills import bill_of
from broker.app.jobs.job_input import read_job
from broker.app.jobs.past_events import story
from broker.app.jobs.preview import Preview, preview
from broker.app.jobs.repository_commit import with_commit
from broker.app.jobs.submit import submit
from broker.app.policy.policies import adopt
from broker.app.service import background
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.cli.jobs.job_view import step_words
from broker.core.actors import Actor, EntryPoint, ProcessAccount
from broker.core.errors import BrokerError, Unreachable
from broker.core.events.events import body_to_json
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import EndReason, WaitReason
from broker.core.job.file.overrides import JobOverrides
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from broker.settings import check_names, read_settings
from cli import registries
from gpubroker.job_array import combinations

_LOOK_EVERY = timedelta(seconds=0.5)  # of the broker's clock, while somebody waits for a job
_SETTLING = timedelta(seconds=20)  # of the wall clock: how long the bill of a job that has ended is waited for


@dataclass(frozen=True, slots=True)
class JobResult:
    """Where a job stands once time alone changes nothing more about it.

    ``state``: `SUCCEEDED`, `FAILED`, `CANCELLED` or `STOPPED` (early, as its array asks); or `AWAITING_APPROVAL` or
    `PAUSED_BUDGET`, when a person has to act before it goes on. ``end_reason`` says why it ended, ``wait_reason`` what
    it waits for. ``cost``, in USD: what the ledger has; ``on_demand``: the same work on the cheapest on-demand machine
    at submission, and ``savings`` the difference (None: no such machine, or the job has not ended).
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
    """One thing that happened to a job. ``at``: UTC. ``attempt``: None for what concerns the whole job. ``kind``: as
    `gpubroker jobs show --json` has it; ``fields``: what it says, as that prints it."""

    number: int
    at: datetime
    attempt: int | None
    kind: str
    fields: Mapping[str, Any]


class SubmittedJob:
    """A job in the store. What it says of itself is read from the store at each call."""

    def __init__(self, broker: Broker, job_id: str, actor: Actor) -> None:
        self._broker = broker
        self._actor = actor
        self.id = job_id
        self._over_since: float | None = None  # of the monotonic clock: when a wait first saw that it is over

    def __repr__(self) -> str:
        return f"<SubmittedJob {self.id}>"

    @property
    def job(self) -> Job:
        """What was submitted."""
        return self._view().job

    @property
    def state(self) -> JobState:
        """Where it stands now."""
        return self._view().state

    @property
    def submitted_at(self) -> datetime:
        """UTC."""
        return self._view().submitted_at

    @property
    def cost(self) -> Money:
        """USD: what the ledger has so far."""
        return bill_of(self._broker, self._view()).so_far

    @property
    def progress(self) -> str:
        """``step 120 of 400``, as its command last reported; empty if it did not."""
        view = self._view()
        return step_words(view, jobs.progress(self._broker, view))

    def result(self, timeout: timedelta | None = None) -> JobResult:
        """Wait until the job is over and its bill settled, or until it needs a person to go on; `JobResult.state` says
        which. A background reconciler that stopped is started again meanwhile.

        Raises `TimeoutError` when ``timeout`` (of the wall clock) is over first; the job goes on.
        """
        began = time.monotonic()
        while True:
            view, now = self._view(), time.monotonic()
            if view.state.final and self._over_since is None:
                self._over_since = now  # kept from call to call: `watch` makes many short ones
            settles = self._over_since is not None and now - self._over_since <= _SETTLING.total_seconds()
            if view.closed or jobs.waiting_for_people(view) or (view.state.final and not settles):
                return self._result(view)
            background.revive(self._broker)
            if timeout is not None and now - began > timeout.total_seconds():
                raise TimeoutError(f"{self.id} is {view.state.value} after {timeout.total_seconds():g} s; it continues")
            self._broker.clock.sleep(_LOOK_EVERY.total_seconds())

    def logs(self, attempt: int | None = None) -> Iterator[str]:
        """The lines that its command has printed so far, attempt by attempt (or of one), oldest first."""
        return jobs.logs(self._broker, self._view(), attempt)

    def fetch(self, to: Path, path: str | None = None) -> list[Path]:
        """Download the job's results into a folder, under their own paths; their places. Of an array, those of each
        task come into a folder named by its number. ``path``: only those at or below it, or that match it.

        Every file is verified; calling it again continues what was interrupted. Raises `UnknownName` if there is no
        such result, `InvalidInput` if a file cannot be written.
        """
        view = self._view()
        if view.job.array is not None:
            done = kept_files.fetch_array(self._broker, view, path, to)
        else:
            found = kept_files.matching(kept_files.outputs(self._broker, view), path)
            done = kept_files.fetch_outputs(self._broker, view, found, to)
        return [to / file.path for file in done.files]

    def events(self) -> list[JobEvent]:
        """Its events so far, in order. Raises `Unreachable` if some are in an archive that cannot be read."""
        found = []
        told = story(self._broker, self._view())
        if told.missing is not None:
            raise Unreachable(told.missing)
        for event in told.events:
            fields = json.loads(body_to_json(event.body))
            kind = fields.pop("kind")
            fields.pop("format", None)
            found.append(JobEvent(event.seq, event.at, event.attempt, kind, fields))
        return found

    def cancel(self) -> None:
        """Ask for it to be stopped, checkpoint first. Changes nothing of a job that has ended. Raises `NotAllowed` for
        somebody else's job."""
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

    ``home``: the data folder; None: the one in the settings (``gpubroker.toml``, ``GPUBROKER_*``), which say the rest.
    Raises `InvalidInput` for settings that are wrong.
    """

    def __init__(self, *, home: Path | None = None) -> None:
        settings, plugged = read_settings(), registries()
        if home is not None:
            settings = settings.model_copy(update={"home": home})
        check_names(settings, plugged.providers, plugged.engines)
        self._actor = process_actor(EntryPoint.PYTHON)
        self._broker = Broker(settings, plugged, ProcessAccount(self._actor.identity))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. Jobs go on in the background."""
        self._broker.close()

    def read_job(
        self, path: Path, *, envs: Mapping[str, str] | None = None, secrets: Sequence[str] = (), name: str | None = None
    ) -> Job:
        """The job of a job file or SkyPilot task file; ``envs``, ``secrets`` (names of variables of this process) and
        ``name`` go before those of the file. Raises `InvalidInput` with every finding."""
        overrides = JobOverrides(envs=dict(envs or {}), secrets=tuple(secrets), name=name)
        return read_job(path, self._broker.clock.now(), overrides)

    def plan(self, job: Job) -> Preview:
        """Where the job would run, at what cost, and what the policies say; nothing is held or launched."""
        adopt(self._broker, by=self._actor)
        return preview(self._broker, job, by=self._actor)

    def submit(self, job: Job, agreed: Preview | None = None) -> SubmittedJob:
        """Hold the money and start the job in the background, as `gpubroker submit --yes` does.

        ``agreed``: a plan that was looked at; a job that would cost more by now is not submitted. Without it, any cost
        within the job's own limits is. A job that needs approval is submitted and waits for it. Raises `NotAllowed`,
        `NoFeasibleCapacity`, `DearerNow`, `InvalidInput` or `StoreProblem`; then no job exists.
        """
        adopt(self._broker, by=self._actor)
        view = submit(self._broker, with_commit(job)[0], agreed, by=self._actor)
        background.ensure(self._broker, for_secrets_of=view)
        approvers.tell(self._broker, view)
        return SubmittedJob(self._broker, view.id, self._actor)

    def map(self, job: Job, /, **values: Iterable[object]) -> list[SubmittedJob]:
        """One job for each combination of the values, which it finds in variables of its environment:
        ``client.map(job, LEARNING_RATE=[1e-4, 3e-4], SEED=range(4))`` submits eight, each judged and held by itself.

        All or none: where one is refused, those submitted before it are cancelled. Raises what `submit` raises.
        """
        submitted: list[SubmittedJob] = []
        try:
            for one in list(combinations(job, values)):
                submitted.append(self.submit(one))
        except BaseException:
            for one_submitted in submitted:
                with suppress(BrokerError):  # one that cannot be cancelled must not leave the others running
                    one_submitted.cancel()
            raise
        return submitted

    def job(self, reference: str) -> SubmittedJob:
        """A job by its id, a unique beginning of it, or its name (the newest of that name). Raises `UnknownName`, and
        `UnreadableJob` for one that this version cannot read."""
        return SubmittedJob(self._broker, jobs.find(self._broker, reference).id, self._actor)

    def jobs(
        self,
        *,
        states: Sequence[JobState] = (),
        user: str | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> list[SubmittedJob]:
        """Jobs that match all that is given, newest first; those that this version cannot read are left out."""
        found = jobs.search(self._broker, states=states, user=user, team=team, limit=limit)
        return [SubmittedJob(self._broker, view.id, self._actor) for view in found.views]
