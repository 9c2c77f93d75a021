"""Logins to Azure: where one is found, what is said of one that is missing or expired, and what becomes of faults.

The last tests log in with azure-identity itself, as a service principal, at an authority on loopback.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import OfferQuery
from broker.core.values.clock import ManualClock
from providers.azure.errors import NotPermitted
from providers.azure.login import login_source
from providers.azure.provider import Azure
from providers.azure.settings import AzureSettings
from tests.fakes.asking import until_error
from tests.fakes.server import FakeServer, Fault, HttpAnswer, HttpRequest
from tests.providers.azure.conftest import offers_in, rows_of

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

TENANT = "99999999-8888-7777-6666-555555555555"


# Faults of Azure Resource Manager, asked by the SDK.


@pytest.mark.parametrize(
    "fault", [Fault.THROTTLED, Fault.BUSY, Fault.SERVER_ERROR, Fault.TRUNCATED, Fault.DISCONNECTED]
)
def test_a_fault_that_passes_costs_time_and_nothing_else(
    make: Callable[..., Azure], cloud: AzureCloud, server: FakeServer, clock: ManualClock, fault: Fault
) -> None:
    from tests.fakes.azure_cloud import machine

    cloud.machines = [machine("ours", tags={"gpubroker": "k"})]
    server.order(fault, fault, at="/virtualMachines")
    assert len(list(make(attempts=3).instances())) == 1
    if fault is not Fault.TRUNCATED:  # which the SDK asks again at once
        assert sum(clock.slept) > 0
    if fault in (Fault.THROTTLED, Fault.BUSY):
        assert clock.slept == [7.0, 7.0]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.THROTTLED, Throttled),
        (Fault.BUSY, Throttled),
        (Fault.SERVER_ERROR, Unreachable),
        (Fault.TRUNCATED, Unreachable),
        (Fault.DISCONNECTED, Unreachable),
        (Fault.NOT_JSON, Malformed),
        (Fault.EMPTY_BODY, Malformed),
        (Fault.WRONG_TYPE, Malformed),
        (Fault.REDIRECT, Refused),
        (Fault.EXPIRED_LOGIN, LoginMissing),
        (Fault.FORBIDDEN, NotPermitted),
    ],
)
def test_a_fault_that_lasts_has_its_own_error(
    make: Callable[..., Azure], cloud: AzureCloud, server: FakeServer, fault: Fault, kind: type[BrokerError]
) -> None:
    server.order(*[fault] * 9, at="/virtualMachines")
    with pytest.raises(kind) as caught:
        list(make(attempts=3).instances())
    assert type(caught.value) is kind
    assert caught.value.where == "azure/virtual machines"
    assert len([request for request in server.requests if "virtualMachines" in request.path]) <= 3


def test_a_server_that_hangs_is_given_up(make: Callable[..., Azure], cloud: AzureCloud, server: FakeServer) -> None:
    server.order(Fault.HANG, at="/virtualMachines")
    with pytest.raises(Unreachable, match="cannot be reached"):
        list(make(timeout_seconds=0.3).instances())


def test_who_asks_for_an_hour_is_left_alone(
    make: Callable[..., Azure], cloud: AzureCloud, server: FakeServer, clock: ManualClock
) -> None:
    server.order(Fault.THROTTLED_FOR_LONG, at="/virtualMachines")
    with pytest.raises(Throttled) as caught:
        list(make(attempts=4).instances())
    assert caught.value.after == 3600
    assert clock.slept == []


def test_a_certificate_that_is_not_trusted_names_the_setting(make: Callable[..., Azure], cloud: AzureCloud) -> None:
    with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
        list(make(ca_bundle=None).instances())
    assert "GPUBROKER_PROVIDERS__AZURE__CA_BUNDLE" in caught.value.hint


def test_a_link_to_another_host_takes_no_login_there(azure: Azure, cloud: AzureCloud, server: FakeServer) -> None:
    """The fake's links name Azure's own host, which nothing here may ask."""
    from tests.fakes.azure_cloud import machine

    cloud.page = 1
    cloud.machines = [machine(f"vm-{number}", tags={"gpubroker": "k"}) for number in range(3)]
    assert len(list(azure.instances())) == 3
    pages = [request for request in server.requests if request.path.endswith("/virtualMachines")]
    assert len(pages) == 3
    assert all(request.headers["authorization"].startswith("Bearer ") for request in pages)


# Tokens.


def test_an_expired_token_says_what_to_do_and_the_prices_arrive(make: Callable[..., Azure], cloud: AzureCloud) -> None:
    cloud.token = "another-t0ken"
    found, error = until_error(make())
    assert isinstance(error, LoginMissing)
    assert "az login" in error.hint
    assert "AZURE_CLIENT_SECRET" in error.hint
    assert "t0ken" not in f"{error} {error.hint}"
    assert len(offers_in(found)) == 7


def test_a_token_that_is_about_to_end_is_renewed(make: Callable[..., Azure], cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import Credential

    credential = Credential(expires_on=int(time.time()) + 100)
    azure = make(credential)
    list(azure.instances())
    assert len(credential.asked) > 1


# Where a login is found.


def test_without_any_sign_there_is_no_login_and_the_prices_arrive(
    settings: Callable[..., AzureSettings], clock: ManualClock, server: FakeServer
) -> None:
    azure = Azure(clock=clock, settings=settings())
    assert len(offers_in(rows_of(azure))) == 7
    assert not server.requests
    login = azure.describe_setup()["logins"]["azure"]
    assert not login["found"]
    assert "AZURE_SUBSCRIPTION_ID" in login["how"]
    assert "az login" in login["how"]


def test_a_subscription_without_a_login_is_told_after_the_prices(
    settings: Callable[..., AzureSettings], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", TENANT)
    found, error = until_error(Azure(clock=clock, settings=settings()))
    assert type(error) is LoginMissing
    assert "AZURE_SUBSCRIPTION_ID is set" in str(error)
    assert "az login" in error.hint
    assert len(offers_in(found)) == 7


@pytest.mark.parametrize("id", ["my-subscription", "11111111-2222-3333-4444-555555555555/../x", "é" * 36])
def test_what_is_no_subscription_is_told_and_not_asked_for(
    settings: Callable[..., AzureSettings], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, server: FakeServer,
    id: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", id)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    found, error = until_error(Azure(clock=clock, settings=settings()))
    assert isinstance(error, LoginMissing)
    assert "AZURE_SUBSCRIPTION_ID is not the id" in str(error)
    assert len(offers_in(found)) == 7
    assert not server.requests


def test_a_clock_that_is_off_is_told(azure: Azure, cloud: AzureCloud) -> None:
    said = {"error": {"code": "InvalidAuthenticationToken", "message": "The access token is not yet valid."}}
    cloud.answers = {"/subscriptions/": HttpAnswer(401, said)}
    with pytest.raises(LoginMissing) as caught:
        list(azure.instances())
    assert "clock" in caught.value.hint


@pytest.mark.parametrize("file", ["azureProfile.json", "AzureRmContext.json"])
def test_what_az_login_leaves_behind_is_a_sign(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("{}")
    assert login_source(AzureSettings(), {"AZURE_CONFIG_DIR": str(tmp_path)}) == str(tmp_path / file)


@pytest.mark.parametrize("variable", ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT"])
def test_variables_are_signs(variable: str) -> None:
    assert login_source(AzureSettings(), {variable: "x"}) == variable
    assert login_source(AzureSettings(managed_identity=True), {}) == "the setting managed_identity"


class Authority:
    """Microsoft's identity platform, as far as a service principal with a secret needs it, and a cloud behind it."""

    def __init__(self, cloud: AzureCloud, url: str) -> None:
        self.cloud = cloud
        self.url = url
        self.refusal: dict[str, Any] | None = None

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path.endswith("/.well-known/openid-configuration"):
            base = f"{self.url}/{TENANT}"
            about = {"token_endpoint": f"{base}/oauth2/v2.0/token", "authorization_endpoint": f"{base}/authorize"}
            return HttpAnswer(200, {**about, "issuer": f"{base}/v2.0"}, {"Content-Type": "application/json"})
        if request.path.endswith("/oauth2/v2.0/token"):
            assert "s3cret-of-the-test" in request.body
            if self.refusal is not None:
                return HttpAnswer(401, self.refusal, {"Content-Type": "application/json"})
            token = {"token_type": "Bearer", "expires_in": 3599, "access_token": self.cloud.token}
            return HttpAnswer(200, token, {"Content-Type": "application/json"})
        return self.cloud(request)


@pytest.fixture
def principal(
    server: FakeServer, cloud: AzureCloud, settings: Callable[..., AzureSettings], clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Azure, Authority]:  # fmt: skip
    """A provider whose login comes from azure-identity and the environment, and the authority behind it."""
    from tests.fakes.azure_cloud import SUBSCRIPTION

    for variable, value in {
        "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": TENANT,
        "AZURE_CLIENT_SECRET": "s3cret-of-the-test",
        "AZURE_AUTHORITY_HOST": server.url,
        "PATH": "",
    }.items():
        monkeypatch.setenv(variable, value)
    authority = Authority(cloud, server.url)
    server.market = authority
    return Azure(clock=clock, settings=settings()), authority


def test_a_service_principal_logs_in(principal: tuple[Azure, Authority], server: FakeServer) -> None:
    azure, _ = principal
    assert offers_in(rows_of(azure))["eastus", "Standard_ND96isr_H100_v5", "on_demand"].slots == 2
    rows_of(azure)
    assert len([request for request in server.requests if request.path.endswith("/token")]) == 1
    login = azure.describe_setup()["logins"]["azure"]
    assert (login["found"], login["where"]) == (True, "AZURE_CLIENT_SECRET")
    assert "s3cret" not in json.dumps(azure.describe_setup())


def test_a_secret_that_has_expired_says_so_and_is_looked_for_again(
    principal: tuple[Azure, Authority], capfd: pytest.CaptureFixture[str]
) -> None:
    azure, authority = principal
    said = "AADSTS7000222: The provided client secret keys for app are expired."
    authority.refusal = {"error": "invalid_client", "error_description": said, "error_codes": [7000222]}
    found, error = until_error(azure)
    assert isinstance(error, LoginMissing)
    assert "AADSTS7000222" in str(error)
    assert "DefaultAzureCredential" not in str(error)
    assert "aka.ms" not in str(error)
    assert "AZURE_CLIENT_SECRET" in error.hint
    assert "s3cret" not in f"{error!r} {error} {error.hint}"
    assert len(offers_in(found)) == 7
    assert "s3cret" not in "".join(capfd.readouterr())
    with pytest.raises(LoginMissing):
        list(azure.reservations())
    authority.refusal = None
    assert list(azure.reservations()) == []


def test_a_token_that_was_revoked_is_not_used_for_ever(principal: tuple[Azure, Authority], cloud: AzureCloud) -> None:
    azure, _ = principal
    rows_of(azure)
    cloud.token = "a-new-t0ken"
    _, error = until_error(azure)
    assert isinstance(error, LoginMissing)
    rows_of(azure)


@pytest.fixture
def az(
    cloud: AzureCloud, settings: Callable[..., AzureSettings], clock: ManualClock, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Azure]:  # fmt: skip
    """A provider that logs in with a program called `az`, which does what the given lines of shell say."""
    from tests.fakes.azure_cloud import SUBSCRIPTION

    def made(lines: str) -> Azure:
        program = tmp_path / "bin" / "az"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o700)
        (tmp_path / "azureProfile.json").write_text("{}")
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path))
        monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
        return Azure(clock=clock, settings=settings())

    return made


def test_az_login_is_a_login(az: Callable[[str], Azure], cloud: AzureCloud) -> None:
    token = {"accessToken": cloud.token, "expires_on": 4_000_000_000, "tokenType": "Bearer"}
    azure = az(f"echo '{json.dumps(token)}'")
    assert offers_in(rows_of(azure))["eastus", "Standard_ND96isr_H100_v5", "on_demand"].slots == 2
    assert azure.describe_setup()["logins"]["azure"]["where"].endswith("azureProfile.json")


def test_an_az_login_that_has_expired_says_so(az: Callable[[str], Azure]) -> None:
    said = "ERROR: AADSTS700082: The refresh token has expired due to inactivity. Please run: az login"
    found, error = until_error(az(f"echo '{said}' >&2; exit 1"))
    assert isinstance(error, LoginMissing)
    assert "az login" in error.hint
    assert len(offers_in(found)) == 7


def test_an_authority_that_is_down_leaves_the_prices(
    principal: tuple[Azure, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    azure, _ = principal
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:9")
    found, error = until_error(azure)
    assert isinstance(error, Unreachable)
    assert len(offers_in(found)) == 7


def test_a_subscription_that_is_not_ours_names_the_variable(azure: Azure, cloud: AzureCloud) -> None:
    refusal = {"error": {"code": "SubscriptionNotFound", "message": "The subscription could not be found."}}
    cloud.answers = {"/subscriptions/": HttpAnswer(404, refusal)}
    with pytest.raises(LoginMissing, match="SubscriptionNotFound") as caught:
        list(azure.offers(OfferQuery()))
    assert "AZURE_SUBSCRIPTION_ID" in caught.value.hint
