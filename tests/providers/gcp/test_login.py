"""Logins: where they are found, what a missing or expired one says, and where requests go."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import InvalidInput, LoginMissing, MissingExtra, NoLogin, Unreachable
from broker.core.extras import install_command
from broker.core.values.clock import ManualClock
from providers.gcp.login import GcpLogin
from providers.gcp.provider import Gcp
from providers.gcp.settings import GcpSettings
from providers.registry import build
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest
from tests.providers.gcp.conftest import gcp, rows_of


@pytest.fixture(scope="session")
def _key() -> str:
    """A private key, made for these tests."""
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="cryptography is not installed")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    written: bytes = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return written.decode()


@pytest.fixture
def key_file(tmp_path: Path, _key: str) -> Path:
    """A service account's key file; what would renew its tokens is not there, and need not be."""
    told = {
        "type": "service_account",
        "project_id": "team-ml",
        "private_key_id": "1",
        "private_key": _key,
        "client_email": "broker@team-ml.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:9/token",
    }
    file = tmp_path / "key.json"
    file.write_text(json.dumps(told))
    return file


def asks(server: FakeServer, clock: ManualClock, **settings: Any) -> Gcp:
    """A provider that looks for a login by itself."""
    return gcp(server.url, clock, **{"anonymous": False, "project": None, **settings})


def test_without_a_login_it_says_what_one_would_add(server: FakeServer, clock: ManualClock) -> None:
    with pytest.raises(NoLogin) as caught:
        rows_of(asks(server, clock))
    assert "prices on demand" in str(caught.value)
    for way in ("gcloud auth application-default login", "GOOGLE_APPLICATION_CREDENTIALS",
                "GPUBROKER_PROVIDERS__GCP__CREDENTIALS_FILE"):  # fmt: skip
        assert way in caught.value.hint
    for ability in ("reservations", "instances"):
        with pytest.raises(NoLogin):
            list(getattr(asks(server, clock), ability)())
    assert server.requests == []


def test_without_googles_libraries_it_says_how_to_install_them(
    server: FakeServer, clock: ManualClock, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.gcp.login._SDKS", ("google.auth", "google.cloud.no_such_library"))
    with pytest.raises(NoLogin) as caught:
        rows_of(asks(server, clock))
    assert install_command("gcp") in caught.value.hint
    with pytest.raises(MissingExtra, match="gcp"):
        rows_of(asks(server, clock, credentials_file=key_file))


@pytest.mark.parametrize("where", ["variable", "setting", "gcloud"])
def test_a_login_is_found_where_google_looks(
    market: GcpCloud,
    server: FakeServer,
    clock: ManualClock,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    settings: dict[str, Any] = {}
    if where == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    elif where == "setting":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/else.json")
        settings["credentials_file"] = key_file
    else:
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(key_file.parent))
        key_file.rename(key_file.parent / "application_default_credentials.json")
    provider = asks(server, clock, **settings)
    assert provider.describe_setup()["logins"]["gcp"]["found"]
    assert rows_of(provider)
    for request in server.requests:
        assert request.headers["authorization"].startswith("Bearer ey")
    assert {path["project"] for called, path, *_ in market.log if called.startswith("compute")} == {"team-ml"}


def test_the_project_is_a_setting_a_variable_or_the_logins(
    market: GcpCloud, server: FakeServer, clock: ManualClock, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def project(**settings: Any) -> str:
        return GcpLogin.find(GcpSettings(credentials_file=key_file, **settings)).project

    assert project() == "team-ml"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "from-the-variable")
    assert project() == "from-the-variable"
    assert project(project="from-the-setting") == "from-the-setting"


def test_a_login_without_a_project_says_where_to_name_one(server: FakeServer, clock: ManualClock) -> None:
    with pytest.raises(LoginMissing) as caught:
        rows_of(asks(server, clock, anonymous=True))
    assert "GOOGLE_CLOUD_PROJECT" in caught.value.hint
    assert "GPUBROKER_PROVIDERS__GCP__PROJECT" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{}", "not JSON", '{"type": "service_account"}', '{"type": "magic"}', "5"])
def test_a_file_that_is_no_login_is_named(
    server: FakeServer, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(LoginMissing, match=r"odd\.json") as caught:
        rows_of(asks(server, clock))
    assert not isinstance(caught.value, NoLogin)
    assert "gcloud auth application-default login" in caught.value.hint


def test_a_file_that_is_not_there_is_named(
    server: FakeServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(LoginMissing, match="/nowhere/key"):
        rows_of(asks(server, clock))


def user(token_url: str) -> Any:
    """What `gcloud auth application-default login` leaves, renewing its tokens at ``token_url``."""
    from google.oauth2.credentials import Credentials

    made: Any = Credentials  # google-auth leaves its constructor untyped
    return made(None, refresh_token="r", token_uri=token_url, client_id="c", client_secret="s")


@pytest.mark.parametrize("answer", [
    HttpAnswer(400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}),
    HttpAnswer(401, {"error": "invalid_client"}),
    HttpAnswer(200, {"no": "token"}),
])  # fmt: skip
def test_an_expired_login_names_the_command(
    server: FakeServer, clock: ManualClock, answer: HttpAnswer, market: GcpCloud
) -> None:
    with FakeServer(lambda request: answer) as tokens:
        login = GcpLogin(user(tokens.url), "team-ml", GcpSettings(compute_url=server.url, billing_url=server.url))
        with pytest.raises(LoginMissing) as caught:
            rows_of(gcp(server.url, clock, login=login))
    assert "gcloud auth application-default login" in caught.value.hint
    assert "client_secret" not in str(caught.value)
    assert server.requests == []


def test_a_login_is_renewed_once(server: FakeServer, clock: ManualClock, market: GcpCloud) -> None:
    def renew(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, {"access_token": "fresh", "expires_in": 3600, "token_type": "Bearer"})

    with FakeServer(renew) as tokens:
        settings = GcpSettings(compute_url=server.url, billing_url=server.url, attempts=1)
        provider = gcp(server.url, clock, login=GcpLogin(user(tokens.url), "team-ml", settings))
        assert rows_of(provider)
        assert rows_of(provider)
        assert len(tokens.requests) == 1
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer fresh"}


def test_a_place_that_renews_logins_may_be_away(server: FakeServer, clock: ManualClock) -> None:
    settings = GcpSettings(compute_url=server.url, billing_url=server.url, attempts=2)
    with pytest.raises(Unreachable):
        rows_of(gcp(server.url, clock, login=GcpLogin(user("http://127.0.0.1:9/token"), "team-ml", settings)))


def test_a_new_login_is_used_at_the_next_poll(
    server: FakeServer, clock: ManualClock, market: GcpCloud, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = asks(server, clock)
    with pytest.raises(NoLogin):
        rows_of(provider)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    assert rows_of(provider)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    with pytest.raises(NoLogin):
        rows_of(provider)


# Where requests go.


@pytest.mark.parametrize(
    "settings",
    [{"compute_url": "ftp://x"}, {"billing_url": "x"}, {"regions": "us east"}, {"colour": 1}, {"project": "A B"}],
)
def test_settings_that_make_no_sense_are_named(clock: ManualClock, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        build("gcp", clock=clock, settings=settings)


@pytest.fixture
def tls(market: GcpCloud, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The fake behind TLS, and the certificate that it is signed with."""
    authority = pytest.importorskip("trustme", reason="trustme is not installed (the extra `dev`)").CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    server = FakeServer(market)
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    with server:
        yield server.url.replace("http:", "https:"), bundle


def test_a_private_endpoint_with_its_own_certificates(tls: tuple[str, Path], clock: ManualClock) -> None:
    url, bundle = tls
    assert rows_of(gcp(url, clock, ca_bundle=bundle))
    with pytest.raises(Unreachable, match="certificate"):
        rows_of(gcp(url, clock))
    with pytest.raises(InvalidInput, match="none"):
        rows_of(gcp(url, clock, ca_bundle=bundle.parent / "none.pem"))
    (bundle.parent / "odd.pem").write_text("no certificates")
    with pytest.raises((InvalidInput, Unreachable)):
        rows_of(gcp(url, clock, ca_bundle=bundle.parent / "odd.pem"))
