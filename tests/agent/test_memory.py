"""What the agent takes of a machine's memory while a checkpoint goes up, as the kernel counts it."""

import re
import sys
from pathlib import Path

import pytest

from tests.agent.node import SAVE, Node, eventually
from tests.fakes.gcs import GcsBucket

# More parts than may be under way at a time, over a store that takes them more slowly than they are read.
SAVES = "echo up; while [ ! -e .go ]; do sleep 0.05; done; head -c 96000000 /dev/zero > .d; mv .d step_1; sleep 600"
# Two parts of 5 MiB, the one that is being filled, and what a request takes; twelve parts would be 60 MB.
AT_MOST = 24.0


def resident(pid: int, what: str) -> float:
    """MB of a process; ``VmRSS`` now, or ``VmHWM`` at the most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) * 1024 / 1e6


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_large_checkpoint_goes_up_in_little_memory_while_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GcsBucket("runs", "token") as bucket:
        monkeypatch.setenv("GOOGLE_BASE_URL", bucket.url)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        node = Node(tmp_path, "gs://runs/team")
        try:
            node.spec(SAVE + SAVES, intervals={"patience": 60.0})
            agent = node.start()
            eventually(lambda: node.output() == ["up"], "the command runs")
            before = resident(agent.pid, "VmRSS")
            (node.scratch() / "checkpoints" / ".go").touch()
            eventually(lambda: node.saved() == [1], "it is saved")
            assert resident(agent.pid, "VmHWM") - before < AT_MOST
        finally:
            node.close()
