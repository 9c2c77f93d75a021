"""Checkpoints in object stores: what one machine saved, another one goes on with, wherever it is; what is torn, nobody.

Real agents with the store's own protocol between: moto's S3, Azurite, and Cloud Storage after its discovery document.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from broker.agent.checkpoints import manifest_path
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.agent.supervise import CLAIM_LOST, INTERRUPTED
from broker.core.events.agent_events import NoticeReceived, Restored
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node, eventually
from tests.fakes.metadata_services import GcpMetadata
from tests.fakes.server import FakeServer
from tests.system.object_stores import ObjectStore, StallingLine, azure, google, s3

pytestmark = pytest.mark.system

PATIENCE = 60.0
PATIENT = {"patience": PATIENCE}
T = TypeVar("T")
STORES: dict[str, Callable[[], AbstractContextManager[ObjectStore]]] = {
    "S3": s3,
    "Azure": azure,
    "Cloud Storage": google,
}


@pytest.fixture(params=STORES)
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The store; the broker, which is this process, has the first machine's login."""
    with STORES[request.param]() as store:
        for name, value in store.first.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def node(tmp_path: Path, kept: ObjectStore) -> Iterator[Node]:
    made = Node(tmp_path, kept.url)
    yield made
    made.close()


def soon(look: Callable[[], T | None], what: str) -> T:
    return eventually(look, what, PATIENCE)


# Saves a folder of two files, too large for one request, and says what is in it.
BIG = """big() { mkdir ".$1"; head -c 11000000 /dev/urandom > ".$1/weights"; echo "$1" > ".$1/what"; mv ".$1" "$1"; }
said() { cat "$1"/* | sha256sum; }
"""


def test_another_machine_goes_on_and_what_is_torn_is_never_restored(kept: ObjectStore, node: Node) -> None:
    torn_while_uploading(kept, node)
    fingerprint = taken_back_elsewhere(kept, node)
    third_time(kept, node, fingerprint)
    with pytest.raises(StoreTrouble):
        opened(kept, kept.stranger).write("attempts/9/spec.json", b"{}")


def torn_while_uploading(kept: ObjectStore, node: Node) -> None:
    """Attempt 1: one checkpoint is saved; the machine dies while the second is on its way."""
    wait = "echo up; while [ ! -e go ]; do sleep 0.02; done; rm go; big step_2; exec sleep 600"
    node.spec(f"{SAVE}{BIG} save step_1 one; {wait}", keep=10, intervals=PATIENT)
    with StallingLine(kept.endpoint) as line:
        agent = node.start(env=kept.through(line))
        soon(lambda: node.saved() == [1] and "up" in node.output(), "the first checkpoint is saved")
        line.stall_after(6_000_000)
        (node.scratch() / "checkpoints" / "go").touch()
        assert line.stalled.wait(PATIENCE), "the second is on its way"
        agent.kill()
        agent.wait()
    assert [one.step for one in node.runs.checkpoints()] == [1]


def taken_back_elsewhere(kept: ObjectStore, node: Node) -> str:
    """Attempt 2: a machine of another cloud, with a login of its own, goes on from the first. Two machines come, one of
    them runs it. It saves four more, the last of them on its cloud's notice; what the first of them holds is told."""
    restored = "cat step_1; ls"
    saves = "big step_3; said step_3; for n in 4 5; do sleep 0.1; save step_$n; done"
    told = "trap 'save step_6; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    node.spec(f"{SAVE}{BIG} {restored}; {saves}; {told}", attempt=2, keep=10, grace=60.0, intervals=PATIENT)
    service = GcpMetadata()
    with FakeServer(service) as server:
        machine = {**kept.second, "GCE_METADATA_HOST": server.url.removeprefix("http://")}
        agents = [node.start(2, gang=gang, env=machine) for gang in ("a", "b")]
        loser = soon(lambda: next((one for one in agents if one.poll() is not None), None), "one of them goes away")
        assert loser.returncode == CLAIM_LOST
        (winner,) = [one for one in agents if one is not loser]
        soon(lambda: node.saved(2) == [3, 4, 5] and "up" in node.output(2), "it saves")
        service.taken = datetime.now(UTC) + timedelta(seconds=30)
        assert winner.wait(PATIENCE) == INTERRUPTED
    assert node.ending(2).cause is Cause.PREEMPTED
    assert [body.source for body in node.events(2) if isinstance(body, NoticeReceived)] == ["Google Cloud"]
    assert node.saved(2) == [3, 4, 5, 6], "the last one within the notice"
    (found,) = [body for body in node.events(2) if isinstance(body, Restored)]
    assert found.step == 1
    assert all("step_2" in one.checkpoint for one in found.passed_over)
    said = node.output(2)
    assert said[:2] == ["one", "step_1"]
    assert [node.runs.verify(one.id) for one in node.runs.checkpoints()] == [None] * 5
    return next(line for line in said if line.endswith("  -"))


def third_time(kept: ObjectStore, node: Node, fingerprint: str) -> None:
    """Attempt 3: of what attempt 2 saved, the three newest have come to harm, each in another way."""
    store, ids = opened(kept, kept.first), [one.id for one in node.runs.checkpoints()]
    missing, flipped, halved = ids[-3:]
    store.delete(f"checkpoints/{missing}/rank-0/step_4")
    store.write(f"checkpoints/{flipped}/rank-0/step_5", b"step_X\n")
    manifest = store.read(manifest_path(halved)) or b""
    store.write(manifest_path(halved), manifest[: len(manifest) // 2])
    node.spec(f"{BIG} cd $GPUBROKER_CHECKPOINT_DIR; ls; said step_3", attempt=3, keep=10, intervals=PATIENT)
    assert node.start(3, env=kept.first).wait(PATIENCE) == 0
    (found,) = [body for body in node.events(3) if isinstance(body, Restored)]
    assert (found.checkpoint, found.step) == (ids[1], 3)
    reasons = {one.checkpoint: one.because for one in found.passed_over}
    assert set(reasons) == {missing, flipped, halved}
    assert reasons[missing] == "step_4 is missing"
    assert "differs from what was saved" in reasons[flipped]
    assert reasons[halved].startswith("its manifest cannot be read")
    assert node.output(3) == ["step_3", fingerprint]


def opened(kept: ObjectStore, login: dict[str, str]) -> ObjectFolder:
    """The job's folder as a machine with that login sees it."""
    before = {name: os.environ[name] for name in login}
    os.environ.update(login)
    try:
        return ObjectFolder.open(f"{kept.url}/j")
    finally:
        os.environ.update(before)
