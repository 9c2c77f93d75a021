"""`gpubroker report review` as people run it."""

from pathlib import Path

import pytest

from broker.cli.render.documents import Block, Bullets, Grid, Heading, Paragraph, html, markdown
from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.cli.conftest import Gpubroker
from tests.focus_ledger import own_idle_machine, post_two_months


@pytest.fixture
def ran(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    post_two_months(store)
    store.close()


@pytest.mark.usefixtures("ran")
def test_it_is_printed_and_its_parts_add_up(gpubroker: Gpubroker) -> None:
    shown = gpubroker("report", "review", "--month", "2026-10").out
    assert "# Review of 2026-10" in shown
    assert "Use cost $32.00: $4.25 (12 %) less than before." in shown
    assert "| All | -$4.25 |" in shown
    found = gpubroker("report", "review", "--month", "2026-10", "--json").json
    assert found["change"] == "-4.25"
    assert round(sum(float(amount) for amount in found["parts"].values()), 6) == -4.25


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(("name", "begins"), [("october.md", "# Review"), ("october.html", "<!doctype html>")])
def test_it_is_written_to_a_file_once(gpubroker: Gpubroker, tmp_path: Path, name: str, begins: str) -> None:
    out = tmp_path / name
    assert gpubroker("report", "review", "--month", "2026-10", "--out", out).code == 0
    assert out.read_text().startswith(begins)
    assert "nlp / llm" in out.read_text()
    assert out.stat().st_mode & 0o777 == 0o600
    again = gpubroker("report", "review", "--month", "2026-10", "--out", out)
    assert again.code == 2
    assert "the file exists" in again.err
    assert gpubroker("report", "review", "--month", "2026-10", "--out", out, "--force").code == 0


@pytest.mark.usefixtures("ran")
def test_advice_is_answered(gpubroker: Gpubroker, home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    own_idle_machine(store)
    store.close()
    month = ("report", "review", "--month", "2026-09")
    (advice,) = [one for one in gpubroker(*month, "--json").json["advice"] if one["kind"] == "idle"]
    assert gpubroker(*month, "--answer", f"{advice['id']}=perhaps").code == 2
    assert advice["id"] in gpubroker(*month, "--answer", "idle-0=done").err
    shown = gpubroker(*month, "--answer", f"{advice['id']}=dismissed", "--reason", "sold").out
    assert f"{advice['id']}, dismissed by " in shown
    assert ": sold" in gpubroker(*month).out


@pytest.mark.parametrize("arguments", [("--month", "2099-01"), ("--month", "2026-10", "--out", "a.pdf")])
def test_what_makes_no_sense_is_refused(gpubroker: Gpubroker, arguments: tuple[str, ...]) -> None:
    assert gpubroker("report", "review", *arguments).code == 2


def test_no_text_of_a_document_is_taken_for_markup() -> None:
    blocks: list[Block] = [
        Heading("<b>", 1),
        Paragraph("a *b* [c](d)"),
        Bullets(["<script>"]),
        Grid(("a|", "b"), [("x | y\nz", "1")]),
    ]
    page = html(blocks)
    assert "<script>" not in page
    assert "<h1>&lt;b&gt;</h1>" in page
    assert '<td class="figure">1</td>' in page
    text = markdown(blocks)
    assert "\\*b\\* \\[c\\]" in text
    assert "| x \\| y z | 1 |" in text


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("spot-0=don", "unknown answer 'don'; did you mean 'done'?"),
        ("spot-0=", "known: accepted, dismissed, done"),
        ("spot-0=done", "unknown advice 'spot-0'"),
    ],
)
def test_a_mistyped_answer_is_told_what_there_is(gpubroker: Gpubroker, answer: str, says: str) -> None:
    refused = gpubroker("report", "review", "--month", "2026-09", "--answer", answer)
    assert refused.code == 2
    assert says in refused.err
