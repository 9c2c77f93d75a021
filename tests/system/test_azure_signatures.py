"""A node with a signature instead of a key, on Azurite over TLS, which issues delegation keys and checks signatures. It
has no directories, so the signature is for the container."""

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.agent.access import NodeAccess
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import Unreachable
from broker.core.job.jobs import Job
from broker.engines.runfolder.node_access import DelegatedSignatures
from tests.system.object_stores import azure

pytestmark = pytest.mark.system
JOB = Job.model_validate({"name": "n", "run": "true"})


class EntraLogin:
    """A credential of azure-identity whose token Azurite takes: it reads the claims, and checks no signature."""

    def get_token(self, *scopes: str, **more: Any) -> Any:
        from azure.core.credentials import AccessToken

        now = int(time.time())
        who = "00000000-0000-0000-0000-00000000000{}".format
        claims = {
            "iss": f"https://sts.windows.net/{who(1)}/", "aud": "https://storage.azure.com",
            "nbf": now - 60, "iat": now - 60, "exp": now + 3600, "oid": who(2), "tid": who(1),
        }  # fmt: skip
        parts = [json.dumps(one).encode() for one in ({"alg": "RS256", "typ": "JWT"}, claims)]
        return AccessToken(
            ".".join([*(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts), "x"]), now + 3600
        )


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The credentials of a node."""
    pytest.importorskip("azure.storage.filedatalake", reason="Azure's SDKs are not installed (the extra `azure`)")
    from broker.agent import store as agents

    with azure(certificates=tmp_path) as running:
        for name, value in running.first.items():
            if name != "AZURE_STORAGE_ACCOUNT_KEY":
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(agents, "_CLIENT", {**agents._CLIENT, "allow_invalid_certificates": True})
        monkeypatch.setattr(agents, "_RETRY", {"max_retries": 0})
        signatures = DelegatedSignatures(
            running.url, 900, EntraLogin(), {"connection_verify": str(tmp_path / "ca.pem")}
        )
        yield dict(signatures.credentials("mine", JOB))


def test_a_node_works_with_the_signature_and_a_changed_one_opens_nothing(given: dict[str, str]) -> None:
    assert (datetime.fromisoformat(given["expires_at"]) - datetime.now(UTC)).total_seconds() < 900
    mine = ObjectFolder.open("az://runs/team/mine", NodeAccess(json.dumps(given)))
    mine.write("a/b", b"1")
    assert (mine.read("a/b"), mine.folders("")) == (b"1", ["a"])
    mine.delete("a/b")
    assert mine.read("a/b") is None
    forged = {**given, "sas_token": given["sas_token"].replace("sp=racwdl", "sp=racwdlx")}
    with pytest.raises(StoreTrouble):
        ObjectFolder.open("az://runs/team/mine", NodeAccess(json.dumps(forged))).write("a/b", b"1")


def test_an_account_out_of_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.storage.filedatalake", reason="Azure's SDKs are not installed (the extra `azure`)")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "team")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://127.0.0.1:1/team")
    with pytest.raises(Unreachable):
        DelegatedSignatures("az://runs/team", 900, EntraLogin()).credentials("mine", JOB)
