"""Lost and strange answers of a team server: what a person is told, and that nothing is done twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import httpx
import pytest

from broker.app.jobs import jobs
from broker.core.errors import Unreachable
from broker.core.events.outcomes import JobState
from broker.server.client.team_api import TeamApi
from tests.server.client.conftest import Laptop, TeamService
from tests.server.world import POLICY

ESCAPE = "\x1b]0;not the title\x07"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))


def test_a_rollback_is_made_once_although_the_first_answer_is_lost(
    service: TeamService, laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, store, sent, lost = tmp_path / "team.yaml", service.world.broker.store, TeamApi._send, list[str]()
    for limit in ("$5", "$6"):
        file.write_text(POLICY.replace("cost: $4", f"cost: {limit}"))
        assert laptop("policy", "apply", str(file), "--yes", by="adam").code == 0
    active = store.active_policy()
    assert active is not None

    def lossy(api: TeamApi, method: str, path: str, **more: Any) -> httpx.Response:
        answer = sent(api, method, path, **more)
        if path.endswith("/policies/rollback") and not lost:
            lost.append(path)
            raise Unreachable("the connection was closed")
        return answer

    monkeypatch.setattr(TeamApi, "_send", lossy)
    done = laptop("policy", "rollback", "--yes", by="adam")
    assert (done.code, len(lost), f"Version {active.number + 1} is active." in done.out) == (0, 1, True), done.err
    after = store.active_policy()
    assert after is not None
    assert (after.number, "cost: $5" in after.files["team.yaml"]) == (active.number + 1, True)


@pytest.mark.parametrize(
    ("error", "unknown"),
    [(httpx.ReadTimeout, True), (httpx.RemoteProtocolError, True), (httpx.ConnectError, False)],
)
def test_a_change_without_an_answer_may_have_been_made(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, error: type[httpx.TransportError], unknown: bool
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise error("broken")

    monkeypatch.setattr(httpx.Client, "request", broken)
    done = laptop("capacity", "buy", "1", by="mia")
    assert (done.code, "whether the change was made is not known" in done.err) == (5, unknown), done.err
    assert ("GPUBROKER_SERVER=off" in done.err) is not unknown
    assert "not known" not in laptop("capacity", "purchases", by="mia").err


FOLLOWING = [("status", "mine", "--wait"), ("logs", "mine", "-f")]


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_server_that_restarts_or_is_gone_does_not_lose_the_follower_of_a_job(
    laptop: Laptop, service: TeamService, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    id, request, pauses, broken = service.world.mine, httpx.Client.request, list[float](), list[int]()

    def failing(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        if path.endswith(f"/jobs/{id}") and pauses.count(-1) and len(broken) < fails:
            broken.append(1)
            raise httpx.ConnectError("refused")
        return request(client, method, path, **more)

    def looked(seconds: float) -> None:
        """Between two looks; the third one ends the test as the person would."""
        pauses.append(-1)
        if pauses.count(-1) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(httpx.Client, "request", failing)
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr("time.sleep", looked)
    fails = 10
    done = laptop(*command, by="mia")
    assert (done.code, len(broken)) == (130, 10), done.err
    fails = 1_000
    pauses.clear()
    done = laptop(*command, by="mia")
    assert done.code == 5
    assert f"the job continues: `gpubroker status {id}`" in done.err
    assert "GPUBROKER_SERVER=off" not in done.err
    assert 50 < sum(one for one in pauses if one > 0) < 130


def test_a_revoked_token_does_not_end_the_job_that_was_followed(
    laptop: Laptop, service: TeamService, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = httpx.Client.request

    def revoked(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        monkeypatch.setattr(httpx.Client, "request", gone)
        return request(client, method, path, **more)

    def gone(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.Response(401, json={}, request=httpx.Request(method, f"http://server{path}"))

    monkeypatch.setattr(httpx.Client, "request", revoked)
    done = laptop("logs", "mine", "-f", by="mia")
    assert (done.code, f"the job continues: `gpubroker status {service.world.mine}`" in done.err) == (5, True)


def test_ctrl_c_during_a_change_says_that_it_may_have_been_made(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(httpx.Client, "request", pressed)
    done = laptop("capacity", "buy", "1", by="mia")
    assert (done.code, "whether the change was made is not known" in done.err) == (130, True)
    assert laptop("capacity", "purchases", by="mia").err == "Stopped.\n"


def test_an_approval_is_told_although_its_rules_cannot_be_read(
    service: TeamService, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = TeamApi.get

    def lost(api: TeamApi, path: str, **more: Any) -> Any:
        if path.startswith("/jobs/"):
            raise Unreachable("the connection was closed")
        return get(api, path, **more)

    monkeypatch.setattr(TeamApi, "get", lost)
    done = laptop("approvals", "grant", "asking", by="apple")
    view = jobs.find(service.world.broker, service.world.asking)
    assert view.state is not JobState.AWAITING_APPROVAL
    assert (done.code, f"{view.id}: approval recorded" in done.out) == (0, True), done.err


@pytest.mark.parametrize("answer", [{}, {"jobs": None}, {"jobs": [{}]}, {"jobs": [1]}])
@pytest.mark.parametrize("command", [("jobs", "list"), ("status", "--mine"), ("status", "mine"), ("cancel", "mine")])
def test_an_answer_without_its_fields_is_refused_in_a_sentence(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], answer: dict[str, Any]
) -> None:
    def strange(client: httpx.Client, method: str, path: str, **_: object) -> httpx.Response:
        assert method == "GET", "nothing is changed"
        return httpx.Response(200, json=answer, request=httpx.Request(method, f"http://server{path}"))

    monkeypatch.setattr(httpx.Client, "request", strange)
    done = laptop(*command, by="mia")
    assert (done.code, "use the same version here and on the server" in done.err) == (5, True), done.err


def test_an_event_without_its_fields_is_refused_in_a_sentence(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    get = TeamApi.get

    def strange(api: TeamApi, path: str, **more: Any) -> Any:
        found = get(api, path, **more)
        for event in found.get("events", ()):
            event.pop("seq")
        return found

    monkeypatch.setattr(TeamApi, "get", strange)
    done = laptop("status", "mine", by="mia")
    assert (done.code, "events.0: Value error, not an event of a job" in done.err) == (5, True), done.err


@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_server_tells_does_not_control_the_terminal(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    get = TeamApi.get

    def spoiled(api: TeamApi, path: str, **more: Any) -> Any:
        found = get(api, path, **more)
        for one in found.get("jobs", ()):
            one.update(name=f"a{ESCAPE}b", team=f"c{ESCAPE}d", waiting_because=ESCAPE)
        for one in found.get("versions", ()):
            one.update(note=f"note{ESCAPE}")
        return found

    monkeypatch.setattr(TeamApi, "get", spoiled)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    seen = [laptop(*command, by="adam") for command in (("jobs", "list"), ("policy", "show", "--versions"))]
    assert [one.code for one in seen] == [0, 0]
    assert "note\\x1b]0;not" in seen[1].out
    assert all("\x1b]" not in one.out and "\x07" not in one.out for one in seen)


def test_an_empty_value_is_not_the_same_as_no_option(laptop: Laptop) -> None:
    refused = laptop("jobs", "list", "--where", "array=", by="mia")
    assert (refused.code, "expected KEY=VALUE; got 'array='" in refused.err) == (2, True), refused.err


def test_recorded_verdicts_are_not_judged_by_other_files(laptop: Laptop, tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(POLICY)
    refused = laptop("policy", "explain", "mine", "--policy", str(file), by="adam")
    assert (refused.code, "--policy: a submitted job has its decisions on record" in refused.err) == (2, True)
