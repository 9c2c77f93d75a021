"""`python -m tests.lab.placement`: the document it prints, determinism, and requests that cannot be replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.core.errors import InvalidInput, UnknownName
from tests.lab.placement import document, families, main, totals
from tests.lab.traces import TracePrices
from tests.lab.windows import PlacementCell, Request, Window, measure

HOUR = 3600.0
ALL = ("gpubroker", "uniform-progress", "greedy", "eager-next-region", "time-sliced", "on-demand", "omniscient")
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


def test_the_seed_matters_and_the_number_of_workers_does_not(request_: Request) -> None:
    request = replace(request_, policies=("gpubroker", "omniscient"), deadlines=[10 * HOUR])
    found = measure(request)
    assert measure(request, workers=2) == found
    other, _ = measure(replace(request, seed=8))
    assert [window.start for window in other[0].windows] != [window.start for window in found[0][0].windows]


def test_windows_lie_between_the_parts_that_were_named(request_: Request) -> None:
    request = replace(request_, policies=("on-demand",), from_fraction=0.25, to_fraction=0.45, starts=99)
    cells, notes = measure(request)
    assert [window.start for window in cells[0].windows] == list(range(150, 270 - 84 + 1))
    assert "family: room for 37 windows, not for 99" in notes


def test_pools_of_different_length_or_tick_are_noted(request_: Request, tmp_path: Path) -> None:
    request = replace(request_, policies=("on-demand",))
    longer: dict[str, Any] = {"metadata": {"gap_seconds": 600}, "data": [1] * 900}
    (tmp_path / "family" / "north.json").write_text(json.dumps(longer))
    cells, notes = measure(request)
    assert all(cell.windows[0].start < 600 - 84 for cell in cells)
    assert any(note.startswith("family: pools differ in length: windows lie in the first 600") for note in notes)
    longer["metadata"]["gap_seconds"] = 300
    (tmp_path / "family" / "north.json").write_text(json.dumps(longer))
    assert any("ticks of 2 lengths" in note for note in measure(request)[1])


def test_a_gang_costs_as_often_as_much_and_compares_the_same(request_: Request) -> None:
    for path in request_.traces[0].iterdir():
        trace = json.loads(path.read_text())
        path.write_text(json.dumps(trace | {"data": [4 * bit for bit in trace["data"]]}))
    one, four = (replace(request_, starts=2, prices=TracePrices(gang=gang)) for gang in (1, 4))
    (cheap, _), (dear, _) = measure(one), measure(four)
    assert document(one, cheap, [], per_window=False)["cells"] == document(four, dear, [], per_window=False)["cells"]
    for each, gang in zip(cheap, dear, strict=True):
        assert [window.cost for window in gang.windows] == pytest.approx([4 * window.cost for window in each.windows])


def test_a_family_and_all_of_it_are_mean_cost_over_mean_optimum() -> None:
    windows = (Window(0, 1.0, 2.0, None), Window(1, 1.0, 2.0, None))
    cheap, dear = (
        PlacementCell("f", "cheap", 1.0, 1.0, "p", windows),
        PlacementCell("f", "dear", 1.0, 1.0, "p", (Window(0, 98.0, 98.0, None),)),
    )
    (family,) = families([cheap, dear])
    assert (family.pool, family.ratio_mean, len(family.windows)) == ("2 pools", 1.02, 3)
    ((total, _),) = totals([cheap, dear])
    assert total.ratio_mean == 1.02


def test_a_pool_alone_costs_what_it_does_beside_its_family(request_: Request) -> None:
    request = replace(request_, policies=("gpubroker",))
    beside = [cell for cell in measure(request)[0] if cell.pool == "west"]
    assert measure(replace(request, zones=["west"]))[0] == beside


def test_zones_together_are_one_market_and_never_dearer_for_the_optimum(request_: Request) -> None:
    policies = ("gpubroker", "eager-next-region", "omniscient")
    together, _ = measure(replace(request_, policies=policies, together=True))
    assert {cell.pool for cell in together} == {"east+west"}
    assert {cell.pool for cell in families(together)} == {"2 pools together"}
    assert all(cell.missed == 0 for cell in together)
    apart, _ = measure(replace(request_, policies=("omniscient",)))
    for cell in together:
        for other in apart:
            if cell.deadline_s == other.deadline_s:
                pairs = zip(cell.windows, other.windows, strict=True)
                assert all(a.optimum <= b.optimum + 1e-9 for a, b in pairs)


def test_with_hardly_a_changeover_and_with_one_as_long_as_the_slack(request_: Request) -> None:
    for changeover in (1.0, 2 * HOUR):
        cells, _ = measure(replace(request_, changeovers=[changeover], deadlines=[10 * HOUR], starts=2))
        assert all(cell.missed == 0 and cell.ratio_mean >= 1 - 1e-9 for cell in cells)


def test_the_table_says_what_the_document_says(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (request_.traces[0], *QUICK, "--policies", "greedy")
    (family,) = printed(capsys, *asked)["families"]
    assert main([*map(str, asked)]) == 0
    (total,) = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("greedy ") and "$" in line
    ]
    assert total[2] == f"{family['ratio_mean']:.3f}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"deadlines": [7 * HOUR]}, "a deadline of 7 h is shorter than the work, 8 h"),
        ({"changeovers": [3 * HOUR]}, "longer than the slack, 2 h"),
        ({"changeovers": [0.0]}, "above 0"),
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


def test_ticks_that_would_take_hours_are_refused(request_: Request, tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 1}, "data": [1] * 60_000}))
    with pytest.raises(InvalidInput, match="ticks of 1 s are too fine for 14 h with changeovers of 720 s"):
        measure(replace(request_, traces=[path], from_fraction=0))


def test_a_policy_nobody_knows(request_: Request) -> None:
    with pytest.raises(UnknownName, match="--policies: unknown policy 'gredy'; did you mean 'greedy'"):
        main([str(request_.traces[0]), "--policies", "gredy"])
