"""What the agent takes from the training beside it: processor time and memory, with the intervals it has in earnest.

The command prints a line and saves a small checkpoint now and then, as training does, over a store that is reached by
HTTP (Cloud Storage after its discovery document, in this process). What starting costs is not in it. Then a large
checkpoint of four files is saved while the command goes on. Run: python -m tests.bench
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from broker.agent.formats import Lease, Spec
from broker.runfolder.runfolder import RunFolder
from tests.agent.node import AGENT, eventually
from tests.fakes.gcs import GcsBucket

SECONDS = 60.0
AT_MOST = {"CPU": 0.01, "MB": 60.0}
TRAINS = """
cd "$GPUBROKER_CHECKPOINT_DIR"; step=0
while [ ! -e .large ]; do
  step=$((step + 1)); echo "step $step loss 0.123"
  if [ $((step % 50)) = 0 ]; then
    head -c 1000000 /dev/zero > .draft; mv .draft step_$step; rm -f step_$((step - 100))
  fi
  sleep 0.2
done
rm -f .draft; mkdir .draft; for n in 1 2 3 4; do head -c 256000000 /dev/zero > .draft/$n; done
mv .draft step_1000000; sleep 600
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name, GcsBucket("bench", "token") as bucket:
        store = {"GOOGLE_BASE_URL": bucket.url, "GOOGLE_BEARER_TOKEN": "token", "GOOGLE_ALLOW_HTTP": "true"}
        os.environ.update(store)
        runs = RunFolder("gs://bench/runs", "j")
        runs.write_lease(1, Lease())
        runs.write_spec(Spec("j", 1, "j-1", TRAINS, grace=1.0))
        scratch = Path(name)
        with (scratch / "agent.log").open("wb") as log:
            agent = subprocess.Popen(
                [*AGENT, "--folder", runs.attempt_url(1), "--scratch", scratch / "scratch"], stderr=log
            )
        try:
            eventually(lambda: list(runs.logs(1)), "the command prints", 60)
            _measure(agent.pid)
            (scratch / "scratch" / "checkpoints" / ".large").touch()
            most = _most_until(agent.pid, lambda: any(one.size > 10**8 for one in runs.checkpoints()))
            _print("… while 1 GB goes up by HTTP", f"{most:8.0f} MB ", most, AT_MOST["MB"])
        finally:
            agent.terminate()
            agent.wait()
        assert runs.checkpoints()


def _measure(pid: int) -> None:
    """The agent and its guard; not the command, which is the guard's child."""
    agent = psutil.Process(pid)
    own = [agent, *agent.children()]
    before, began, most = _seconds(own), time.monotonic(), 0.0
    while time.monotonic() - began < SECONDS:
        time.sleep(1.0)
        most = max(most, sum(process.memory_info().rss for process in own) / 1e6)
    share = (_seconds(own) - before) / (time.monotonic() - began)
    beside = "agent and guard beside a command, over a minute"
    _print(beside, f"{share:8.2%} CPU", share, AT_MOST["CPU"])
    _print(beside, f"{most:8.0f} MB ", most, AT_MOST["MB"])


def _print(name: str, what: str, measured: float, limit: float) -> None:
    least = f"{limit:.0%}" if limit < 1 else f"{limit:.0f} MB"
    slow = "   TOO MUCH" if measured > limit else ""
    print(f"{name:<58} {what}   {least} at most{slow}")


def _most_until(pid: int, done: Callable[[], bool]) -> float:
    """The most memory (MB, resident) that the agent and its guard have until then."""
    agent, most, until = psutil.Process(pid), 0.0, time.monotonic() + 120
    own = [agent, *agent.children()]
    while not done() and time.monotonic() < until:
        most = max(most, sum(process.memory_info().rss for process in own) / 1e6)
        time.sleep(0.02)
    return most


def _seconds(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


if __name__ == "__main__":
    main()
