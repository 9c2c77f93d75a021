"""Tokens that are missing, wrong, stolen, expired or revoked; many wrong ones; what answers and logs tell of them."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.access import people, tokens
from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceResponder
from broker.core.access.api_tokens import new_text
from broker.core.access.people import TokenScope
from broker.core.errors import StoreProblem
from broker.core.values.clock import ManualClock
from broker.server.api.application import Envelope, api
from broker.server.api.limits import WrongTokens
from broker.server.api.transport import Transport
from tests.actors import ROOT, with_clock
from tests.server.world import Company, bearer, client_of

ME = "/api/v1/me"


def status(world: Company, token: str) -> int:
    found: int = world.client.get(ME, headers=bearer(token)).status_code
    return found


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic bWlhOm1pYQ==",
        f"Bearer gpb_{'0' * 12}_{'0' * 64}",
        "Bearer é",
        "gpb_1_2",
    ],
)
def test_what_is_no_token_lets_nobody_in(world: Company, header: str) -> None:
    answer = world.client.get(ME, headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_in_the_address_is_no_token(world: Company) -> None:
    assert (
        world.client.get(ME, params={"token": world.token("mia"), "access_token": world.token("mia")}).status_code
        == 401
    )


def test_a_role_that_was_taken_back_counts_no_more(world: Company) -> None:
    token = world.token("mia")
    assert world.client.get("/api/v1/jobs", headers=bearer(token)).status_code == 200
    people.take_role(world.broker, "mia", team="nlp", by=ROOT)
    assert world.client.get("/api/v1/jobs", headers=bearer(token)).status_code == 403
    people.disable(world.broker, "mia", by=ROOT)
    assert status(world, token) == 401


def test_an_expired_token_lets_nobody_in(world: Company, clock: ManualClock) -> None:
    broker = with_clock(world.broker, clock)
    token = tokens.create(broker, "mia", "", [TokenScope.READ], timedelta(hours=1), by=ROOT).text
    app = api(broker, ServiceResponder(broker, Pulses(), None), WrongTokens(), Transport())
    client = client_of(Envelope(app))
    assert client.get(ME, headers=bearer(token)).status_code == 200
    clock.advance(timedelta(hours=1))
    assert client.get(ME, headers=bearer(token)).status_code == 401


def test_wrong_expired_and_unknown_tokens_look_alike(world: Company) -> None:
    good = world.token("mia")
    wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
    answers = [world.client.get(ME, headers=bearer(token)).json() for token in (wrong, new_text(), "nonsense")]
    assert len({str(answer | {"request_id": ""}) for answer in answers}) == 1


def test_a_thousand_wrong_tokens_are_not_looked_up(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    colleague = world.token("mia")
    assert status(world, colleague) == 200
    looked = 0
    real = tokens.authenticate

    def counted(*arguments: object) -> object:
        nonlocal looked
        looked += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("broker.server.api.callers.authenticate", counted)
    statuses = [status(world, new_text()) for _ in range(200)]
    assert statuses == [401] * 20 + [429] * 180
    assert looked == 20
    answer = world.client.get(ME, headers=bearer(new_text()))
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.json()["kind"] == "too_many_wrong_tokens"
    assert status(world, colleague) == 200, "whoever guesses keeps no colleague out"
    assert status(world, world.token("vic")) == 429, "a new token waits like the others"


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_address_waits_no_longer_than_it_must() -> None:
    seconds = Seconds()
    wrong = WrongTokens(most=2, within=10, remembered=2, monotonic=seconds)
    for now in (0.0, 4.0):
        seconds.now = now
        assert not wrong.wait("a", "x")
        wrong.wrong("a", "x")
    assert wrong.wait("a", "x") == 6
    assert not wrong.wait("b", "x"), "another address"
    seconds.now = 10
    assert not wrong.wait("a", "x")
    wrong.wrong("a", "x")
    assert wrong.wait("a", "x") == 4


def test_what_is_remembered_is_bounded_and_a_token_that_went_bad_is_forgotten() -> None:
    wrong = WrongTokens(most=1, remembered=2)
    wrong.right("good")
    wrong.wrong("a", "bad")
    assert not wrong.wait("a", "good")
    wrong.wrong("a", "good")  # it was revoked
    assert wrong.wait("a", "good")
    for address in ("b", "c"):
        wrong.wrong(address, "bad")
    assert not wrong.wait("a", "good"), "only the last two addresses are remembered"


def test_neither_logs_nor_answers_tell_a_token(world: Company, caplog: pytest.LogCaptureFixture) -> None:
    good = world.token("mia")
    wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
    with caplog.at_level(logging.DEBUG, logger="broker"):
        answers = [world.client.get(path, headers=bearer(token)) for path in (ME, "/api/v1/jobs/no", "/api/v1/x")
                   for token in (good, wrong)]  # fmt: skip
    assert "a wrong token from testclient" in caplog.text
    for text in (caplog.text, *(answer.text for answer in answers)):
        assert good[-64:-1] not in text


def test_a_fault_of_the_server_tells_nothing_of_it(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret of the house")

    def away(*_: object, **__: object) -> None:
        raise StoreProblem("cannot open", where="postgresql://host/db", hint="look at /etc/secret")

    token = world.token("adam")
    for fault, expected in ((broken, 500), (away, 503)):
        monkeypatch.setattr("broker.app.billing.budgets.budgets", fault)
        answer = world.client.get("/api/v1/budgets", headers=bearer(token))
        assert answer.status_code == expected
        assert "secret" not in answer.text
        assert "postgresql" not in answer.text
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert answer.headers["cache-control"] == "no-store"


def test_every_error_is_a_problem_document_with_an_id(world: Company) -> None:
    token = bearer(world.token("mia"))
    answers = {
        404: world.client.get("/api/v1/nothing", headers=token),
        405: world.client.delete("/api/v1/jobs", headers=token),
        422: world.client.get("/api/v1/jobs", params={"limit": "many"}, headers=token),
        401: world.client.get("/api/v1/jobs"),
    }
    for status_code, answer in answers.items():
        assert answer.status_code == status_code
        assert answer.headers["content-type"] == "application/problem+json"
        document = answer.json()
        assert document["status"] == status_code
        assert document["type"] == f"urn:gpubroker:problem:{document['kind']}"
        assert document["request_id"] == answer.headers["x-request-id"]
    assert answers[422].json()["problems"][0]["key"] == "query.limit"
    assert answers[405].headers["allow"] == "GET"


def test_headers_that_keep_answers_private(world: Company) -> None:
    answer = world.client.get(ME, headers=bearer(world.token("mia")) | {"Origin": "https://elsewhere.example"})
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in answer.headers if name.startswith("access-control")], "no other site may read it"


def test_the_description_of_the_api_names_permissions_and_loads_nothing(world: Company) -> None:
    described = world.client.get("/api/v1/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    jobs = described["paths"]["/api/v1/jobs"]["get"]
    assert jobs["x-permission"] == "see_jobs"
    assert jobs["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("JobPage")
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for page in ("/docs", "/redoc", "/openapi.json"):
        assert world.client.get(page).status_code == 404


def test_health_is_beside_the_api(world: Company, tmp_path: Path) -> None:
    assert world.client.get("/healthz").json()["healthy"]
    assert world.client.get("/metrics").status_code == 401
