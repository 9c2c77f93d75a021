"""JSON over HTTP: what becomes of each fault of a server. The servers are real, waiting is the clock's."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from broker.core.errors import (
    BrokerError,
    InvalidInput,
    LoginMissing,
    Malformed,
    OutcomeUnknown,
    Refused,
    Throttled,
    Unreachable,
)
from broker.core.values.clock import ManualClock
from providers.http import Api, HttpSettings, redacted_url, usable_key, without_logins
from providers.runpod import RunpodSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.server import FakeServer, Fault, HttpAnswer, HttpRequest


def market(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, b'{"price": 0.1234567, "count": 3, "path": "%s"}' % request.path.encode())


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(market) as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def ask(url: str, clock: ManualClock, *, attempts: int = 3, timeout: float = 60, **more: Any) -> Any:
    settings = HttpSettings(attempts=attempts, timeout_seconds=timeout)
    with Api("acme", url, settings, clock, **more) as api:
        return api.get("/prices", token="s3cret")


def test_numbers_arrive_as_they_stand(server: FakeServer, clock: ManualClock) -> None:
    assert ask(server.url, clock) == {"price": Decimal("0.1234567"), "count": 3, "path": "/prices"}
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(("status", "means"), [(429, Throttled), (503, OutcomeUnknown)])
def test_an_order_is_open_after_a_server_error_even_one_that_says_when(
    clock: ManualClock, status: int, means: type[BrokerError]
) -> None:
    busy = HttpAnswer(status, b"", {"Retry-After": "5"})
    settings = HttpSettings(attempts=3)
    with FakeServer(lambda _: busy) as server, Api("acme", server.url, settings, clock) as api:
        with pytest.raises(means):
            api.post_once("/orders", {}, token="s3cret", key="one")
        assert len(server.requests) == 1


def test_a_server_that_hangs_is_given_up_after_the_time_out_and_asked_again(
    server: FakeServer, clock: ManualClock
) -> None:
    server.order(Fault.HANG)
    assert ask(server.url, clock, timeout=0.2, attempts=10)["count"] == 3
    server.order(Fault.HANG)
    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
        ask(server.url, clock, timeout=0.2, attempts=1)


def test_back_off_grows(server: FakeServer, clock: ManualClock) -> None:
    server.order(*[Fault.SERVER_ERROR] * 6)
    with pytest.raises(Unreachable, match="HTTP 500"):
        ask(server.url, clock, attempts=6)
    assert len(clock.slept) == 5
    assert all(later > earlier for earlier, later in zip(clock.slept, clock.slept[1:], strict=False))
    assert sum(clock.slept) < 60


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.BUSY])
def test_retry_after_is_respected(server: FakeServer, clock: ManualClock, fault: Fault) -> None:
    server.order(fault)
    ask(server.url, clock)
    assert clock.slept == [7.0]


def test_retry_after_may_be_a_date(clock: ManualClock) -> None:
    later = format_datetime(NOW.replace(minute=0, second=12), usegmt=True)
    answers = iter([HttpAnswer(429, b"", {"Retry-After": later}), HttpAnswer(429, b"", {"Retry-After": "soon"})])
    with FakeServer(lambda request: next(answers, market(request))) as server:
        ask(server.url, clock)
    assert clock.slept[0] == 12.0
    assert clock.slept[1] < 5


def test_azures_own_header_for_the_wait_is_respected(clock: ManualClock) -> None:
    says = {"x-ms-ratelimit-retailprices-retry-after": "19", "Retry-After": "3"}
    answers = iter([HttpAnswer(429, b"", says)])
    with FakeServer(lambda request: next(answers, market(request))) as server:
        ask(server.url, clock)
    assert clock.slept == [19.0]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.NOT_JSON, Malformed),
        (Fault.EMPTY_BODY, Malformed),
        (Fault.EXPIRED_LOGIN, LoginMissing),
        (Fault.FORBIDDEN, LoginMissing),
        (Fault.REDIRECT, Refused),
    ],
)
def test_what_will_not_pass_is_not_tried_again(
    server: FakeServer, clock: ManualClock, fault: Fault, error: type[BrokerError]
) -> None:
    server.order(fault)
    with pytest.raises(error) as caught:
        ask(server.url, clock, login_hint="set ACME_KEY")
    assert len(server.requests) == 1
    assert caught.value.where.startswith("acme: http://127.0.0.1")
    assert "s3cret" not in f"{caught.value!r} {caught.value} {caught.value.hint}"
    if error is LoginMissing:
        assert caught.value.hint == "set ACME_KEY"


def test_nobody_there_is_unreachable_and_says_which_setting_to_look_at(clock: ManualClock) -> None:
    with pytest.raises(Unreachable) as caught:
        ask("http://127.0.0.1:9", clock)
    assert "GPUBROKER_PROVIDERS__ACME__BASE_URL" in caught.value.hint


@pytest.mark.parametrize("base", ["", "/v1", "/proxy", "/proxy/v1", "/v1/prices"])
def test_a_base_url_may_have_the_start_of_the_path_already(server: FakeServer, clock: ManualClock, base: str) -> None:
    with Api("acme", server.url + base, HttpSettings(), clock) as api:
        assert api.get("/v1/prices")["path"] == f"{'/proxy' if 'proxy' in base else ''}/v1/prices"


def test_a_service_that_repeats_the_key_in_its_refusal_gives_nothing_away(clock: ManualClock) -> None:
    with (
        FakeServer(lambda _: HttpAnswer(400, b'{"error": "bad token s3cret"}')) as server,
        pytest.raises(Refused) as caught,
    ):
        ask(server.url, clock)
    assert "bad token ***" in str(caught.value)


def test_a_refusal_says_in_one_line_what_the_server_said(clock: ManualClock) -> None:
    said = b"no such\nthing \x1b[31m" + b"x" * 5000
    with FakeServer(lambda _: HttpAnswer(404, said)) as server, pytest.raises(Refused) as caught:
        ask(server.url, clock)
    assert "no such thing" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"1" * 10_000, b'{"a": 1e99999999999999999999}', b"\xff\xfe{", b"NaN"]
)
def test_no_body_is_too_odd(clock: ManualClock, body: bytes) -> None:
    with FakeServer(lambda _: HttpAnswer(200, body)) as server, suppress(Malformed):
        ask(server.url, clock)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    monkeypatch.setattr("providers.http._MAX_ANSWER", 100)
    with FakeServer(lambda _: HttpAnswer(200, b" " * 200)) as server, pytest.raises(Malformed, match="MiB"):
        ask(server.url, clock)


def test_calls_keep_their_distance(server: FakeServer, clock: ManualClock) -> None:
    with Api("acme", server.url, HttpSettings(), clock, per_second=1) as api:
        for _ in range(3):
            api.get("/prices")
    assert clock.slept == [1.0, 1.0]


def test_a_ca_bundle_that_is_none_is_an_input_error(tmp_path: Path, clock: ManualClock) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    with (
        pytest.raises(InvalidInput, match=r"ca\.pem"),
        Api("acme", "https://x.example", HttpSettings(ca_bundle=file), clock),
    ):
        pass


@pytest.fixture
def private(tmp_path: Path) -> Iterator[tuple[FakeServer, Path]]:
    """A server with a certificate of an authority that nobody knows, and the authority's own certificate."""
    authority = pytest.importorskip("trustme", reason="trustme is not installed (the extra `dev`)").CA()
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with FakeServer(market, tls=context) as running:
        yield running, bundle


def test_a_certificate_of_ones_own_authority_is_refused_without_the_bundle_and_names_the_setting(
    private: tuple[FakeServer, Path], clock: ManualClock
) -> None:
    server, _ = private
    with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
        ask(server.url, clock, attempts=1)
    assert "GPUBROKER_PROVIDERS__ACME__CA_BUNDLE" in caught.value.hint
    assert server.requests == []


def test_a_certificate_of_ones_own_authority_is_accepted_with_the_bundle(
    private: tuple[FakeServer, Path], clock: ManualClock
) -> None:
    server, bundle = private
    with Api("acme", server.url, HttpSettings(ca_bundle=bundle), clock) as api:
        assert api.get("/prices")["count"] == 3


def test_a_bundle_is_trusted_for_its_own_names_only(private: tuple[FakeServer, Path], clock: ManualClock) -> None:
    server, bundle = private
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    with (
        Api("acme", elsewhere, HttpSettings(ca_bundle=bundle, attempts=1), clock) as api,
        pytest.raises(Unreachable, match="certificate"),
    ):
        api.get("/prices")


def test_the_setting_named_is_the_one_that_holds_the_url(clock: ManualClock) -> None:
    for key, expected in (("base_url", "BASE_URL"), ("retail_prices_url", "RETAIL_PRICES_URL")):
        with pytest.raises(Unreachable) as caught:
            ask("http://127.0.0.1:9", clock, attempts=1, url_key=key)
        assert f"GPUBROKER_PROVIDERS__ACME__{expected} right" in caught.value.hint


@pytest.mark.parametrize("url", ["ftp://x", "prices.example.com", "https://", ""])
def test_a_base_url_is_a_url(url: str) -> None:
    with pytest.raises(ValidationError, match="expected a URL"):
        RunpodSettings(base_url=url)


def test_logins_in_urls_are_not_shown() -> None:
    assert redacted_url("https://me:pw@proxy.example:8443/a?key=1#x") == "https://proxy.example:8443/a"


@pytest.mark.parametrize("key", ["", "  ", "a b", "a\nb", "schlüssel", None])
def test_what_cannot_be_a_key_is_none(key: str | None) -> None:
    assert usable_key(key) is None
    assert usable_key(SecretStr("k-1\n")) == "k-1"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('not reached: "http://ann:p@ss@10.0.0.1:1/v1/x"', 'not reached: "http://10.0.0.1:1/v1/x"'),
        ("with url: /v1/skus?key=s3cret&page=2 (Caused by …)", "with url: /v1/skus (Caused by …)"),
        ("https://host/x?sig=abc", "https://host/x"),
        ("ann@example.org is no member; is that right? yes/no", "ann@example.org is no member; is that right? yes/no"),
    ],
)
def test_what_an_sdk_says_is_told_without_logins(said: str, told: str) -> None:
    assert without_logins(ValueError(said)) == told
