"""The chaos run itself, cut short; and that what judges it sees what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from broker.core.values.clock import ManualClock
from broker.store import Store
from tests.chaos.evidence import Attempted, Manifests
from tests.chaos.load import ChaosJob, JobFate
from tests.chaos.load import plan as plan_jobs
from tests.chaos.schedule import COMPANIONS, KINDS, plan
from tests.chaos.verdict import ran_once, resumed_right
from tests.program import ROOT
from tests.reconciler.rehearsal import Stage

# A seventh of the long run's jobs in a seventh of its time; by this seed, some for each engine.
MINUTES, JOBS, SEED = 2, 28, 4


@pytest.mark.system
@pytest.mark.timeout(1500)
def test_a_broker_among_faults() -> None:
    asked = ["--minutes", str(MINUTES), "--jobs", str(JOBS), "--seed", str(SEED), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert told["wrong"] == []
    assert done.returncode == 0
    assert {kind for kind, times in told["strikes"].items() if times} == set(KINDS)


@pytest.mark.system
@pytest.mark.timeout(1500)
def test_a_broker_among_hostile_nodes() -> None:
    """A third of the jobs write over whatever they reach; the others end as ever, and the money is right."""
    asked = ["--hostile", "--minutes", "0.7", "--jobs", "12", "--seed", "5", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert told["wrong"] == []
    assert told["hostile_acts"]["own"] > 20
    assert told["hostile_acts"]["of_others"] > 2


def test_a_schedule_is_its_seeds_and_every_kind_comes_before_any_comes_again() -> None:
    kinds = tuple(KINDS)
    strikes = plan(7, 600.0, kinds)
    assert strikes == plan(7, 600.0, kinds)
    assert strikes != plan(8, 600.0, kinds)
    asked_for = [strike.kind for strike in strikes]
    assert set(asked_for[: len(kinds) + len(COMPANIONS)]) == set(kinds)
    assert [strike.at for strike in strikes] == sorted(strike.at for strike in strikes)
    assert plan_jobs(7, 50, slurm=False) == plan_jobs(7, 50, slurm=False)
    assert {job.provider for job in plan_jobs(7, 50, slurm=False)} == {"sandbox", "owned"}


JOB = ChaosJob("chaos-1", "sandbox", 3, 1, JobFate.SUCCEEDS)


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    made = Stage(store, clock)
    made.submit()
    made.pass_time()
    return made


@pytest.mark.parametrize(
    ("marks", "wrong"),
    [
        ([(1, 0, "start"), (1, 0, "end")], []),
        ([(1, 0, "start"), (1, 0, "twice")], ["attempt 1 ran beside another one"]),
        ([(1, 0, "start"), (1, 0, "start")], ["attempt 1 ran 2 times"]),
        ([(1, 0, "start"), (2, 0, "start")], ["attempt 2 ran, and nobody asked for it"]),
    ],
)
def test_what_ran_twice_is_seen(stage: Stage, marks: list[tuple[int, int, str]], wrong: list[str]) -> None:
    found = list(ran_once(JOB, stage.view, Counter(marks)))
    assert len(found) == len(wrong)
    assert all(expected in said for expected, said in zip(wrong, found, strict=True))


def test_a_lost_checkpoint_is_seen() -> None:
    manifests = Manifests(Path("nowhere"))
    manifests.seen["j"] = {"0001-000000000005-a": 10.0, "0001-000000000006-a": 20.0, "0001-000000000007-a": 40.0}

    def wrong(restored: str | None, claimed: float = 30.0, **more: object) -> list[str]:
        entry = {"kind": "restored", "checkpoint": restored, **more}
        return list(resumed_right(Attempted("j", 2, claimed, (entry,)), manifests))

    assert wrong("0001-000000000006-a") == []
    assert wrong("0001-000000000007-a") == [], "it came while the attempt began"
    assert "there was 0001-000000000006-a" in wrong("0001-000000000005-a")[0]
    assert wrong(None) != []
    assert wrong(None, claimed=5.0) == [], "there was none yet"
    torn = [{"checkpoint": "0001-000000000007-a", "because": "a file is missing"}]
    assert wrong("0001-000000000006-a", passed_over=torn) != []
