"""Credentials that reach the job's folder alone, renewed through the bucket without being readable there."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.agent.access import NodeAccess, seal, unseal
from broker.agent.formats import BadDocument

KEY, OTHER = "aa" * 32, "bb" * 32


def credentials(name: str, hours: float) -> dict[str, str]:
    expires = datetime.now(UTC) + timedelta(hours=hours)
    return {"access_key_id": name, "secret_access_key": "s3cret" * 9, "token": "t", "expires_at": expires.isoformat()}


def test_what_is_sealed_only_the_attempts_nodes_can_open() -> None:
    given = credentials("one", 1)
    box = json.loads(json.dumps(seal(given, KEY)))
    assert unseal(box, KEY) == given
    assert "s3cret" not in json.dumps(box)
    assert seal(given, KEY)["box"] != seal(given, KEY)["box"], "no two documents share a key stream"
    with pytest.raises(BadDocument, match="not by the broker"):
        unseal(box, OTHER)


@pytest.mark.parametrize("field", ["nonce", "box", "check"])
@pytest.mark.parametrize("value", [None, "", "zz", 1, [], "00" * 32, "\ud800"])
def test_what_was_changed_is_refused(field: str, value: Any) -> None:
    with pytest.raises(BadDocument):
        unseal({**seal(credentials("one", 1), KEY), field: value}, KEY)


def test_the_longer_lasting_ones_count_and_are_asked_for_in_time() -> None:
    access = NodeAccess(json.dumps(credentials("one", 1)))
    assert access()["access_key_id"] == "one"
    assert not access.needs_renewal()
    access.renew(seal(credentials("old", 0.5), KEY), KEY)
    assert access()["access_key_id"] == "one", "an earlier document was put back"
    access.renew(seal(credentials("two", 2), KEY), KEY)
    told = access()
    assert (told["access_key_id"], told["token"]) == ("two", "t")
    assert told["expires_at"] <= datetime.now(UTC) + timedelta(minutes=5), "renewed ones are taken soon"
    assert NodeAccess(json.dumps(credentials("over", -0.1))).needs_renewal()


@pytest.mark.parametrize(
    "given", ["", "[]", "{}", '{"access_key_id": 1}', json.dumps({**credentials("x", 1), "token": 1})]
)
def test_what_is_no_credentials_is_refused(given: str) -> None:
    with pytest.raises(BadDocument):
        NodeAccess(given)
