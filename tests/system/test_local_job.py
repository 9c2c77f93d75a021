"""`gpubroker submit examples/training/training.yaml --yes` on this machine, and SIGKILL for everything in it."""

import json
from pathlib import Path

import pytest

from tests.counts import part
from tests.program import counted, eventually, kill, processes, start
from tests.system.conftest import STEPS, WEAR, finished, saved, show

pytestmark = pytest.mark.system
MOMENTS = ("submitted", "launched", "claimed", "command_started", "checkpoint", "attempt_ended")


def test_a_killed_training_program_is_a_failure_that_goes_on_from_its_checkpoint(
    tmp_path: Path, job_file: Path
) -> None:
    home = tmp_path / "home"
    # Long enough that the program still runs when the agent has stored its first checkpoint, however fast the machine.
    job_file.write_text(job_file.read_text().replace("--batch 16", "--batch 40"))
    cli = start("submit", str(job_file), "--yes", "--json", home=home, env=WEAR)
    eventually(lambda: saved(home), "a checkpoint is saved")
    assert eventually(lambda: kill(processes(home, "command")), "the program is there")
    out, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err
    assert json.loads(out)["state"] == "succeeded"
    ended = finished(home, counted(home, "job_closed"))
    first, second = ended.of("attempt_ended")
    assert (first["cause"], first["exit_status"]) == ("killed_by_signal", 137)
    assert (second["cause"], second["exit_status"], second["step"]) == ("completed", 0, STEPS)
    nothing, restored = ended.of("restored")
    assert nothing["checkpoint"] is None
    of_first = [body for kind, attempt, body in ended.events if kind == "checkpoint_saved" and attempt == 1]
    assert restored["checkpoint"] == of_first[-1]["checkpoint"]
    assert restored["step"] > 0


def undisturbed(tmp_path: Path, job_file: Path, moment: str, victims: tuple[str, ...]) -> None:
    """Kill these when the first such event (or ``checkpoint``) is there: the job does not even notice."""
    home = tmp_path / "home"
    cli = start("submit", str(job_file), "--yes", home=home, env=WEAR)
    reached = (lambda: saved(home)) if moment == "checkpoint" else counted(home, moment)
    eventually(reached, f"it comes to {moment}")
    if "cli" in victims:
        cli.kill()
    if "reconciler" in victims:
        kill(processes(home, "reconciler"))
    cli.communicate(timeout=240) if "cli" not in victims else cli.wait()
    if "cli" in victims and ("reconciler" in victims or moment == "submitted"):
        show(home)  # the person comes back; whoever is killed right after submitting has perhaps started no reconciler
    ended = finished(home, counted(home, "job_closed"))
    (end,) = ended.of("attempt_ended")
    assert (end["cause"], end["exit_status"], end["step"]) == ("completed", 0, STEPS)
    assert len(ended.of("launch_requested")) == 1


@pytest.mark.parametrize(
    ("moment", "victims"),
    [
        # Both victims at each moment, on four days.
        *((moment, ("reconciler", "cli+reconciler")[part(4) // 2]) for moment in MOMENTS[part(2) :: 2]),
        (("submitted", "checkpoint")[part(2)], "cli"),  # later it only looks on
    ],
)
def test_the_broker_killed_at_any_moment(tmp_path: Path, job_file: Path, moment: str, victims: str) -> None:
    undisturbed(tmp_path, job_file, moment, tuple(victims.split("+")))


def test_the_broker_killed_again_and_again(tmp_path: Path, job_file: Path) -> None:
    """A reconciler that lives for a moment at a time still brings the job to its end."""
    home = tmp_path / "home"
    start("submit", str(job_file), "--yes", "--detach", home=home, env=WEAR).communicate(timeout=240)
    for _ in range(5):
        show(home)
        kill(processes(home, "reconciler"))
    show(home)
    ended = finished(home, counted(home, "job_closed"))
    assert len(ended.of("launch_requested")) == 1


def test_a_killed_agent_is_a_lost_machine_that_is_resumed(tmp_path: Path, job_file: Path) -> None:
    home = tmp_path / "home"
    cli = start("submit", str(job_file), "--yes", home=home, env=WEAR)
    eventually(lambda: saved(home), "a checkpoint is saved")
    assert kill(processes(home, "agent"))
    cli.communicate(timeout=240)
    assert cli.returncode == 0
    ended = finished(home, counted(home, "job_closed"))
    first, second = ended.of("attempt_ended")
    assert (first["cause"], second["cause"]) == ("agent_died", "completed")
    # What the killed agent said last is perhaps known to nobody: of "restored", only the second's is certain.
    (restored,) = (body for kind, attempt, body in ended.events if (kind, attempt) == ("restored", 2))
    assert restored["step"] > 0


def test_killed_more_often_than_it_may_be_retried(tmp_path: Path, job_file: Path) -> None:
    home = tmp_path / "home"
    endless = f"--steps {STEPS * 1000}"  # so that it still runs when the broker's store says that it does
    text = job_file.read_text().replace(f"--steps {STEPS}", endless)
    job_file.write_text(text.replace("failures: 2", "failures: 1"))
    cli = start("submit", str(job_file), "--yes", "--json", home=home, env=WEAR)
    for number in (1, 2):
        eventually(counted(home, "command_started", number), "it runs")
        assert eventually(lambda: kill(processes(home, "command")), "the program is there")
    out, _ = cli.communicate(timeout=240)
    assert cli.returncode == 7
    assert json.loads(out)["state"] == "failed"
