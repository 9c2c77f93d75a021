"""What the crash tests share: a process that lives brokers' lives on request, and how to ask it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.crash.driver import SPEED, BrokerLife, ask
from tests.empty_store import empty_store

ROOT = Path(__file__).parents[2]

# Counts to three, one checkpoint a number; goes on from what it finds. Its first attempt fails on the way. Each start
# leaves a line with its attempt.
COUNT = """
echo "$GPUBROKER_ATTEMPT" >> "$MARKS"
cd "$GPUBROKER_CHECKPOINT_DIR"
last=$(ls | tail -n 1); last=${last#step-}
for n in 1 2 3; do
  if [ "$n" -gt "${last:-0}" ]; then
    sleep 0.1
    echo "$n" > .new && mv .new "step-$n"
    if [ "$n" = 2 ] && [ "$GPUBROKER_ATTEMPT" = 1 ]; then exit 3; fi
  fi
done
"""
# Counts until it is told to stop, and saves then; its second attempt counts two more. No number is counted twice.
MOVE = """
echo "$GPUBROKER_ATTEMPT" >> "$MARKS"
cd "$GPUBROKER_CHECKPOINT_DIR"
last=$(ls | tail -n 1); last=${last#step-}
n=$((10#${last:-0})); most=$((n + (GPUBROKER_ATTEMPT == 1 ? 6000 : 2)))
trap 'stop=1' TERM
save() { echo "$n" > .new && mv .new "step-$(printf %06d "$n")"; }
while [ "$n" -lt "$most" ]; do
  n=$((n + 1)); echo "$n" >> "$MARKS.counted"
  sleep 0.05
  if [ -n "$stop" ]; then save; exit 143; fi
  if [ "$n" = 2 ]; then save; fi
done
save
"""
SCRIPTS = {"local": COUNT, "sandbox": COUNT, "handover": MOVE}
HEADS = {
    "local": "",
    "handover": "",
    "sandbox": "work: 2h\nmax_duration: 24h\nconstraints: {providers: [sandbox]}\n",
}
POLICY = """
version: 1
policy: crash
moves: {overlap: true}
budgets: [{name: pretend, amount: $1000, period: month, counts: [sandbox]}]
"""

Drive = Callable[[Path, str, str], tuple[int, list[str]]]


@pytest.fixture(scope="session")
def drive() -> Iterator[Drive]:
    """One life of a broker: a folder, its kind (an engine, or a handover on the local one) and the point to die at; its
    exit status, and the points it passed."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.driver"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        start_new_session=True,
    )

    def one(folder: Path, engine: str, dies_at: str) -> tuple[int, list[str]]:
        job, home, trace = folder / "job.yaml", folder / "home", folder / "trace"
        if not home.exists():
            home.mkdir(mode=0o700)
            store = open_store(empty_store(home / "store.db"), clock=SystemClock())
            store.activate_policy({"crash.yaml": POLICY}, by="test")
            store.close()
            script = "".join(f"  {line}\n" for line in SCRIPTS[engine].strip().splitlines())
            job.write_text(
                f"name: count\nresources: {{cpus: 1}}\nretry: {{failures: 1}}\n{HEADS[engine]}"
                f"envs: {{MARKS: {folder / 'marks'}}}\nrun: |\n{script}",
                encoding="utf-8",
            )
        trace.unlink(missing_ok=True)
        pace, moves = SPEED if engine == "sandbox" else 1.0, engine == "handover"
        life = BrokerLife(str(home), str(job), dies_at, str(trace), pace, moves)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(ask(life))
        answer = server.stdout.readline()
        assert answer, "the process that lives the lives has died itself"
        status = int(answer)
        assert status in (0, -signal.SIGKILL), life.log.read_text()
        return status, trace.read_text().splitlines()

    yield one
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
