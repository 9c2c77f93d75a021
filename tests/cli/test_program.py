"""The program as a whole: start-up, help, examples, and how it ends."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from pydantic import BaseModel
from pydantic.plugin import _loader
from rich.text import Text

import cli
from broker.app.market import offer_lists
from broker.cli import program
from broker.cli.program import app, run
from tests.cli.conftest import Gpubroker
from tests.size import command_options, too_many_options

# Typer itself brings pydantic for a command that has options.
HEAVY = ("sqlalchemy", "sqlmodel", "alembic", "boto3", "httpx", "obstore", "broker.store", "broker.app")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = list(commands())
IDS = [" ".join(words) for words, _ in ALL]


def python(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)


def test_help_imports_nothing_heavy() -> None:
    script = """import sys, cli
from broker.cli.program import run
for words in (["--help"], ["submit", "--help"], ["jobs", "--help"]):
    assert not run(words, cli.registries)
    print(*sys.modules, file=sys.stderr)
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    first, *more = (set(line.split()) for line in done.stderr.splitlines())
    assert len(more) == 2
    assert "broker.cli.program" in first
    assert not [name for name in (*HEAVY, "pydantic") if name in first]
    assert not [name for name in HEAVY if name in more[-1]]


def test_a_command_looks_for_no_plugins_of_pydantic(gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many packages are installed, that took longer than a list of jobs."""

    def looked(**_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(_loader, "_plugins", None)
    monkeypatch.setattr(_loader, "entry_points", looked)
    gpubroker("jobs", "list")
    type("Model", (BaseModel,), {})


def test_a_pydantic_that_looks_for_plugins_otherwise_stops_no_command(
    gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pydantic.plugin._loader", SimpleNamespace())
    assert gpubroker("jobs", "list").code == 0


@pytest.mark.system
def test_a_list_of_jobs_needs_neither_policies_nor_placement(tmp_path: Path) -> None:
    script = "import sys, cli; sys.argv[1:] = ['jobs', 'list']\ntry: cli.main()\nfinally: print(*sys.modules)"
    done = python("-c", script, env={**os.environ, "GPUBROKER_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert {"broker.placement.planner", "policies.loader"}.isdisjoint(done.stdout.split())


def test_a_period_has_the_same_names_in_every_command() -> None:
    names = {(words, option) for words, command in ALL for one in command.params for option in one.opts}
    times = {
        (words, option)
        for words, command in ALL
        for one in command.params
        for option in one.opts
        if one.metavar == "WHEN"
    }
    pairs = {"--since": "--from", "--from": "--since", "--until": "--to", "--to": "--until"}
    lacking = {(words, option) for words, option in times if option in pairs and (words, pairs[option]) not in names}
    assert lacking == set()
    assert len(times) > 8


@pytest.mark.parametrize(("words", "command"), ALL, ids=IDS)
def test_every_command_is_documented_with_examples_that_parse(words: tuple[str, ...], command: Any) -> None:
    assert command.help
    assert "\n" not in command.help.replace("\n\n", ""), "a paragraph is broken where the source is"
    for parameter in command.params:
        assert parameter.help, f"{' '.join(words)}: {parameter.name} has no help"
    epilog = (command.epilog or "").replace(r"\[", "[")
    assert max(map(len, epilog.splitlines())) <= 78, "an example breaks within a terminal of 80 columns"
    examples = [line for line in epilog.replace("\\\n", "").splitlines() if line.startswith("gpubroker")]
    assert examples
    by_words = dict(ALL)
    for example in examples:
        tokens = shlex.split(example)[1:]
        depth = next(n for n in (3, 2, 1) if tuple(tokens[:n]) in by_words)
        found = tuple(tokens[:depth])
        assert found == words, f"an example of {' '.join(found)} under {' '.join(words)}"
        command.make_context(" ".join(words), tokens[depth:])


def test_no_help_loses_words_in_brackets() -> None:
    """Words in brackets are formats to Rich unless the bracket is escaped."""
    for words, command in ALL:
        for text in (command.help, *(parameter.help for parameter in command.params)):
            assert Text.from_markup(text).plain == text.replace(r"\[", "["), words


def test_every_command_speaks_json() -> None:
    """Except those whose standard output is that of somebody's program, or for OpenSSH to read."""
    without = [words for words, command in ALL if not any("--json" in p.opts for p in command.params)]
    assert set(without) == {("exec",), ("ssh",)}


@pytest.mark.parametrize("words", [words for words, _ in ALL], ids=IDS)
def test_help_of_every_command_shows(gpubroker: Any, words: tuple[str, ...]) -> None:
    done = gpubroker(*words, "--help")
    assert done.code == 0
    assert "Examples" in done.out
    assert not re.search(r"<(bool|str|int|float|path|file|list\[.*)>", done.out), "types are Python's words"
    usage = next(line for line in done.out.splitlines() if "Usage:" in line)
    assert "{" not in usage
    assert "[[" not in usage


def test_the_pattern_in_the_help_of_a_filter_is_for_one_of_its_keys(gpubroker: Any) -> None:
    helps = {words: option.help for words, command in ALL for option in command.params if "--where" in option.opts}
    for words, pattern in ((("jobs", "list"), "team=nlp-*"), (("offers",), "region=us-*")):
        assert f"Values may be patterns ({pattern})." in helps[words]
        assert gpubroker(*words, "--where", pattern).code == 0
    assert "patterns" not in helps["capacity", "plan"], "it takes names alone"


def test_no_arguments_show_the_help(gpubroker: Any) -> None:
    done = gpubroker()
    assert done.code == 2
    assert "─ Jobs ─" in done.out


def test_the_help_groups_commands_(gpubroker: Gpubroker) -> None:
    panels = [line.split()[1] for line in gpubroker("--help").out.splitlines() if line.startswith("╭")]
    assert panels == ["Options", *program.PANELS]


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        (["help"], ["--help"]),
        (["help", "logs"], ["logs", "--help"]),
        (["help", "submit"], ["submit", "--help"]),
        (["version"], ["--version"]),
        (["status"], ["jobs", "list"]),
    ],
)
def test_words_that_people_try_first(gpubroker: Gpubroker, typed: list[str], same: list[str]) -> None:
    first, second = gpubroker(*typed), gpubroker(*same)
    assert first.code == second.code == 0
    assert first.out[:60] == second.out[:60]
    assert first.out.count("\n") == second.out.count("\n")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["ofers"], "offers"), (["jobs", "lst"], "list"), (["offers", "--jsn"], "--json"), (["plan"], "JOB.yaml")],
)
def test_a_wrong_command_line_says_what_was_meant(gpubroker: Any, arguments: list[str], meant: str) -> None:
    done = gpubroker(*arguments)
    assert done.code == 2
    assert meant in done.err
    assert not done.out


def test_a_wrong_command_line_is_a_document_with_json(gpubroker: Any) -> None:
    done = gpubroker("offers", "--sort", "colour", "--json")
    assert done.code == 2
    assert done.json["error"]["kind"] == "invalid_input"


def test_something_unexpected_is_a_sentence_and_a_traceback_in_the_log(
    gpubroker: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: object) -> None:
        raise RuntimeError("the roof is on fire")

    monkeypatch.setattr(offer_lists, "find_offers", burst)
    done = gpubroker("offers")
    log = home / "errors.log"
    assert done.code == 1
    assert "the roof is on fire" in done.err
    assert str(log) in done.err
    assert "Traceback" not in done.err
    assert "in burst" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    as_json = gpubroker("offers", "--json")
    assert as_json.code == 1
    assert "the roof is on fire" in as_json.json["error"]["message"]


def test_output_that_is_not_looked_at_is_plain_and_full_width(gpubroker: Any) -> None:
    done = gpubroker("offers", "--all")
    assert "\x1b" not in done.out
    assert "pricebook" in done.out  # the column that is left out first on a narrow terminal
    assert "left out" not in done.out


def test_the_program_starts_as_a_process(home: Path) -> None:
    """The real entry point: one document on standard output, the exit code, nothing else."""
    done = python("-P", "-m", "cli", "status", "nobody", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["kind"] == "unknown_name"
    assert not done.stderr


def test_settings_that_are_wrong_are_named(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_RECONCILE_EVERY", "soon")
    done = gpubroker("offers")
    assert done.code == 2
    assert done.err.count("GPUBROKER_RECONCILE_EVERY") == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s4://bucket/runs", "expected file:///FOLDER, s3://BUCKET"),
        ("memory:///", "unsupported scheme memory://"),
        ("/data/runs", "file:///data/runs"),
        ("file://data/runs", "three slashes"),
        ("s3:///runs", "no bucket"),
    ],
)
def test_a_place_for_run_folders_that_cannot_be_one(
    gpubroker: Any, monkeypatch: pytest.MonkeyPatch, url: str, says: str
) -> None:
    monkeypatch.setenv("GPUBROKER_RUNS", url)
    done = gpubroker("offers")
    assert done.code == 2
    assert "GPUBROKER_RUNS: " in done.err
    assert says in done.err


def test_a_misspelt_variable_is_said_once(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_POLCY", "team.yaml")
    monkeypatch.setenv("GPUBROKER_TEST_DATA", "1")
    done = gpubroker("jobs", "list", "--json")
    assert done.json["jobs"] == []
    assert done.err == "warning: GPUBROKER_POLCY is not a setting; did you mean 'GPUBROKER_POLICY'?\n"


def test_settings_of_a_provider_that_there_is_none_of(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_PROVIDERS__OWNDE__WATTS", "3")
    done = gpubroker("jobs", "list")
    assert done.code == 2
    assert "GPUBROKER_PROVIDERS__OWNDE: unknown provider 'ownde'; did you mean 'owned'?" in done.err


def test_a_store_in_a_folder_that_is_not_there(gpubroker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_STORE", f"sqlite:///{tmp_path}/mistyped/store.db")
    done = gpubroker("jobs", "list")
    assert done.code == 2
    assert "does not exist" in done.err
    assert not (tmp_path / "mistyped").exists()


def test_ctrl_c_ends_with_130(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(offer_lists, "find_offers", interrupted)
    done = gpubroker("offers")
    assert (done.code, done.out, done.err) == (130, "", "Stopped.\n")


@pytest.mark.parametrize("command", [pytest.param(["offers"], marks=pytest.mark.system), ["offers", "--help"]])
def test_output_that_is_closed_early_ends_the_command_quietly(command: list[str], home: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, cli.__file__, *command], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_output_on_a_full_disk_is_said_to_be_unwritable(home: Path) -> None:
    """/dev/full refuses every write, as a full disk does."""
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, cli.__file__, "offers", "--json"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_pipe_that_breaks_elsewhere_is_an_unexpected_error(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError("to a machine")

    monkeypatch.setattr(offer_lists, "find_offers", broken)
    done = gpubroker("offers")
    assert done.code == 1
    assert "unexpected error: BrokenPipeError: to a machine" in done.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.app is app
    code = run(["--version"], cli.registries)
    assert code == 0
    assert capsys.readouterr().out.startswith("gpubroker ")


def test_no_command_has_more_options_than_a_person_can_survey() -> None:
    found = too_many_options(command_options())
    assert {name: count for name, count in found.items() if not name.startswith("advise ")} == {}
