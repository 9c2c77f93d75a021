"""The broker is killed with SIGKILL before and after everything it does; started again, everything is right.

Right means: one gang ran per attempt, the job succeeded, nothing is held, the ledger balances, what people see equals
what the events say, and no machine is left.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from broker.core.clock import SystemClock
from broker.core.events import JobState
from broker.core.money import Money
from broker.core.ports import EngineState
from broker.ledger.entries import faults
from broker.settings import Settings
from broker.store import open_store

# Counts to three, one file a number; goes on from what it finds. Each start leaves a line with its attempt.
COUNT = """
echo "$GPUBROKER_ATTEMPT" >> "$MARKS"
last=$(ls "$GPUBROKER_CHECKPOINT_DIR" | tail -n 1); last=${last#step-}
for n in 1 2 3; do
  if [ "$n" -gt "${last:-0}" ]; then
    sleep PAUSE
    echo "$n" > "$GPUBROKER_CHECKPOINT_DIR/.new" && mv "$GPUBROKER_CHECKPOINT_DIR/.new" "$GPUBROKER_CHECKPOINT_DIR/step-$n"
  fi
done
"""
POLICY = """
version: 1
policy: crash
budgets: [{name: pretend, amount: $1000, period: month, counts: [sandbox]}]
"""
HEADS = {
    "local": "resources: {cpus: 1}\n",
    "sandbox": "resources: {cpus: 1}\nwork: 2h\nmax_duration: 24h\nconstraints: {providers: [sandbox]}\n",
}


def write_job(folder: Path, engine: str) -> Path:
    body = COUNT.replace("PAUSE", {"local": "0.1", "sandbox": "0.6"}[engine])
    job = folder / f"{engine}.yaml"
    lines = "".join(f"  {line}\n" for line in body.strip().splitlines())
    job.write_text(
        f"name: count\n{HEADS[engine]}envs: {{MARKS: {folder / 'marks'}}}\nrun: |\n{lines}", encoding="utf-8"
    )
    return job


def drive(folder: Path, job: Path, point: int) -> tuple[int, list[str]]:
    """One life of the broker: its exit status, and the points it passed."""
    trace = folder / "trace"
    trace.unlink(missing_ok=True)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    if not (home / "store.db").exists():
        store = open_store(f"sqlite:///{home / 'store.db'}", clock=SystemClock())
        store.activate_policy({"crash.yaml": POLICY}, by="test")
        store.close()
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.driver", home, job, str(point), trace],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    if done.returncode not in (0, -9):
        raise AssertionError(done.stderr)
    return done.returncode, trace.read_text().splitlines()


def check(folder: Path) -> None:
    from cli import registries
    from tests.crash.driver import Broker

    home = folder / "home"
    settings = Settings(home=home, store=f"sqlite:///{home / 'store.db'}", runs=(home / "runs").as_uri())
    broker = Broker(settings, registries())
    with broker.store.reading() as look:
        (view,) = look.jobs()
        entries = look.entries()
        balances = look.balance(view.id).values()
    assert view.state is JobState.SUCCEEDED, view.because
    assert view.closed
    assert faults(entries) == []
    assert all(balance.held == Money.ZERO for balance in balances)
    marks = (folder / "marks").read_text().split()
    twice = [number for number, times in Counter(marks).items() if times > 1]
    assert twice == [], f"attempts that ran twice: {twice}"
    assert set(marks) <= {str(a.number) for a in view.attempts}
    for attempt in view.attempts:
        if attempt.handle is not None:
            seen = broker.engine(attempt.engine).observe([attempt.handle])[attempt.handle]
            assert seen.state in (EngineState.GONE, EngineState.LOST), seen
    with broker.store.reading() as look:
        before = look.jobs()
    broker.store.rebuild()
    with broker.store.reading() as look:
        assert look.jobs() == before
    broker.store.close()


def survive(folder: Path, engine: str, point: int) -> str:
    """Die at ``point``, live again, and be right. The point's label."""
    job = write_job(folder, engine)
    status, trace = drive(folder, job, point)
    if status == -9:
        again, _ = drive(folder, job, 0)
        assert again == 0
    check(folder)
    return trace[-1] if status == -9 else "survived"


@pytest.mark.parametrize("engine", ["local", "sandbox"])
def test_a_life_without_a_crash_is_right(tmp_path: Path, engine: str) -> None:
    assert survive(tmp_path, engine, 0) == "survived"


@pytest.mark.parametrize("draw", range(6))
def test_a_sample_of_crashes(tmp_path: Path, draw: int) -> None:
    """A different sample for every draw, the same for every run."""
    chance = random.Random(f"crash {draw}")
    survive(tmp_path, chance.choice(["local", "sandbox"]), chance.randint(1, 150))


# The quick job takes this many points at the least; later ones repeat what is repeated every tick.
POINTS = 110


@pytest.mark.system
@pytest.mark.parametrize("point", range(1, POINTS + 1))
@pytest.mark.parametrize("engine", ["local", "sandbox"])
def test_every_crash_point(tmp_path: Path, engine: str, point: int) -> None:
    survive(tmp_path, engine, point)


@pytest.mark.system
@pytest.mark.parametrize("engine", ["local", "sandbox"])
def test_every_kind_of_point_is_among_those_that_are_tried(tmp_path: Path, engine: str) -> None:
    """Every call the broker makes in a life of the job first happens within the points that are tried above."""
    _, trace = drive(tmp_path, write_job(tmp_path, engine), 0)
    late = {label for label in trace if label not in trace[:POINTS]}
    assert late == set(), f"raise POINTS: first reached later: {sorted(late)}"
