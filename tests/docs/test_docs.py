"""What the documents say is true: links lead somewhere, commands exist and take the options shown, examples parse."""

import re
import shlex
import shutil
import subprocess
import sys
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
from tests.docs import reference
from tests.program import ROOT
from tests.size import words_of_documentation


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


DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
DOCUMENTS = [document for document in tracked("*.md") if document.parent != GENERATED]
PACKAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "broker").iterdir() if any(path.glob("*.py")))
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[\s`(/])gpubroker +(?!import )([a-z-][^`\n]*)", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The addresses of a page's headings, as readers of Markdown make them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    """Links to the generated reference are checked where the site is built."""
    wrong = []
    for target in LINK.findall(document.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        page = (document.parent / name).resolve() if name else document
        if re.match(r"[a-z]+:", target) or page.parent == GENERATED:
            continue
        if not page.exists() or (anchor and anchor not in anchors(page)):
            wrong.append(target)
    assert wrong == []


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Strictly: a page or an anchor that does not exist fails. Each page is in the menu."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("reference"))
    menu = shutil.copy(ROOT / "zensical.toml", tmp_path)
    reference.write(tmp_path / "docs/reference")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {str(page.relative_to(tmp_path / "docs")) for page in (tmp_path / "docs").rglob("*.md")}
    assert set(re.findall(r'"([\w/-]+\.md)"', Path(menu).read_text("utf-8"))) == pages
    assert all((tmp_path / "site" / page.removesuffix("index.md").removesuffix(".md")).is_dir() for page in pages)


@pytest.mark.parametrize("folder", [*PACKAGES, "broker", "providers", "policies", "examples", "tests"])
def test_every_package_says_what_it_is_for(folder: str) -> None:
    assert (ROOT / folder / "README.md").exists()


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if DOCS in path.parents or path.parent == ROOT], ids=name_of
)
def test_paths_that_are_named_are_there(document: Path) -> None:
    """`tests/fakes`, `broker/core/errors.py`; NAME and ROOM stand for something else."""
    named = re.findall(r"`((?:broker|providers|policies|tests|examples)/[\w./-]+)`", document.read_text("utf-8"))
    paths = [path for path in named if not re.search("NAME|ROOM", path)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@cache
def words_of_code() -> frozenset[str]:
    """Every identifier of the code and its templates, and the names of all files."""
    words = {path.name for path in tracked("*")}
    for pattern in ("*.py", "*.toml", "*.html"):
        words.update(*(re.findall(r"\w+", path.read_text("utf-8")) for path in tracked(pattern)))
    return frozenset(words)


@pytest.mark.parametrize(
    "guide",
    [path for path in DOCUMENTS if path.name == "README.md" or path.parent == DOCS / "contributing"],
    ids=name_of,
)
def test_modules_and_names_that_guides_mention_exist(guide: Path) -> None:
    """A README's `retail.py` is in its package, `pricing/run_model.py` anywhere; `CapacityEnd` is in the code."""
    quoted = re.findall(r"`([^`\n]+)`", FENCE.sub("", guide.read_text("utf-8")))
    modules = [name for name in quoted if re.fullmatch(r"[\w/]+\.py", name) and not re.search("NAME|ROOM", name)]
    names = [name for name in quoted if re.fullmatch(r"[A-Z]\w+(\.\w+)*(\(\))?", name)]
    paths = [f"/{name_of(path)}" for path in tracked("*.py")]
    folder = f"/{name_of(guide.parent)}/" if guide.name == "README.md" and guide.parent != ROOT else "/"
    missing = [
        name
        for name in modules
        if not any(
            path.endswith(f"/{name}") and ("/" in name or path.startswith(folder) or path == f"/{name}")
            for path in paths
        )
    ]
    words = words_of_code()
    unknown = [name for name in names if name not in words and not {*name.rstrip("()").split(".")} <= words]
    assert missing + unknown == []


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


@pytest.mark.parametrize("target", ["demo", "test", "test-system", "docs", "install", "lint"])
def test_make_targets_that_are_spoken_of_exist(target: str) -> None:
    assert re.search(rf"^{target}:.*## \w", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    """The phrases of the first column stand in the code as they are quoted."""
    page = (DOCS / "troubleshooting.md").read_text("utf-8").partition("| message contains")[2].partition("\n\n")[0]
    phrases = [phrase for row in page.splitlines() for phrase in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    sources = [file.read_text("utf-8") for place in ("broker", "policies") for file in (ROOT / place).rglob("*.py")]
    code = re.sub(r'"\s+f?"', "", "\n".join(sources))
    assert phrases
    assert [phrase for phrase in phrases if phrase not in code] == []


def test_documents_stay_short() -> None:
    """What everybody opens, and all of it together (``make size``)."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1200
    assert words_of_documentation() <= 35_000
    long = [path for path in DOCUMENTS if path.name == "README.md" and len(path.read_text("utf-8").splitlines()) > 20]
    assert {name_of(path) for path in long} <= {
        "README.md",
        "broker/README.md",
        "tests/README.md",
        "tests/lab/README.md",
    }
