"""A job's events and output through a team server, so far and as they come."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.documents import JobLogs, LoggedLine
from broker.app.use_cases.jobs import job_logs
from broker.core.events.outcomes import JobState
from broker.server.client import output
from broker.server.client.team_api import TeamApi
from tests.server.client.conftest import Laptop, TeamService


def test_a_job_that_waits_for_a_person_is_shown_and_not_followed_on(laptop: Laptop) -> None:
    done = laptop("status", "asking", "--wait", by="mia")
    assert done.code == 6
    assert "submitted by mia" in done.out
    assert "waiting for approval by adam, apple, mia" in done.out
    assert "adam or apple can decide" in done.out, "nobody decides their own request"
    assert laptop("logs", "asking", "--follow", by="mia").code == 0


def test_all_output_is_printed_or_the_end_of_it(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "logs", lambda *_: (f"line {n}" for n in range(12_000)))
    assert laptop("logs", "mine", by="mia").out.splitlines() == [f"line {n}" for n in range(12_000)]
    for most in (3, 6_000):
        end = laptop("logs", "mine", "--tail", str(most), "--json", by="mia").json
        assert [one["line"] for one in end["lines"]] == [f"line {n}" for n in range(12_000 - most, 12_000)]
    assert laptop("logs", "mine", "--attempt", "9", by="mia").code == 2


def test_output_is_followed_to_the_end_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "POLL_SECONDS", 0.0)
    looks = iter([(JobState.RUNNING, 2), (JobState.RUNNING, 2), (JobState.SUCCEEDED, 3)])
    printed = 0

    def run(use_case: object, id: str, *arguments: Any) -> object:
        nonlocal printed
        if use_case is job_logs:
            start: int = arguments[-1]
            return JobLogs(id="j", lines=[LoggedLine(attempt=1, line=str(n)) for n in range(start, printed)])
        state, printed = next(looks)
        return SimpleNamespace(state=state, waits_for_people=False, attempts=[])

    api = cast("Any", SimpleNamespace(run=run))
    told = output.follow(cast("TeamApi", api), "j")
    assert [one and one.text for one in told] == ["0", "1", None, None, "2"]


def test_only_what_one_may_decide_is_listed_on_request(laptop: Laptop, service: TeamService) -> None:
    def asked(by: str) -> list[str]:
        return [one["job"] for one in laptop("approvals", "list", "--mine", "--json", by=by).json["requests"]]

    assert (asked("mia"), asked("apple")) == ([], [service.world.asking])
