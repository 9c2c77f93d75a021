"""Every kind of bad input: a clear error with its place, exit 2, and nothing stored."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)

BAD: dict[str, tuple[str, str]] = {
    "unknown key": ("name: x\nrun: echo\nmax_csot: $5\n", "did you mean 'max_cost'"),
    "wrong unit": ("run: echo\ndeadline: 60 apples\n", "expected a duration"),
    "no unit": ("run: echo\nmax_duration: 60\n", "with its unit"),
    "negative number": ("run: echo\nmax_cost: -$5\n", "negative"),
    "negative count": ("run: echo\nnum_nodes: -1\n", "at least 1"),
    "empty": ("", "empty"),
    "not YAML": ("run: [echo\n", "not closed"),
    "a list": ("- run\n- echo\n", "key: value"),
    "YAML bomb": (BOMB, ""),
    "custom tag": ("run: !!python/object/apply:os.system [id]\n", "tag"),
    "too large": ("run: echo\n# " + "x" * 10_000_000, "larger"),
    "unknown accelerator": ("run: echo\nresources: {accelerators: H10}\n", "did you mean"),
    "deadline in the past": ("run: echo\ndeadline: 2020-01-01T00:00:00Z\n", "past"),
    "missing run": ("name: x\n", "run"),
    "name that is not plain": ("name: '../../etc/passwd'\nrun: echo\n", "letters"),
    "workdir that is not there": ("run: echo\nworkdir: nowhere\n", "not a folder"),
}


def jobs_of(gpubroker: Any) -> list[Any]:
    found: list[Any] = gpubroker("jobs", "list", "--json").json["jobs"]
    return found


@pytest.mark.parametrize("command", [("plan",), ("submit", "--yes", "--detach")], ids=["plan", "submit"])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_job_file(gpubroker: Any, write: Any, command: tuple[str, ...], what: str) -> None:
    text, says = BAD[what]
    file = write("bad.yaml", text)
    done = gpubroker(command[0], file, *command[1:])
    assert done.code == 2
    assert says in done.err
    assert "bad.yaml" in done.err
    assert "Traceback" not in done.err
    assert not done.out
    assert jobs_of(gpubroker) == []


def test_every_problem_is_shown_with_its_line_and_a_caret(gpubroker: Any, write: Any) -> None:
    file = write("bad.yaml", "name: x\nrun: echo\nmax_csot: $5\nretry:\n  failures: -2\n")
    done = gpubroker("plan", file)
    assert f"{file}:3:1: max_csot" in done.err
    assert f"{file}:5:13: retry.failures" in done.err
    assert "3 | max_csot: $5\n         | ^" in done.err
    document = gpubroker("plan", file, "--json")
    assert document.code == 2
    error = document.json["error"]
    assert error["kind"] == "invalid_input"
    assert error["where"] == str(file)
    assert [(p["line"], p["key"]) for p in error["problems"]] == [(3, "max_csot"), (5, "retry.failures")]


def test_policy_files_tell_the_column_too(gpubroker: Any, write: Any) -> None:
    file = write("p.yaml", "version: 1\nbudgets:\n  - {name: b, amount: 5, period: day, timezone: Mars/Base}\n")
    for command in ("check", "apply"):
        done = gpubroker("policy", command, file)
        assert f"{file}:3:23: budgets[0].amount: expected an amount with currency, such as $900; got '5'" in done.err
        assert f"{file}:3:49: budgets[0].timezone: 'Mars/Base' is not a time zone; expected an IANA name" in done.err


def test_all_mistakes_are_shown_and_of_a_hugely_broken_file_json_has_them_all(gpubroker: Any, write: Any) -> None:
    wrong = [f"  - {{name: b{n}, amount: {n + 1}, period: day, scope: {{user: u{n}}}}}" for n in range(250)]
    some, many = (
        write(f"{count}.yaml", "\n".join(["version: 1", "budgets:", *wrong[:count], ""])) for count in (60, 250)
    )
    done = gpubroker("policy", "check", some)
    assert all(f"{some}:{n + 3}:" in done.err for n in range(60))
    assert "more" not in done.err.splitlines()[-1]
    done = gpubroker("policy", "check", many)
    assert done.err.splitlines()[-1] == "… and 50 more; use --json to list all"
    assert len(gpubroker("policy", "check", many, "--json").json["error"]["problems"]) == 250


def test_mistakes_in_several_files_are_all_shown(gpubroker: Any, write: Any) -> None:
    one, other = (write(f"{name}.yaml", f"version: 1\npolicy: {name}\nbudgts: 1\n") for name in "ab")
    done = gpubroker("policy", "check", one, other)
    assert done.code == 2
    assert f"error: {one}: this policy file has a mistake" in done.err
    assert f"error: {other}: this policy file has a mistake" in done.err
    assert f"{one}:3:1: budgts" in done.err
    assert f"{other}:3:1: budgts" in done.err
    error = gpubroker("policy", "check", one, other, "--json").json["error"]
    assert (error["where"], [each["where"] for each in error["others"]]) == (str(one), [str(other)])
    assert [problem["line"] for problem in error["others"][0]["problems"]] == [3]


def test_a_file_given_to_the_wrong_command(gpubroker: Any, write: Any) -> None:
    job = write("job.yaml", "name: x\nrun: echo\n")
    policy = write("policy.yaml", "version: 1\nbudgets: [{name: b, amount: $9, period: month}]\n")
    assert "this looks like a policy file" in gpubroker("plan", policy).err
    assert "this looks like a job file" in gpubroker("policy", "check", job).err


def test_what_a_file_says_does_not_steer_the_terminal(gpubroker: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(b'run: echo\n"max_\\e[31mcsot": $5\n')
    done = gpubroker("plan", file)
    assert done.code == 2
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    ("path", "says"), [("nowhere.yaml", "No such file"), (".", "directory")], ids=["missing", "a folder"]
)
def test_a_file_that_cannot_be_read(gpubroker: Any, path: str, says: str) -> None:
    done = gpubroker("submit", path, "--yes")
    assert done.code == 2
    assert says in done.err


def test_a_misspelt_job_file_and_a_missing_folder_have_a_hint(gpubroker: Any, job: Path) -> None:
    assert f"did you mean {job}?" in gpubroker("plan", job.with_name("jop.yaml")).err
    assert "there is no folder" in gpubroker("plan", "nowhere/job.yaml").err


def test_a_run_folder_that_cannot_be_used(
    gpubroker: Any, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").write_text("not a folder")
    monkeypatch.setenv("GPUBROKER_RUNS", (tmp_path / "a-file" / "runs").as_uri())
    done = gpubroker("submit", job, "--yes", "--detach")
    assert done.code == 2
    assert "GPUBROKER_RUNS" in done.err
    assert jobs_of(gpubroker) == []


def test_a_secret_in_a_file_is_not_shown(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    file = write("job.yaml", "run: echo\nsecrets: {TOKEN: hunter2}\nmax_duration: 1 fortnight\n")
    done = gpubroker("plan", file)
    assert done.code == 2
    assert "job.yaml:2:" in done.err
    assert "a secret's value does not belong in a file" in done.err
    assert "     3 | max_duration: 1 fortnight" in done.err
    assert "hunter2" not in done.err + done.out + gpubroker("plan", file, "--json").out
    flow = gpubroker("plan", write("flow.yaml", "{run: echo, secrets: {TOKEN: hunter2}, max_duration: 1 fortnight}\n"))
    assert "fortnight" in flow.err
    assert "hunter2" not in flow.err


def test_a_secret_that_is_not_there(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    file = write("job.yaml", "run: echo\nmax_duration: 1m\nsecrets: [NO_SUCH_TOKEN]\n")
    done = gpubroker("submit", file, "--yes", "--detach")
    assert done.code == 2
    assert "NO_SUCH_TOKEN" in done.err
    assert jobs_of(gpubroker) == []


def test_a_store_from_a_newer_version(gpubroker: Any, home: Path) -> None:
    with sqlite3.connect(home / "gpubroker.db") as store:
        store.execute("UPDATE alembic_version SET version_num = 'v9999'")
    before = (home / "gpubroker.db").read_bytes()
    done = gpubroker("jobs", "list")
    assert done.code == 2
    assert "newer" in done.err
    assert "GPUBROKER_STORE" in done.err
    assert (home / "gpubroker.db").read_bytes() == before


def test_a_file_that_is_no_store(gpubroker: Any, home: Path) -> None:
    (home / "gpubroker.db").write_text("a shopping list\n" * 100)
    done = gpubroker("offers")
    assert done.code == 2
    assert "not a gpubroker store" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("offers", "--gpu", "H100:x"),
        ("offers", "--max-price", "cheap"),
        ("offers", "--by", "colour"),
        ("offers", "--limit", "0"),
        ("offers", "--where", "provider=awz"),
        ("report", "spend", "--since", "yesterday-ish"),
        ("report", "spend", "--by", "colour"),
        ("jobs", "list", "--where", "state=runing"),
        ("status", "nobody"),
        ("budget", "nothing"),
        ("prices", "poll", "--provider", "awz"),
        ("policy", "check", "nowhere.yaml"),
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense(gpubroker: Any, arguments: tuple[str, ...]) -> None:
    done = gpubroker(*arguments)
    assert done.code == 2
    assert "error: " in done.err
    assert "Traceback" not in done.err
    as_json = gpubroker(*arguments, "--json")
    assert as_json.code == 2
    assert as_json.json["error"]["message"]
