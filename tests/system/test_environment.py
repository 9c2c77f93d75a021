"""What reaches a job's command from outside arrives as it was given, executes nothing, and leaks nowhere."""

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from tests.program import counted, eventually, processes, run, start

pytestmark = pytest.mark.system
NASTY = {
    "QUOTES": """it's "quoted" and `ticked` \\ back\\\\slashed""",
    "SHELL": "$(touch $HOME/executed) `touch executed` ; touch executed & $PATH ${IFS}",
    "LINES": "first\nsecond\r\n\tthird\n\n",
    "WORLD": "grüße 你好 🚀 \u202e\u0000".replace("\u0000", ""),
    "LEADING": "-n  --help=%s ",
    "LARGE": "0123456789abcdef" * 6400,  # 100 kB
    "EMPTY": "",
}
# Writes what it sees, in a form that no shell has touched.
WITNESS = """
import json, os, sys
names = sys.argv[2].split(",")
open(sys.argv[1], "w").write(json.dumps({name: os.environ.get(name) for name in names}))
"""


def job(folder: Path, run_line: str, **more: object) -> Path:
    (folder / "witness.py").write_text(WITNESS)
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "probe", "resources": {"cpus": 1}, "run": run_line, **more}))
    return file


def test_values_arrive_verbatim_and_execute_nothing(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    work = tmp_path / "work"
    work.mkdir()
    line = f"python3 '{tmp_path}/witness.py' '{seen}' {','.join(NASTY)}"
    file = job(tmp_path, line, envs=NASTY, workdir="work")
    done = run("submit", str(file), "--yes", home=tmp_path / "home", timeout=100, HOME=str(work))
    assert done.returncode == 0, done.stderr
    assert json.loads(seen.read_text()) == NASTY
    assert [path.name for path in tmp_path.rglob("executed")] == []


def files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file())


def test_a_secret_is_seen_by_the_command_and_by_nobody_else(tmp_path: Path) -> None:
    secret = f"hunter2-{secrets.token_hex(16)}"
    home, seen, go = tmp_path / "home", tmp_path / "seen.json", tmp_path / "go"
    line = f"python3 '{tmp_path}/witness.py' '{seen}' TOKEN; while [ ! -e '{go}' ]; do sleep 0.05; done"
    file = job(tmp_path, line, secrets=["TOKEN"])

    def leaks() -> list[str]:
        found = [str(path) for path in files(home) if secret.encode() in path.read_bytes()]
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                found += [str(words) for words in [process.cmdline()] if any(secret in word for word in words)]
        return found

    cli = start("submit", str(file), "--yes", home=home, TOKEN=secret)
    eventually(seen.exists, "the command runs")
    eventually(lambda: seen.read_text() and json.loads(seen.read_text()) == {"TOKEN": secret}, "it saw the secret")
    seen.unlink()
    assert processes(home, "command")
    assert leaks() == []
    go.touch()
    out, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err
    assert eventually(counted(home, "job_closed"), "the job is closed")
    shown = run("status", "probe", "--json", home=home).stdout + run("logs", "probe", home=home).stdout
    assert secret not in out + err + shown
    assert leaks() == []


def test_a_secret_that_is_not_there_is_asked_for_before_anything_happens(tmp_path: Path) -> None:
    done = run("submit", str(job(tmp_path, "true", secrets=["TOKEN_THAT_IS_NOT_SET"])), "--yes", home=tmp_path / "home")
    assert done.returncode == 2
    assert "TOKEN_THAT_IS_NOT_SET" in done.stderr
    assert json.loads(run("jobs", "list", "--json", home=tmp_path / "home").stdout)["jobs"] == []
