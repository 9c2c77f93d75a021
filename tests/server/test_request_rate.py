"""How many requests a token may make."""

from copy import copy

import pytest
from fastapi.testclient import TestClient

from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceResponder
from broker.server.api.application import Envelope, api
from broker.server.api.limits import RequestRate, TooManyRequests, WrongTokens
from broker.server.api.transport import Transport
from tests.server.world import Company, bearer, client_of


def test_a_token_gets_its_requests_back_evenly() -> None:
    now = [0.0]
    rate = RequestRate(6, monotonic=lambda: now[0])
    for _ in range(6):
        rate.take("ann")
    with pytest.raises(TooManyRequests) as refused:
        rate.take("ann")
    assert refused.value.after == 10.0
    rate.take("bob")
    now[0] = 9.9
    with pytest.raises(TooManyRequests):
        rate.take("ann")
    now[0] = 10.0
    rate.take("ann")
    with pytest.raises(TooManyRequests):
        rate.take("ann")
    now[0] = 10_000.0
    for _ in range(6):
        rate.take("ann")
    with pytest.raises(TooManyRequests):
        rate.take("ann")


def test_the_api_says_when_to_come_back_and_lets_others_and_files_through(seen_world: Company) -> None:
    broker = seen_world.broker
    settings = broker.settings.model_copy(
        update={"serve": broker.settings.serve.model_copy(update={"requests_per_minute": 3})}
    )
    slow = _with(seen_world, settings)
    ann, bob = (bearer(seen_world.usual(name)) for name in ("mia", "apple"))
    answers = [slow.get("/api/v1/me", headers=ann) for _ in range(4)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 20
    assert answers[-1].json()["kind"] == "too_many_requests"
    assert slow.get("/api/v1/me", headers=bob).status_code == 200
    assert slow.head(f"/api/v1/contents/files/{'0' * 64}", headers=ann).status_code == 404
    for path in (f"/files/{'0' * 64}", f"/checkpoints/latest/{'0' * 64}"):
        assert slow.get(f"/api/v1/jobs/no-such-job{path}", headers=ann).status_code == 404


def _with(world: Company, settings: object) -> TestClient:
    broker = copy(world.broker)
    broker.settings = settings  # type: ignore[assignment]  # the same store, other settings
    app = api(broker, ServiceResponder(broker, Pulses(), None), WrongTokens(), Transport())
    return client_of(Envelope(app))
