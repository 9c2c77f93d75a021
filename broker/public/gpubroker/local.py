"""The broker over the store of the settings, as the operating-system user: what a client does without a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from broker.app.access.callers import local_caller
from broker.app.alerts import approvers
from broker.app.jobs import approvals, background, details, job_files, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.approval_documents import ApprovalList
from broker.app.jobs.documents import JobDetails, JobList
from broker.app.jobs.extension import extend
from broker.app.jobs.job_input import pin_commit
from broker.app.jobs.logs import LogLine, WantedOutput, follow, output_lines
from broker.app.jobs.plan_documents import PlanResult, RejectionCount, plan
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.jobs.resume import ResumeChanges, resumed_job, retried_job
from broker.app.jobs.submit import submit
from broker.app.market.offer_documents import OfferList
from broker.app.market.offer_lists import list_offers
from broker.app.market.offer_rows import OfferFilter
from broker.app.policy.policies import adopt_configured
from broker.app.use_cases.approvals import list_approvals
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.cli.terminal import defer_ctrl_c
from broker.core.actors import EntryPoint, ProcessAccount
from broker.core.errors import InvalidInput
from broker.core.events.events import Event
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offer_order import OfferOrder
from broker.core.values.money import Money
from broker.settings import check_names, read_settings
from cli import registries

_POLL_SECONDS = 0.5
_MAX_REASONS = 3


class StoreBackend:
    """``home``: the data folder; None: the one in the settings. Raises `InvalidInput` for invalid settings, and inside
    of a job, where a store would be a new one on a machine that is soon gone, unless ``home`` is given."""

    def __init__(self, home: Path | None) -> None:
        if home is None and (job := os.environ.get("GPUBROKER_JOB_ID")):
            hint = "name a server (GPUBROKER_SERVER and GPUBROKER_TOKEN), or a folder of this machine: Client(home=…)"
            raise InvalidInput(f"this runs inside of the job {job}, whose machine has no store", hint=hint)
        settings, plugins = read_settings(), registries()
        if home is not None:
            settings = settings.model_copy(update={"home": home})
        check_names(settings, plugins.providers, plugins.engines)
        self._actor = process_actor(EntryPoint.PYTHON)
        self._broker = Broker(settings, plugins, ProcessAccount(self._actor.identity))

    def close(self) -> None:
        self._broker.close()

    def now(self) -> datetime:
        return self._broker.clock.now()

    def rest(self) -> None:
        """Wait until the next look at a job; start a background process that stopped."""
        background.revive(self._broker)
        self._broker.clock.sleep(_POLL_SECONDS)

    def plan(self, job: Job) -> PlanResult:
        adopt_configured(self._broker, by=self._actor)
        return plan(self._broker, job, by=self._actor, limit=10)

    def submit(self, job: Job) -> str:
        """The id of the new job. Ctrl-C takes effect once the job is on record and runs."""
        adopt_configured(self._broker, by=self._actor)
        job = pin_commit(job)[0]
        with defer_ctrl_c() as was_interrupted:
            view = self._submit(job)
            background.ensure(self._broker, for_secrets_of=view)
            approvers.notify_approvers(self._broker, view)
        if was_interrupted():
            interrupt = KeyboardInterrupt()
            interrupt.add_note(f"The job is submitted: client.job({view.id!r})")
            raise interrupt
        return view.id

    def _submit(self, job: Job) -> JobView:
        try:
            return submit(self._broker, job, by=self._actor)
        except NoFeasibleCapacity as error:
            for reason in RejectionCount.of(error.preview)[:_MAX_REASONS]:
                error.add_note(f"{reason.count} offers: {reason.text}; fix: {reason.what_would_change_it}")
            raise

    def find(self, reference: str) -> str:
        return jobs.find(self._broker, reference).id

    def job(self, id: str) -> Job:
        return jobs.find(self._broker, id).job

    def details(self, id: str) -> JobDetails:
        return details.details(self._broker, jobs.find(self._broker, id), progress=True)

    def listing(self, states: Sequence[JobState], users: list[str], teams: list[str], limit: int | None) -> JobList:
        return details.listing(self._broker, states=states, users=users, teams=teams, limit=limit)

    def events(self, id: str) -> Sequence[Event]:
        return jobs.events(self._broker, jobs.find(self._broker, id))

    def lines(self, id: str, attempt: int | None, tail: int | None) -> Iterator[LogLine]:
        view = jobs.find(self._broker, id)
        return output_lines(self._broker, view, WantedOutput(attempt=attempt, tail=tail))

    def follow(self, id: str, attempt: int | None) -> Iterator[LogLine | None]:
        return follow(self._broker, id, WantedOutput(attempt=attempt))

    def fetch(self, id: str, path: str | None, to: Path, attempt: int | None = None) -> list[Path]:
        """Download results at or below ``path``, or that match it as a pattern; of an array, those of all tasks."""
        results = job_files.results(self._broker, jobs.find(self._broker, id), path, attempt)
        job_files.fetch_files(results, to)
        return [to / file.path for file in results]

    def cancel(self, id: str) -> None:
        jobs.cancel(self._broker, jobs.find(self._broker, id), by=self._actor)
        background.revive(self._broker)

    def extend(self, id: str, max_cost: Money | None, max_duration: timedelta | None) -> None:
        limits = JobLimits(max_cost, max_duration)
        view = extend(self._broker, jobs.find(self._broker, id), limits, by=self._actor)
        background.revive(self._broker)
        approvers.notify_approvers(self._broker, view)

    def resume(self, id: str, workdir: Path | None, envs: Mapping[str, str], step: int | None) -> str:
        changes = ResumeChanges(workdir, envs, step)
        return self.submit(resumed_job(self._broker, jobs.find(self._broker, id), changes, by=self._actor))

    def retry(self, id: str, *, from_start: bool) -> str:
        view = jobs.find(self._broker, id)
        return self.submit(retried_job(self._broker, view, by=self._actor, from_start=from_start))

    def approvals(self, *, decided: bool) -> ApprovalList:
        return list_approvals(local_caller(self._broker, self._actor), decided)

    def decide(self, id: str, decision: Literal["grant", "refuse"], reason: str) -> None:
        decide = approvals.grant if decision == "grant" else approvals.refuse
        decide(self._broker, id, reason, by=self._actor)
        background.revive(self._broker)

    def offers(self, wanted: OfferFilter, limit: int | None) -> OfferList:
        return list_offers(self._broker, wanted, OfferOrder.GPU_PRICE, limit)
