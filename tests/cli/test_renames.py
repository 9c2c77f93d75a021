"""Removed and renamed commands and options answer with what replaced them."""

import re
import shlex
from pathlib import Path

import pytest

from broker.cli import renames
from broker.economics.assumptions import table
from tests.cli.conftest import Gpubroker
from tests.cli.test_program import ALL

COMMANDS = dict(ALL)
ANSWERS = {**renames.RENAMES, **renames.GUESSES}
GROUPS = {words[:n] for words in COMMANDS for n in range(1, len(words))}


@pytest.mark.parametrize("row", sorted(ANSWERS))
def test_a_removed_command_or_option_answers_with_its_replacement(gpubroker: Gpubroker, row: str) -> None:
    text = f"`gpubroker {row}` {ANSWERS[row]}"
    *words, last = row.split()
    if last.startswith("-"):
        assert tuple(words) in COMMANDS, "the command of the option is gone: give it a row of its own"
        attempts = [[*words, last, "x"], [*words, f"{last}=x"] if last.startswith("--") else [*words, last]]
    else:
        assert tuple(row.split()) not in COMMANDS.keys() | GROUPS
        attempts = [row.split(), [*row.split(), "--json"], [*row.split(), "x", "--help"]]
    for attempt in attempts if row in renames.RENAMES else attempts[:1]:
        done = gpubroker(*attempt)
        assert (done.code, done.err) == (2, "") if "--json" in attempt else (2, f"error: {text}\n")
        done = gpubroker(*attempt, "--json")
        assert (done.code, done.json["error"]["message"]) == (2, text)


@pytest.mark.parametrize("row", sorted(ANSWERS))
def test_a_replacement_exists(row: str) -> None:
    """Commands in backquotes, with their options; an option alone is one of the row's command."""
    for quoted in re.findall(r"`([^`]+)`", ANSWERS[row]):
        words = shlex.split(quoted)
        if words[0].startswith("--"):
            words = ["gpubroker", *row.split()[:-1], *words]
        if words.pop(0) != "gpubroker":
            continue
        found = next(n for n in (3, 2, 1) if tuple(words[:n]) in COMMANDS.keys() | GROUPS)
        options = {word.partition("=")[0] for word in words[found:] if word.startswith("--") and len(word) > 2}
        command = COMMANDS.get(tuple(words[:found]))
        known = {name for parameter in command.params for name in parameter.opts} if command else set()
        assert options <= known


def test_the_assumptions_that_replace_options_of_advice_exist(gpubroker: Gpubroker) -> None:
    named = [name for name in renames.ADVISE_OPTIONS.values() if " " not in name]
    assert set(named) <= table().keys()
    done = gpubroker("advise", "size", "7B", "--headroom", "0.2")
    said = "error: `gpubroker advise size --headroom` is now `--assume memory_headroom=VALUE`\n"
    assert (done.code, done.err) == (2, said)
    moved = gpubroker("advise", "deploy", "serve", "7B", "--provider=aws")
    assert "is now `--where provider=NAME`" in moved.err


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("sell", ["sell"]),
        ("sell", ["sell", "now", "--json"]),
        ("prices sell", ["prices", "sell", "--least", "3"]),
        ("prices watch sell", ["prices", "watch", "sell"]),
        ("offers --cheap", ["offers", "--cheap", "3"]),
        ("offers --cheap", ["offers", "--cheap=3", "--help"]),
        ("prices watch add --cheap", ["prices", "watch", "add", "--json", "--cheap"]),
    ],
)
def test_rows_are_found_at_any_level(
    gpubroker: Gpubroker, monkeypatch: pytest.MonkeyPatch, key: str, arguments: list[str]
) -> None:
    monkeypatch.setattr(renames, "RENAMES", {key: "is now `gpubroker offers`"})
    done = gpubroker(*arguments)
    said = done.json["error"]["message"] if "--json" in arguments else done.err
    assert done.code == 2
    assert f"`gpubroker {key}` is now `gpubroker offers`" in said


def test_no_hint_names_what_was_removed() -> None:
    """Nobody is sent from an error, a help text or a document to a name that only answers with another one."""
    places = [Path(__file__).parents[2] / name for name in ("broker", "providers", "policies", "examples", "docs")]
    files = [path for place in places for kind in ("*.py", "*.md", "*.yaml") for path in place.rglob(kind)]
    texts = {path: path.read_text() for path in (*files, places[0].parent / "README.md")}
    found = []
    for row in renames.RENAMES:
        command, _, option = row.partition(" --")
        rest = rf"[^`'\"\n]* --{option}\b" if option else r"\b(?!-)"
        old = re.compile(rf"gpubroker {command}{rest}")
        skipped = ("renames.py", "CHANGELOG.md", "commands.md")
        found += [(str(path), row) for path, text in texts.items() if path.name not in skipped and old.search(text)]
    assert found == []
