"""Commands of the documents that are cheap and local are run, with the files that their page shows."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Gpubroker
from tests.program import ROOT

# What prints at once, asks nobody and waits for nothing. `advise` is run by `advise/test_situations.py`.
CHEAP = (
    *("plan", "offers", "schema job-file", "policy check", "policy apply", "policy show"),
    *("policy explain", "policy decisions", "policy findings", "approvals list", "budget", "report spend"),
    *("report units", "report anomalies", "jobs list", "prices status", "capacity list", "whoami"),
    *("launches", "init", "notices"),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference")]


def commands(page: Path) -> list[list[str]]:
    """The first cheap command of each kind on a page. No cluster belongs to the providers of these tests."""
    shown: dict[str, list[str]] = {}
    for language, body in FENCE.findall(page.read_text("utf-8")):
        for line in body.splitlines() if not language else ():
            name = next((name for name in CHEAP if line.startswith(f"gpubroker {name}")), None)
            if name and not re.search("provider=(slurm|kubernetes)", line):
                shown.setdefault(name, shlex.split(line, comments=True)[1:])
    return list(shown.values())


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, gpubroker: Gpubroker, tmp_path: Path) -> None:
    """Refusals and missing capacity are answers: prices are not those of the page. A wrong line or file is none."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for source in {ROOT / "README.md", page}:
        for language, body in FENCE.findall(source.read_text("utf-8")):
            if language == "yaml" and (name := re.match(r"# ([\w-]+\.yaml)\n", body)):
                (tmp_path / name[1]).write_text(body)
            elif language == "yaml" and body.startswith("version: 1\npolicy:"):
                (tmp_path / "policy.yaml").write_text(body)
    for words in commands(page):
        if words[0] == "init":
            words = ["init", "new.yaml", "--defaults"]
        more = ["--yes"] if words[:2] == ["policy", "apply"] else []
        done = gpubroker(*words, *more)
        assert done.code in {0, 3, 4, 6}, f"{' '.join(words)}: {done.code}\n{done.out}{done.err}"
