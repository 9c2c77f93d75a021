"""A job file written by asking."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from broker.cli.terminal import Terminal
from broker.core.job.file import parse_job
from tests.cli.conftest import Done

Run = Callable[..., Done]


def test_the_offered_answers_make_a_job(gpubroker: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    assert gpubroker("init", str(path), "--defaults").code == 0
    job = parse_job(path.read_text(), file=str(path), now=datetime.now(UTC))
    assert (job.name, job.run, job.workdir, job.deadline) == ("my-training", "python train.py", ".", None)
    assert gpubroker("init", str(path), "--defaults").code == 2
    assert gpubroker("init", str(path), "--defaults", "--force").code == 0


def test_without_a_terminal_it_says_what_to_add(gpubroker: Run, tmp_path: Path) -> None:
    assert "--defaults" in gpubroker("init", str(tmp_path / "x.yaml")).err


def test_an_answer_that_makes_no_sense_is_asked_again(
    gpubroker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[str] = iter(
        ["mine", "python x.py --lr 1e-4", "src", "H10O", "H100:8", "48h on A100:8", "60h", "900", "$900", "10m", ""]
    )
    monkeypatch.setattr(Terminal, "asks", property(lambda terminal: True))
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(answers))
    path = tmp_path / "job.yaml"
    done = gpubroker("init", str(path))
    assert "did you mean 'H100'?" in done.err
    assert "expected an amount with currency" in done.err
    job = parse_job(path.read_text(), file=str(path), now=datetime.now(UTC))
    assert (job.resources[0].machine, str(job.max_cost), job.team) == ("H100:8", "$900.00", None)


def test_a_script_of_slurm_is_converted_and_submission_says_how(gpubroker: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -J bert\n#SBATCH -t 2:00:00\n#SBATCH -p gpu\nsrun python train.py\n")
    for command in ("plan", "submit"):
        refused = gpubroker(command, str(script))
        assert refused.code == 2
        assert f"this is a Slurm script; `gpubroker init --from {script}` writes a job file" in refused.err
        assert len(refused.err.splitlines()) == 1
    (tmp_path / "taken.yaml").touch()
    taken = gpubroker("init", str(tmp_path / "taken.yaml"), "--from", str(script))
    assert f"`gpubroker init train.yaml --from {script}`" in taken.err
    done = gpubroker("init", str(tmp_path / "bert.yaml"), "--from", str(script))
    assert (done.code, "of the cluster alone: --partition" in done.out) == (0, True)
    assert "Files that the job writes are lost with its machine unless it names them: `outputs: [FOLDER]`." in done.out
    planned = gpubroker("plan", str(tmp_path / "bert.yaml"), "--json")
    assert (planned.code, planned.json["job"]["name"], planned.json["max_duration"]) == (0, "bert", 7200)
    script.write_text(
        '#SBATCH -c 4\nhost=$(scontrol show hostnames "$SLURM_NODELIST" | head -n1)\n'
        "echo $SLURM_CPUS_PER_TASK $SLURM_X\n"
    )
    several = gpubroker("init", str(tmp_path / "bert.yaml"), "--from", str(script), "--force")
    assert "variables that are not set here: SLURM_X (" in several.out
    text = (tmp_path / "bert.yaml").read_text()
    assert 'envs:\n  SLURM_CPUS_PER_TASK: "4"\n' in text
    assert 'host=$(echo "$SKYPILOT_NODE_IPS" | head -n1)' in text
    own = tmp_path / "own.yaml"
    own.write_text("run: |\n  docker run image python train.py\n")
    assert gpubroker("plan", str(own)).code == 0, "a job file may run docker"
    assert "no format that can be converted" in gpubroker("init", str(tmp_path / "x.yaml"), "--from", str(own)).err
