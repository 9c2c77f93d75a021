"""Signatures of nodes in Azure: what Azure's SDK signs, for which directory, and which one a node sends where. Azurite
checks them in `tests/system/test_azure_signatures.py`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from broker.agent.access import NodeAccess, seal, unseal
from broker.core.errors import InvalidInput, LoginMissing, Unreachable
from broker.core.job.jobs import Job
from broker.engines.runfolder.node_access import BlobContainer, DelegatedSignatures

pytest.importorskip("azure.storage.filedatalake", reason="Azure's SDKs are not installed (the extra `azure`)")
RUNS = "abfss://runs@team.dfs.core.windows.net/all/jobs"
READS = Job.model_validate({"name": "n", "run": "true", "resume_from": {"job": "before"}})
ALONE = Job.model_validate({"name": "n", "run": "true"})


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The SDK's client, without a service behind it. ``hierarchical``: what the account says; ``fails``: an error."""
    from azure.storage.blob import UserDelegationKey

    state = SimpleNamespace(hierarchical=True, fails=None)

    class DelegatingAccount:
        def __init__(self, url: str, **more: Any) -> None:
            state.url = url

        def __enter__(self) -> DelegatingAccount:
            return self

        def __exit__(self, *of: object) -> None: ...

        def get_user_delegation_key(self, key_start_time: datetime, key_expiry_time: datetime) -> UserDelegationKey:
            if state.fails is not None:
                raise state.fails
            key = UserDelegationKey()  # type: ignore[no-untyped-call]  # of the SDK
            key.signed_oid, key.signed_tid, key.signed_service, key.signed_version = "o", "t", "b", "2025-07-05"
            key.signed_start, key.signed_expiry = (
                f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (key_start_time, key_expiry_time)
            )
            key.value = "c2VjcmV0"
            return key

        def get_account_information(self) -> dict[str, Any]:
            return {"is_hns_enabled": state.hierarchical}

    monkeypatch.setattr("azure.storage.blob.BlobServiceClient", DelegatingAccount)
    return state


def signs(token: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(token).items()}


def given(job: Job = ALONE) -> dict[str, str]:
    return dict(DelegatedSignatures(RUNS, 3600, login=object()).credentials("mine", job))


def test_a_node_writes_its_own_directory_and_reads_those_of_others(account: SimpleNamespace) -> None:
    access = NodeAccess(json.dumps(given(READS)))
    own, other = signs(access()["sas_token"]), signs(access.beside("before")()["sas_token"])
    assert account.url == "https://team.blob.core.windows.net"
    assert (own["sr"], own["sdd"], own["sp"]) == ("d", "3", "racwdl"), "all/jobs/mine"
    assert (other["sr"], other["sdd"], other["sp"]) == ("d", "3", "rl")
    assert own["sig"] != other["sig"]
    assert access.beside("stranger")()["sas_token"] == ""
    assert datetime.fromisoformat(own["se"]) <= datetime.now(UTC) + timedelta(hours=1)


def test_without_directories_a_node_gets_the_container(account: SimpleNamespace) -> None:
    account.hierarchical = False
    access = NodeAccess(json.dumps(given(READS)))
    assert signs(access()["sas_token"])["sr"] == "c"
    assert access.beside("before")()["sas_token"] == access()["sas_token"]


def test_they_are_renewed_sealed(account: SimpleNamespace) -> None:
    assert unseal(seal(given(READS), "key"), "key").keys() == {"sas_token", "expires_at", "others"}


def test_places_are_read_as_obstore_reads_them() -> None:
    named = {"AZURE_STORAGE_ACCOUNT_NAME": "team", "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1/team"}
    assert BlobContainer.of("az://runs/a%20b/", named) == BlobContainer(
        "team", named["AZURE_STORAGE_ENDPOINT"], "runs", "a b"
    )
    with pytest.raises(InvalidInput, match="account is not named"):
        BlobContainer.of("az://runs", {})


def test_a_refused_login_and_a_dead_line_are_told(account: SimpleNamespace) -> None:
    from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

    account.fails = ClientAuthenticationError("planted-secret")
    with pytest.raises(LoginMissing, match="ClientAuthenticationError") as refused:
        given()
    assert "planted-secret" not in str(refused.value)
    account.fails = ServiceRequestError("no route")
    with pytest.raises(Unreachable):
        given()
