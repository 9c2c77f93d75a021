"""Who else writes to the object store orders no node about."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.agent.formats import BadDocument, Lease
from broker.agent.signatures import KEY_VARIABLE, check, sign
from broker.agent.supervise import FOLDER_OUT_OF_REACH, INTERRUPTED
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.attempt_keys import AttemptKeys
from tests.agent.node import SLEEP, Node, eventually

KEYS = AttemptKeys(lambda: "root of the store")
KEY, OTHER = KEYS.of("j-1"), KEYS.of("k-1")
LEASE = Lease(paid_until=datetime(2026, 11, 25, tzinfo=UTC), max_unattended=1800.0).to_json()


def read_again(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document, indent=1))
    return found


def test_what_the_broker_signed_for_the_attempt_is_accepted() -> None:
    check("lease.json", read_again(sign("lease.json", LEASE, KEY)), KEY)
    assert sign("lease.json", sign("lease.json", LEASE, OTHER), KEY) == sign("lease.json", LEASE, KEY), "signed anew"


@pytest.mark.parametrize(
    "document",
    [
        LEASE,
        {**LEASE, "signature": None},
        {**LEASE, "signature": ["x"]},
        {**LEASE, "signature": "\ud800"},
        sign("lease.json", LEASE, OTHER),
        sign("spec.json", LEASE, KEY),
        {**sign("lease.json", LEASE, KEY), "paid_until": "2030-01-01T00:00:00+00:00"},
        {**sign("lease.json", LEASE, KEY), "more": 1},
    ],
    ids=["unsigned", "nothing", "no text", "half a character", "another attempt", "another name", "changed", "added"],
)
def test_everything_else_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadDocument, match="signed"):
        check("lease.json", document, KEY)
    check("lease.json", document, None)  # a launch by an earlier release


def test_a_key_is_the_attempts_own_and_every_broker_of_the_store_knows_it() -> None:
    assert KEYS.of("j-1") == AttemptKeys(lambda: "root of the store").of("j-1")
    assert len({KEYS.of("j-1"), KEYS.of("j-2"), KEYS.of("j-11"), AttemptKeys(lambda: "other").of("j-1")}) == 4


def test_a_node_does_what_the_broker_signed_and_nothing_else(node: Node) -> None:
    node.spec(f'echo "key: ${{{KEY_VARIABLE}-none}}"; {SLEEP}', key=KEY)
    agent = node.start(env={KEY_VARIABLE: KEY})
    node.until_said("up")
    assert "key: none" in node.output(), "the job's commands do not get the key"
    for forged, said in ((None, "lease.json is not signed"), (OTHER, "not signed by the broker for this attempt")):
        node.runs.write_lease(1, Lease(stop="cancelled_by_user"), forged)
        eventually(lambda said=said: said in node.said(), f"{said!r} is told")  # type: ignore[misc]  # bound at once
        assert agent.poll() is None
    node.runs.write_lease(1, Lease(stop="max_cost"), KEY)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.MAX_COST


def test_a_lease_prolonged_by_somebody_else_does_not_prolong_it(node: Node) -> None:
    now = datetime.now(UTC)
    node.spec(SLEEP, lease=Lease(paid_until=now + timedelta(seconds=2)), key=KEY)
    agent = node.start(env={KEY_VARIABLE: KEY})
    node.until_event("claimed")
    node.runs.write_lease(1, Lease(paid_until=now + timedelta(hours=9)), OTHER)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.PAID_UNTIL


@pytest.mark.parametrize("signed", [None, OTHER])
def test_a_command_of_somebody_else_does_not_run(node: Node, signed: str | None, tmp_path: Path) -> None:
    node.spec(f"touch {tmp_path}/ran", key=signed)
    agent = node.start(env={KEY_VARIABLE: KEY})
    eventually(lambda: "spec.json is not signed" in node.said(), "it is refused")
    assert agent.poll() is None, "the right one may still come"
    agent.terminate()
    assert agent.wait(240) == FOLDER_OUT_OF_REACH
    assert not (tmp_path / "ran").exists()


def test_a_node_of_an_earlier_release_goes_on(node: Node) -> None:
    """Its launch gave no key; the broker that was upgraded meanwhile signs."""
    node.spec(SLEEP)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(stop="cancelled_by_user"), KEY)
    assert agent.wait(240) == INTERRUPTED
    assert node.ending().cause is Cause.CANCELLED_BY_USER
