"""`gpubroker backtest reserve` as people run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Gpubroker

pytest.importorskip("scipy", reason="the optimum needs the extra 'backtest'")

DEMAND = "".join(f"{4 + hour % 24 // 6}\n" for hour in range(24 * 20))

Write = Callable[[str, str], Path]


def test_the_document_of_two_files_however_they_are_named(gpubroker: Gpubroker, write: Write) -> None:
    a, b = write("a.csv", DEMAND), write("b.csv", DEMAND)
    done = gpubroker(
        "backtest", "reserve", a, "--demand", b, "--term", "2d", "--ratio", "0.4", "--ratio", "0.6", "--json"
    )
    assert done.code == 0
    cells = done.json["cells"]
    assert {(cell["series"], cell["ratio"]) for cell in cells} == {(s, r) for s in "ab" for r in (0.4, 0.6)}
    assert {cell["policy"] for cell in cells} == {
        *("gpubroker", "mixture", "staggered-quantile", "wang", "static-best", "on-demand", "optimum")
    }
    assert done.json["term_s"] == 48 * 3600


def test_tables_and_charts_for_people(gpubroker: Gpubroker, write: Write, tmp_path: Path) -> None:
    picture = tmp_path / "reserve.html"
    done = gpubroker(
        *("backtest", "reserve", write("a.csv", DEMAND), "--term", "48h", "--warmup", "96h", "--end", "known"),
        *("--policies", "gpubroker, on-demand", "--chart", "--picture", picture),
    )
    assert done.code == 0
    assert "end known" in done.out
    assert "held by gpubroker" in done.out
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("", (), "a.csv: empty"),
        ("1\nx\n", (), "a.csv:2"),
        (DEMAND, ("--ratio", "-1"), "--ratio"),
        (DEMAND, ("--term", "90m"), "--term"),
        (DEMAND, ("--policies", "optimal"), "optimum"),
        (DEMAND, ("--warmup", "90d"), "leaves nothing"),
    ],
)
def test_what_cannot_be_measured_ends_with_a_sentence(
    gpubroker: Gpubroker, write: Write, text: str, arguments: tuple[str, ...], says: str
) -> None:
    done = gpubroker("backtest", "reserve", write("a.csv", text), *arguments)
    assert done.code == 2
    assert says in done.err
