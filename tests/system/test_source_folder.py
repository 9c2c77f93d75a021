"""What becomes of a job's source folder after `submit` changes nothing: on this machine, in the sandbox and on a real
Slurm, in an attempt that resumes and in a job that runs again."""

from pathlib import Path

import pytest

from tests.program import run
from tests.system.test_follow_logs import PATIENCE, SCENARIO, slurm

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

# Reads its files only once they have changed, saves, fails, and reads them again in the attempt that resumes.
JOB = """\
name: on-{provider}
workdir: source
file_mounts: {{mounted.txt: ./beside.txt}}
constraints: {{providers: [{provider}]}}
checkpoint: {{every: 1m}}
retry: {{failures: 1, backoff: 0s}}
run: |
  until [ -e '{go}' ]; do sleep 0.1; done
  cat words.txt more.txt mounted.txt
  cd "$GPUBROKER_CHECKPOINT_DIR"
  if [ -e step_1 ]; then exit 0; fi
  echo 1 > .new; mv .new step_1
  exit 1
"""


def test_what_runs_and_resumes_is_what_was_submitted(tmp_path: Path) -> None:
    home, go, scenario = tmp_path / "home", tmp_path / "go", tmp_path / "scenario.toml"
    source, beside = tmp_path / "source", tmp_path / "beside.txt"
    scenario.write_text(SCENARIO)
    source.mkdir()
    (source / "words.txt").write_text("as submitted\n")
    (source / "more.txt").write_text("more\n")
    beside.write_text("beside it\n")
    with slurm() as cluster:
        settings = {"GPUBROKER_PROVIDERS__SANDBOX__SCENARIO": str(scenario), **cluster}

        def gpubroker(*words: str) -> str:
            done = run(*words, home=home, timeout=PATIENCE, env=settings)
            assert done.returncode == 0, done.stderr
            return done.stdout

        names = [f"on-{provider}" for provider in ("owned", "sandbox", *(["slurm"] if cluster else []))]
        for name in names:
            job = tmp_path / f"{name}.yaml"
            job.write_text(JOB.format(provider=name.removeprefix("on-"), go=go))
            gpubroker("submit", str(job), "--yes", "--detach")
        (source / "words.txt").write_text("edited\n")
        (source / "more.txt").unlink()
        beside.unlink()
        source.rename(tmp_path / "renamed")
        go.touch()
        for name in names:
            assert gpubroker("status", name, "--wait")
            said = [gpubroker("logs", name, "--attempt", number) for number in ("1", "2")]
            assert said == ["as submitted\nmore\nbeside it\n"] * 2, name
        gpubroker("jobs", "resume", "on-owned", "--same-files", "--yes")
        assert gpubroker("logs", "on-owned") == "as submitted\nmore\nbeside it\n", "a job that runs again"
