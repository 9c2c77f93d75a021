"""A team server, as the owner of a token: what a client does with a server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from broker.app.jobs.approval_documents import ApprovalList
from broker.app.jobs.documents import JobDetails, JobList
from broker.app.jobs.history_documents import JobHistory
from broker.app.jobs.job_files import fetch_files
from broker.app.jobs.job_input import pin_commit
from broker.app.jobs.logs import LogLine
from broker.app.jobs.plan_documents import PlanResult
from broker.app.market.offer_documents import OfferList
from broker.app.market.offer_rows import OfferFilter
from broker.app.use_cases import approvals, jobs, submission
from broker.app.use_cases.market import MAX_OFFERS
from broker.core.errors import InvalidInput
from broker.core.events.events import Event
from broker.core.events.outcomes import JobState
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from broker.server.client import output, sending
from broker.server.client.logins import SERVER, TOKEN, SavedLogin, current_login, server_url
from broker.server.client.team_api import FOLLOW_TRIES, TeamApi
from gpubroker.job_input import text


def login_of(server: str | None, token: str | None) -> SavedLogin | None:
    """The login: of ``server`` with ``token``, else from GPUBROKER_SERVER and GPUBROKER_TOKEN, else the saved one; None
    for the store of this machine. Raises `InvalidInput`."""
    if server is None:
        if token is not None:
            raise InvalidInput("a token is given and no server", hint="Client(server='https://…', token='…')")
        return current_login()
    text(server, "server")
    if server != "off" and token is None and not os.environ.get(TOKEN):
        saved = current_login()
        if saved is not None and saved.url == server_url(server):
            return saved
        raise InvalidInput(f"no token for {server}", hint=f"`gpubroker login {server}`, or Client(server=…, token=…)")
    return current_login({**os.environ, SERVER: server, **({TOKEN: token} if token else {})})


class ServerBackend:
    """Sends no request until a method is called."""

    def __init__(self, login: SavedLogin) -> None:
        self._api = TeamApi(login)
        self._api.tries = FOLLOW_TRIES

    def close(self) -> None:
        self._api.close()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def rest(self) -> None:
        """Wait until the next look at a job."""
        time.sleep(output.POLL_SECONDS)  # each look is a request, which the server counts

    def plan(self, job: Job) -> PlanResult:
        return sending.plan_on_server(self._api, job, limit=10)

    def submit(self, job: Job) -> str:
        """The id of the new job."""
        return self._api.run(submission.submit_job, **self._files(sending.resolve_job_ids(self._api, job))).id

    def _files(self, job: Job) -> dict[str, Any]:
        """The job with its files, once they are uploaded."""
        return sending.submission_body(self._api, pin_commit(job)[0])

    def find(self, reference: str) -> str:
        return sending.job_id(self._api, reference)

    def job(self, id: str) -> Job:
        file = self._api.run(jobs.job_file, id).job_file
        return parse_job(file, file=f"job {id}", now=datetime.fromtimestamp(0, UTC))  # its deadline may have passed

    def details(self, id: str) -> JobDetails:
        return self._history(id)

    def _history(self, id: str) -> JobHistory:
        return self._api.run(jobs.show_job, id)

    def listing(self, states: Sequence[JobState], users: list[str], teams: list[str], limit: int | None) -> JobList:
        names = [state.value for state in states]
        return self._api.whole(JobList, "/jobs", "jobs", limit, 200, state=names, user=users, team=teams)

    def events(self, id: str) -> Sequence[Event]:
        return self._history(id).events

    def lines(self, id: str, attempt: int | None, tail: int | None) -> Iterator[LogLine]:
        if tail is None:
            return output.lines(self._api, id, attempt=attempt)
        return iter(output.last_lines(self._api, id, tail, attempt=attempt))

    def follow(self, id: str, attempt: int | None) -> Iterator[LogLine | None]:
        return output.follow(self._api, id, attempt)

    def fetch(self, id: str, path: str | None, to: Path, attempt: int | None = None) -> list[Path]:
        """Download results at or below ``path``, or that match it as a pattern."""
        results = output.results(self._api, id, path, attempt)
        fetch_files(results, to)
        return [to / file.path for file in results]

    def cancel(self, id: str) -> None:
        self._api.run(jobs.cancel_job, id)

    def extend(self, id: str, max_cost: Money | None, max_duration: timedelta | None) -> None:
        cost = None if max_cost is None else str(max_cost)
        duration = None if max_duration is None else print_duration(max_duration)
        self._api.run(approvals.extend_job, id, cost, duration)

    def resume(self, id: str, workdir: Path | None, envs: Mapping[str, str], step: int | None) -> str:
        job = sending.original_job(self._api, id, workdir, envs)
        return self._api.run(submission.resume_job, id, step=step, **self._files(job)).id

    def retry(self, id: str, *, from_start: bool) -> str:
        return self._api.run(submission.retry_job, id, from_start).id

    def approvals(self, *, decided: bool) -> ApprovalList:
        return self._api.run(approvals.list_approvals, decided)

    def decide(self, id: str, decision: Literal["grant", "refuse"], reason: str) -> None:
        use_case = approvals.grant_approval if decision == "grant" else approvals.refuse_approval
        self._api.run(use_case, id, reason)

    def offers(self, wanted: OfferFilter, limit: int | None) -> OfferList:
        parameters = {
            "gpu": [f"{name}:{n}" for name, counts in wanted.counts.items() for n in counts]
            + [name for name, counts in wanted.counts.items() if not counts],
            "provider": wanted.providers,
            "region": wanted.regions,
            "capacity_type": sorted(wanted.capacity_types),
            "available": wanted.available or None,
            "max_price": None if wanted.max_price is None else wanted.max_price.as_json(),
        }
        return self._api.whole(OfferList, "/offers", "offers", limit, MAX_OFFERS, **parameters)
