"""The agent on a bare image: one file and obstore beside it, on old and new Pythons, without root, over S3.

Nothing of gpubroker is installed there, nothing of this environment is handed on, and no privileges are left.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.agent.supervise import CLAIM_LOST
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.agent_bundle import write_agent
from tests.agent.node import SAVE, Node, eventually
from tests.bare_images import LIBRARIES, VERSIONS, library, python
from tests.system.object_stores import ObjectStore, s3

pytestmark = pytest.mark.system

PATIENCE = 60.0
# Drops every privilege for good; the user stays who it is, and that user's files readable.
NO_PRIVILEGES = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture(scope="module")
def kept() -> Iterator[ObjectStore]:
    with s3() as store:
        yield store


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.close()


def bare(interpreter: Path, libraries: Path, folder: Path) -> tuple[str, ...]:
    """How the agent is started there: the archive, with its libraries beside it, and no other package in sight."""
    archive = write_agent(folder / "agent")
    (archive.parent / "lib").symlink_to(libraries)
    privileges = NO_PRIVILEGES if os.geteuid() == 0 and shutil.which("setpriv") else ()
    return (*privileges, str(interpreter), "-I", "-S", str(archive))


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_there_is_restarted_and_another_goes_on(
    version: str, kept: ObjectStore, nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter, libraries = python(version), library(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    if libraries is None:
        pytest.skip(f"no obstore for Python {version}: python -m tests.bare_images, with {LIBRARIES} set")
    for name, value in kept.first.items():
        monkeypatch.setenv(name, value)
    node = Node(tmp_path, f"{kept.url}/{version}", bare(interpreter, libraries, tmp_path), clean=True)
    nodes.append(node)
    patient = {"patience": PATIENCE}
    node.spec(f"{SAVE} echo up; save step_1 one; exec sleep 600", intervals=patient)
    agent = node.start(env=kept.first)
    eventually(lambda: node.saved() == [1] and node.output() == ["up"], "it saves, and ships its log", PATIENCE)
    agent.kill()
    agent.wait()
    restarted = node.start(env=kept.first, scratch=0)
    assert restarted.wait(PATIENCE) == CLAIM_LOST, "what was claimed stays claimed, and the command died with its agent"
    assert node.ending().cause is Cause.AGENT_DIED
    assert node.ending().evidence == f"the agent (pid {agent.pid}) died and was started again"

    node.spec(f"{SAVE} cat step_1; grep CapEff /proc/self/status; save step_2", attempt=2, intervals=patient)
    assert node.start(2, env=kept.first).wait(PATIENCE) == 0, node.said(2)
    assert node.ending(2).cause is Cause.COMPLETED
    (found,) = [body for body in node.events(2) if isinstance(body, Restored)]
    assert found.step == 1
    content, capabilities = node.output(2)
    assert content == "one"
    if os.geteuid() != 0 or shutil.which("setpriv"):
        assert int(capabilities.split()[1], 16) == 0, "nothing of root's powers is there"
    assert [node.runs.verify(one.id) for one in node.runs.checkpoints()] == [None, None]
