"""What the documents say is true: links lead somewhere, commands exist and take the options shown, examples parse."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from broker.cli.program import app
from broker.core.job.file import parse_job
from policies.loader import load
from tests.program import ROOT


def tracked(pattern: str) -> list[Path]:
    """Files that belong to the project; in a copy without its history, all that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        hidden = {".venv", "build", "dist"}
        return [path for path in ROOT.rglob(pattern) if not hidden & set(path.relative_to(ROOT).parts)]
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]


DOCUMENTS = tracked("*.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[\s`(/])gpubroker +(?!import )([a-z-][^`\n]*)", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    targets = [target.partition("#")[0] for target in LINK.findall(document.read_text("utf-8"))]
    relative = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in relative if not (document.parent / target).exists()] == []


@pytest.mark.parametrize(
    "folder", sorted({path for path in (ROOT / "broker").iterdir() if any(path.glob("*.py"))}), ids=name_of
)
def test_every_room_says_what_it_is_for(folder: Path) -> None:
    assert (folder / "README.md").exists()


@pytest.mark.parametrize("folder", ["broker", "providers", "policies", "examples", "tests", "tests/bench"])
def test_every_part_says_what_it_is_for(folder: str) -> None:
    assert (ROOT / folder / "README.md").exists()


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name == "README.md"], ids=name_of)
def test_files_that_a_table_names_are_there(document: Path) -> None:
    """In the first column of a table, `settings.py` or `engine/times.py` is a file beside the README."""
    rows = re.findall(r"^\| *(`[^|]*)\|", document.read_text("utf-8"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w./-]+\.(?:py|toml|sh|pth))`", row)]
    assert [name for name in named if not (document.parent / name).exists()] == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "README.md", "policies/REFERENCE.md"])
def test_paths_that_are_named_are_there(document: str) -> None:
    """`tests/fakes`, `broker/core/errors.py`; NAME and ROOM stand for something else."""
    named = re.findall(
        r"`((?:broker|providers|policies|tests|examples)/[\w./-]+)`", (ROOT / document).read_text("utf-8")
    )
    paths = [path for path in named if not re.search("NAME|ROOM", path)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def shown_commands() -> Iterator[tuple[str, str]]:
    """Document and arguments of every command that a document shows; alternatives (``a | b``) one by one."""
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        # In prose only `what is quoted` counts.
        code = [body for _, body in FENCE.findall(text)]
        quoted = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
        for piece in (*code, *quoted):
            for found in COMMAND.findall(piece):
                line = found.partition("#")[0].partition("&&")[0].strip()
                if "  " in line:
                    continue  # nobody types so: it is something that was printed
                first, *others = (part.strip() for part in line.split(" | "))
                yield name_of(document), first
                for other in others:
                    yield name_of(document), " ".join([*first.split()[:-1], other])


@cache
def whole_program() -> Any:
    return typer.main.get_command(app)


@pytest.mark.parametrize(("document", "line"), sorted(set(shown_commands())))
def test_every_command_shown_exists_and_takes_its_options(
    document: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.sub(r"[\[\]…]|\.\.\.", " ", line))
    for word in words:  # files are checked to exist by the options themselves
        if re.fullmatch(r"[\w./-]+\.ya?ml|[A-Z]{3,}", word):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    command = whole_program()
    context = command.make_context("gpubroker", [], resilient_parsing=True)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    if words:  # a bare name is how prose speaks of a command
        with suppress(typer.Exit):  # --help and the like
            command.make_context(command.name, words, parent=context.parent)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_job_and_policy_shown_is_valid(document: Path) -> None:
    """Documents in YAML that are whole: jobs have `run`, policies have `policy`. Excerpts are neither."""
    for language, body in FENCE.findall(document.read_text("utf-8")):
        if language == "yaml" and re.search(r"^run:", body, re.MULTILINE):
            assert parse_job(body, file=str(document), now=datetime.now(UTC)).run
        elif language == "yaml" and re.search(r"^policy:", body, re.MULTILINE):
            assert load({"shown.yaml": body})


@pytest.mark.parametrize("target", ["demo", "test", "test-system", "bench", "install", "lint"])
def test_make_targets_that_are_spoken_of_exist(target: str) -> None:
    assert re.search(rf"^{target}:.*## \w", (ROOT / "Makefile").read_text(), re.MULTILINE)
