"""`python -m tests.lab.placement`: the document it prints, determinism, and requests that cannot be replayed."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from tests.lab.placement import main
from tests.lab.windows import Request, measure

HOUR = 3600.0
ALL = (
    "gpubroker",
    "uniform-progress",
    "greedy",
    "eager-next-region",
    "time-sliced",
    "levi",
    "gepa",
    "on-demand",
    "omniscient",
)
QUICK = ("--work", "8h", "--deadline", "10h", "--starts", "2", "--workers", "1")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """Two pools over 100 h of ten-minute ticks, spells of a few hours; a job of 8 h."""
    folder = tmp_path / "family"
    folder.mkdir()
    for name, seed in (("east", 1), ("west", 2)):
        dice, bits = Random(seed), list[bool]()
        while len(bits) < 600:
            bits += [len(bits) % 2 == 0 or dice.random() < 0.5] * dice.randint(1, 20)
            bits += [False] * dice.randint(1, 12)
        trace = {"metadata": {"gap_seconds": 600}, "data": [int(bit) for bit in bits[:600]]}
        (folder / f"{name}.json").write_text(json.dumps(trace))
    return Request(
        [folder], work=8 * HOUR, deadlines=[10 * HOUR, 14 * HOUR], changeovers=[720.0], policies=ALL, starts=3
    )


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_document(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--deadline", "14h", "--policies", ", ".join(ALL), "--per-window")
    found = printed(capsys, request_.traces[0], *QUICK, *options)
    cells = found["cells"]
    assert [cell["policy"] for cell in cells[: len(ALL)]] == list(ALL)
    assert len(cells) == 2 * 2 * len(ALL)
    for cell in cells:
        assert (cell["family"], cell["missed"], cell["windows"]) == ("family", 0, 2)
        assert cell["ratio_mean"] == 1 if cell["policy"] == "omniscient" else cell["ratio_mean"] >= 1 - 1e-9
        starts = [window["start"] for window in cell["per_window"]]
        assert starts == [window["start"] for window in cells[0]["per_window"]]
        assert all(300 <= start <= 600 - 84 for start in starts)
        costs = [(float(window["cost"]), float(window["optimum"])) for window in cell["per_window"]]
        ratio = sum(cost for cost, _ in costs) / sum(optimum for _, optimum in costs)
        assert cell["ratio_mean"] == pytest.approx(ratio, abs=1e-5)
    assert printed(capsys, "--traces", request_.traces[0], *QUICK, *options) == found


def test_policies_that_may_overlap_are_measured_beside_those_that_may_not(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--policies", "uniform-progress,greedy,omniscient", "--overlap", "--pool", "east")
    cells = printed(capsys, request_.traces[0], *QUICK, *options, "--restore", "3m", "--upload", "1m")["cells"]
    ratio = {cell["policy"]: cell["ratio_mean"] for cell in cells}
    names = ["uniform-progress", "greedy", "omniscient", "uniform-progress-overlap", "omniscient-overlap"]
    assert list(ratio) == names
    assert ratio["omniscient-overlap"] < 1 <= ratio["uniform-progress"] != ratio["uniform-progress-overlap"]


@pytest.mark.parametrize("history", [True, False])
def test_without_history_nothing_before_a_window_counts(request_: Request, history: bool) -> None:
    asked = replace(request_, policies=("gpubroker",), deadlines=[10 * HOUR], history=history)
    before, _ = measure(asked)
    for path in request_.traces[0].iterdir():
        trace = json.loads(path.read_text())
        trace["data"][:300] = [1, 1, 1, 1, 1, 0] * 50
        path.write_text(json.dumps(trace))
    assert (measure(asked)[0] == before) is not history


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"deadlines": [7 * HOUR]}, "a deadline of 7 h is shorter than the work, 8 h"),
        ({"changeovers": [3 * HOUR]}, "longer than the slack, 2 h"),
        ({"changeovers": [0.0]}, "above 0"),
        ({"restore": 721.0}, "a restore and a boot"),
        ({"upload": 541.0}, "a restore and a boot"),
        ({"upload": float("inf")}, "finite"),
        ({"work": 0.0}, "work must be positive"),
        ({"work": float("nan")}, "finite"),
        ({"starts": 0}, "at least one start"),
        ({"from_fraction": 1.0}, "0 ≤ from < 1"),
        ({"to_fraction": 0.5}, "from < to ≤ 1"),
        ({"to_fraction": 0.51}, "between 50% and 51% of it"),
        ({"deadlines": [60 * HOUR]}, "no room for a window of 60 h"),
        ({"policies": ()}, "--policies: expected at least one"),
    ],
)
def test_requests_that_cannot_be_replayed(request_: Request, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        measure(replace(request_, **change))
