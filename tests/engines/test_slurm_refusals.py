"""Whatever sbatch answers, a job that Slurm accepted is found and runs once, and one that it may accept later waits.

The real engine and reconciler, and a stand-in of Slurm's commands.
"""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.app.jobs.reasons import end_text, wait_text
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType
from broker.core.values.clock import ManualClock
from broker.engines.detached import Slot
from broker.engines.slurm import SlurmEngine, SlurmEngineSettings
from broker.store import Store
from tests.engines.slurm_stand_in import SlurmStandIn
from tests.reconciler.rehearsal import MINUTE, Stage, offer

SAID = "Batch job submission failed: "
POLICY = f"{SAID}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
MAY_PASS = (
    f"{SAID}Unable to contact slurm controller (connect failure)",
    f"{SAID}Socket timed out on send/recv operation",
    f"{SAID}Zero Bytes were transmitted or received",
    f"{SAID}Slurm backup controller in standby mode",
    f"{SAID}Unexpected message received",
    f"{SAID}I/O error writing script/environment to file",
    "the submit filter of this site is in a bad mood",
)
FULL = (
    POLICY,
    f"QOSMaxSubmitJobPerUserLimit {POLICY}",
    f"AssocMaxSubmitJobLimit {POLICY}",
    f"AssocGrpSubmitJobsLimit {POLICY}",
    f"{SAID}Slurm temporarily unable to accept job, sleeping and retrying",
)
FOR_GOOD = (
    f"{SAID}Invalid account or account/partition combination specified",
    f"QOSMaxWallDurationPerJobLimit {POLICY}",
    f"QOSMaxGRESPerJob {POLICY}",
)


class SlurmStage(Stage):
    """The stage, with the real engine of Slurm on the only offer."""

    def __init__(self, store: Store, clock: ManualClock, home: Path) -> None:
        self.slurm = SlurmEngine(home, clock)
        super().__init__(store, clock)
        self.offers = [replace(offer(clock.now(), "loop:gpu", CapacityType.ON_DEMAND, "1"), interruption_rate=0.0)]

    def engine_of(self, name: str) -> Any:
        return self.slurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmStandIn:
    return SlurmStandIn(tmp_path / "bin", monkeypatch)


@pytest.fixture
def stage(store: Store, clock: ManualClock, tmp_path: Path, slurm: SlurmStandIn) -> SlurmStage:
    return SlurmStage(store, clock, tmp_path / "home")


@pytest.mark.parametrize("words", [*MAY_PASS, *FULL, *FOR_GOOD])
def test_what_slurm_accepted_is_found_whatever_sbatch_said(stage: SlurmStage, slurm: SlurmStandIn, words: str) -> None:
    slurm.answer(f"accept {words}")
    stage.submit()
    stage.pass_time(MINUTE, times=3)
    assert stage.view.attempts[0].handle == "slurm:loop:17:j-1-1"
    assert (slurm.jobs, stage.view.attempt_count) == (["j-1-1"], 1)


@pytest.mark.parametrize("words", [*MAY_PASS, *FULL])
def test_an_answer_that_may_pass_is_a_wait_with_the_reason(stage: SlurmStage, slurm: SlurmStandIn, words: str) -> None:
    slurm.answer(*[f"refuse {words}"] * 2)
    stage.submit()
    stage.pass_time(MINUTE)
    assert stage.view.state is JobState.LAUNCHING
    assert words in wait_text(stage.view.waiting)
    stage.pass_time(MINUTE, times=2)
    assert (slurm.jobs, stage.view.attempt_count) == (["j-1-1"], 1)


@pytest.mark.parametrize(
    ("memory", "option"), [("node", ["--mem=8192M"]), ("cpu", ["--mem-per-cpu=2048M"]), ("none", [])]
)
def test_memory_is_requested_as_the_cluster_demands(
    stage: SlurmStage, slurm: SlurmStandIn, memory: Any, option: list[str]
) -> None:
    stage.slurm = SlurmEngine(slurm.folder / "home", stage.clock, SlurmEngineSettings(memory=memory))
    stage.submit(Job.model_validate({"name": "j", "run": "x", "resources": [{"memory_gib": 8}]}))
    stage.pass_time(MINUTE, times=3)
    options = (slurm.folder / "options").read_text().splitlines()
    assert [one for one in options if one.startswith("--mem")] == option
    assert "--cpus-per-task=4" in options


@pytest.mark.parametrize(
    "words",
    [
        "lua: Requesting memory by node is not supported. Use --mem-per-cpu.",
        "fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
    ],
)
def test_a_cluster_that_refuses_memory_by_node_gets_the_setting_named(
    stage: SlurmStage, slurm: SlurmStandIn, words: str
) -> None:
    slurm.answer(f"refuse {words}")
    stage.submit(Job.model_validate({"name": "j", "run": "x", "resources": [{"memory_gib": 8}]}))
    stage.pass_time(MINUTE, times=3)
    assert (stage.view.state, slurm.jobs) == (JobState.FAILED, [])
    assert words in end_text(stage.view.ending)
    assert "GPUBROKER_ENGINES__SLURM__MEMORY=cpu" in end_text(stage.view.ending)


def test_a_full_queue_is_waited_for_however_long_it_stays_full(stage: SlurmStage, slurm: SlurmStandIn) -> None:
    slurm.answer(*[f"refuse {FULL[1]}"] * 300)
    stage.submit()
    stage.pass_time(3 * MINUTE, times=24)
    assert not stage.view.state.final
    assert {one.cause for one in stage.view.attempts[:-1]} == {Cause.REQUEST_EXPIRED}, "prices are looked at again"
    assert "it waits until Slurm has fewer" in wait_text(stage.view.waiting)
    slurm.answer()
    stage.pass_time(MINUTE, times=3)
    assert len(slurm.jobs) == 1


def test_words_that_nobody_knows_are_given_up_after_the_patience_and_tried_again_later(
    stage: SlurmStage, slurm: SlurmStandIn
) -> None:
    slurm.answer(*[f"refuse {MAY_PASS[-1]}"] * 300)
    stage.submit()
    stage.pass_time(MINUTE, times=20)
    first = stage.view.attempts[0]
    assert (first.cause, first.ended_at) == (Cause.LAUNCH_FAILED, first.requested_at + 16 * MINUTE)
    assert MAY_PASS[-1] in first.evidence
    slurm.answer()
    stage.pass_time(MINUTE, times=15)
    assert slurm.jobs == ["j-1-2"]


@pytest.mark.parametrize("words", FOR_GOOD)
def test_what_cannot_change_ends_the_job_with_the_reason(stage: SlurmStage, slurm: SlurmStandIn, words: str) -> None:
    slurm.answer(f"refuse {words}")
    stage.submit()
    stage.pass_time(MINUTE, times=3)
    assert stage.view.state is JobState.FAILED
    assert "sacctmgr" in end_text(stage.view.ending)
    assert slurm.jobs == []


def test_while_slurm_cannot_be_asked_nothing_is_recorded_as_refused(stage: SlurmStage, slurm: SlurmStandIn) -> None:
    slurm.answer(f"accept {FOR_GOOD[0]}")
    stage.submit()
    find, asked = stage.slurm.find, 0

    def away(key: str) -> str | None:
        """Slurm goes away after it accepted the job."""
        nonlocal asked
        asked += 1
        if asked == 3:  # before the launch, in it, and after it
            slurm.away(True)
        return find(key)

    stage.slurm.find = away  # type: ignore[method-assign]
    stage.pass_time(MINUTE, times=3)
    assert stage.view.attempts[0].cause is None
    assert "Unable to contact slurm controller" in wait_text(stage.view.waiting)
    slurm.away(False)
    stage.pass_time(MINUTE, times=2)
    assert (slurm.jobs, stage.view.attempts[0].handle) == (["j-1-1"], "slurm:loop:17:j-1-1")


@pytest.mark.parametrize("state", ["EXPEDITING", "POWER_UP_NODE", "NONSENSE"])
def test_a_job_in_a_state_that_nobody_here_knows_is_there(stage: SlurmStage, slurm: SlurmStandIn, state: str) -> None:
    stage.submit()
    stage.pass_time(MINUTE)
    slurm.change("RUNNING", state)
    stage.pass_time(MINUTE, times=2)
    slurm.change(state, "RUNNING")
    stage.pass_time(MINUTE)
    attempt = stage.view.attempts[0]
    assert (slurm.jobs, attempt.over, attempt.gone) == (["j-1-1"], False, False)
    assert [machine.key for machine in stage.slurm.machines()] == ["j-1-1"]


def test_a_launch_waits_while_the_disk_of_its_records_is_full(
    stage: SlurmStage, slurm: SlurmStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as filling:
        filling.setattr(Slot, "write", full)
        stage.submit()
        stage.pass_time(MINUTE, times=3)
        assert (slurm.jobs, stage.view.attempt_count) == ([], 1)
    stage.pass_time(MINUTE, times=2)
    assert (slurm.jobs, stage.view.attempt_count) == (["j-1-1"], 1)
