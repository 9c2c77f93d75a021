"""What a plan says of failures in `run:` that nobody would see, and of secrets that everybody would."""

import subprocess

import pytest

from broker.core.job.jobs import Job
from broker.core.job.pitfalls import pitfalls

VALUE = "hf_abcdefGHIJKLmnop"


def notes(run: str, **more: object) -> list[str]:
    return list(pitfalls(Job.model_validate({"name": "x", "run": run, **more})))


def status(script: str) -> int:
    return subprocess.run(["bash", "-c", script], capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("run", "fix"),
    [
        ("false; true", "set -e"),
        ("false | cat", "set -o pipefail"),
        ("set -e\nfalse 2>&1 |\n  tee /dev/null\necho done", "set -o pipefail"),
        ("A=1 false\nfalse | cat\necho 'done'", "set -eo pipefail"),
        ("for i in 1; do\n  false # | it's\n  echo $i\ndone", "set -e"),
    ],
)
def test_a_failure_that_changes_nothing_is_told_with_the_fix(run: str, fix: str) -> None:
    (note,) = notes(run)
    assert note.startswith("if `false` in `run:` fails, ")
    assert note.endswith(f"begin `run:` with `{fix}`")
    assert status(run) == 0
    assert status(f"{fix}\n{run}") != 0


@pytest.mark.parametrize(
    "run",
    [
        "cd . && false",
        "export A=1\nmkdir -p .\nfalse --with 'a | b; c' # d; e | f",
        "set -euo pipefail\nfalse | cat\ntrue",
        "yes 2> /dev/null | false",
        "x=$(ls | wc -l)\n[ $x = 0 ] || false",
        "false || exit 3\ntrue",
        "if true; then false; fi",
        "sleep 0 & false",
    ],
)
def test_where_a_failure_decides_nothing_is_told(run: str) -> None:
    assert notes(run) == []
    assert status(run) != 0


@pytest.mark.parametrize(
    ("job", "named"),
    [
        ({"envs": {"db_password": "secret-of-mine", "OPENAI_API_KEY": "x9"}}, "OPENAI_API_KEY, db_password"),
        ({"envs": {"WHERE": f"https://me:{VALUE}@host"}}, "WHERE"),
        ({"array": {"grid": {"KEY": ["AKIAABCDEFGHIJKLMNOP", "x"]}}}, "KEY"),
        ({"setup": f"login {VALUE}"}, "a word of `run:` or `setup:`"),
    ],
)
def test_a_secret_in_sight_is_named_and_not_repeated(job: dict[str, object], named: str) -> None:
    (note,) = notes("true", **job)
    assert note.startswith(f"warning: {named} looks like a secret")
    assert "`secrets:`" in note
    assert not any(value in note for value in (VALUE, "secret-of-mine", "AKIA", "x9"))


def test_no_secrets_are_seen_where_there_are_none() -> None:
    envs = {
        "PAD_TOKEN": "<pad>",
        "MAX_TOKEN": "512",
        "TOKEN": "",
        "SECRET": "$HOME/x",
        "TOKENIZER": "gpt2",
        "KEY": "sk-1",
    }
    assert notes("train", envs=envs) == []


@pytest.mark.parametrize("value", ["$HF_HOME", "${HF_HOME}", "${HF_HOME:-/x}"])
def test_a_variable_that_stays_as_it_is_written_is_told(value: str) -> None:
    (note,) = notes("true", envs={"HF_HOME": value, "PRICE": "$5", "LINE": "a $HOME b"})
    assert note.startswith("HF_HOME is set to these very words")
    assert "`--env HF_HOME`" in note
