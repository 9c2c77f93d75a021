"""The backtest as a whole: the document it gives, determinism, and requests that cannot be replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from broker.app.results.backtests import PlacementBacktest
from broker.backtest.placement.report import PlacementCell, PlacementReport, ReplayWindow, pooled
from broker.backtest.placement.run import PlacementReplay, run_backtest
from broker.backtest.placement.trace_files import TracePrices
from broker.core.errors import InvalidInput, UnknownName
from broker.economics.units import quantile

pytest.importorskip("numpy", reason="a backtest needs the extra 'backtest'")

HOUR = 3600.0
ALL = ("gpubroker", "uniform-progress", "greedy", "eager-next-region", "time-sliced", "on-demand", "omniscient")


@pytest.fixture
def request_(tmp_path: Path) -> PlacementReplay:
    """Two pools over 100 h of ten-minute ticks, spells of a few hours; a job of 8 h."""
    folder = tmp_path / "family"
    folder.mkdir()
    for name, seed in (("east", 1), ("west", 2)):
        dice, bits = Random(seed), list[bool]()
        while len(bits) < 600:
            bits += [len(bits) % 2 == 0 or dice.random() < 0.5] * dice.randint(1, 20)
            bits += [False] * dice.randint(1, 12)
        document = {"metadata": {"gap_seconds": 600}, "data": [int(bit) for bit in bits[:600]]}
        (folder / f"{name}.json").write_text(json.dumps(document))
    return PlacementReplay(
        [folder], work=8 * HOUR, deadlines=[10 * HOUR, 14 * HOUR], changeovers=[720.0], policies=ALL, starts=3
    )


def test_the_document(request_: PlacementReplay) -> None:
    document = PlacementBacktest.of(run_backtest(request_), per_window=True).document()
    cells = document["cells"]
    assert isinstance(cells, list)
    assert len(cells) == 2 * 2 * len(ALL)
    assert set(cells[0]) == {
        "family", "pool", "deadline_s", "changeover_s", "policy", "ratio_mean", "ratio_p95", "missed",
        "on_demand_share", "interruptions", "windows", "per_window", "together",
    }  # fmt: skip
    assert [cell["policy"] for cell in cells[: len(ALL)]] == list(ALL)
    for cell in cells:
        assert cell["family"] == "family"
        assert cell["missed"] == 0
        assert cell["windows"] == 3
        assert cell["ratio_mean"] >= 1 - 1e-9
        assert cell["ratio_mean"] == 1 or cell["policy"] != "omniscient"
        assert cell["on_demand_share"] == 1 or cell["policy"] != "on-demand"
        starts = [window["start"] for window in cell["per_window"]]
        assert starts == [window["start"] for window in cells[0]["per_window"]]
        assert all(300 <= start <= 600 - 84 for start in starts)
        costs = [(float(w["cost"]), float(w["optimum"])) for w in cell["per_window"]]
        assert cell["ratio_mean"] == pytest.approx(sum(c for c, _ in costs) / sum(o for _, o in costs), abs=1e-5)
    assert json.loads(json.dumps(document)) == document


def test_it_repeats_itself_and_the_seed_matters(request_: PlacementReplay) -> None:
    request = replace(request_, policies=("gpubroker", "omniscient"), deadlines=[10 * HOUR])
    assert run_backtest(request) == run_backtest(request)
    other = run_backtest(replace(request, seed=8))
    assert [w.start for w in other.cells[0].windows] != [w.start for w in run_backtest(request).cells[0].windows]


def test_windows_lie_between_the_parts_that_were_named(request_: PlacementReplay) -> None:
    request = replace(request_, policies=("on-demand",), starts=1000, from_fraction=0.25, to_fraction=0.45)
    report = run_backtest(request)
    assert [window.start for window in report.cells[0].windows] == list(range(150, 270 - 84 + 1))
    assert "family: room for 37 windows, not for 1000" in report.notes
    assert not any("room for" in note for note in run_backtest(replace(request, starts=37)).notes)


def test_pools_of_different_length_or_tick_are_noted(request_: PlacementReplay) -> None:
    request = replace(request_, policies=("on-demand",), starts=1)
    (folder,) = request_.traces
    longer = json.loads((folder / "east.json").read_text())
    longer["data"] += [1] * 100
    (folder / "north.json").write_text(json.dumps(longer))
    report = run_backtest(request)
    assert all(cell.windows[0].start < 600 - 84 for cell in report.cells)
    assert any(note.startswith("family: pools differ in length: windows lie in the first 600") for note in report.notes)
    longer["metadata"]["gap_seconds"] = 300
    (folder / "north.json").write_text(json.dumps(longer))
    assert any("ticks of 2 lengths" in note for note in run_backtest(request).notes)


def test_a_gang_costs_as_often_as_much_and_compares_the_same(request_: PlacementReplay, tmp_path: Path) -> None:
    for path in request_.traces[0].iterdir():
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"data": [4 * bit for bit in document["data"]]}))
    one = run_backtest(replace(request_, starts=2))
    four = run_backtest(replace(request_, starts=2, prices=TracePrices(gang=4)))
    assert (PlacementBacktest.of(one).document()["gang"], PlacementBacktest.of(four).document()["gang"]) == (1, 4)
    assert PlacementBacktest.of(four).document()["cells"] == PlacementBacktest.of(one).document()["cells"]
    for cheap, dear in zip(one.cells, four.cells, strict=True):
        assert [w.cost for w in dear.windows] == pytest.approx([4 * w.cost for w in cheap.windows])


def test_a_family_and_all_of_it_are_mean_cost_over_mean_optimum() -> None:
    cheap = PlacementCell(
        "f", "cheap", 1.0, 1.0, "p", (ReplayWindow(0, 1.0, 2.0, None), ReplayWindow(1, 1.0, 2.0, None))
    )
    dear = PlacementCell("f", "dear", 1.0, 1.0, "p", (ReplayWindow(0, 98.0, 98.0, None),))
    (family,) = PlacementReport(1.0, 7, (cheap, dear)).families()
    assert (family.pool, family.ratio_mean, len(family.windows)) == ("2 pools", 1.02, 3)
    assert pooled([cheap, dear]).ratio_mean == 1.02


def test_two_workers_find_the_same(request_: PlacementReplay) -> None:
    request = replace(request_, policies=("uniform-progress", "omniscient"), starts=3)
    assert run_backtest(request, workers=2) == run_backtest(request)


def test_a_pool_alone_costs_what_it_does_beside_its_family(request_: PlacementReplay) -> None:
    request = replace(request_, policies=("gpubroker",))
    beside = [cell for cell in run_backtest(request).cells if cell.pool == "west"]
    assert list(run_backtest(replace(request, zones=["west"])).cells) == beside


def test_progress_counts_windows_to_the_end(request_: PlacementReplay) -> None:
    seen: list[tuple[int, int, str]] = []
    run_backtest(replace(request_, policies=("on-demand",)), lambda *args: seen.append(args))
    assert [done for done, _, _ in seen] == [4, 8, 12]
    assert {total for _, total, _ in seen} == {12}


def test_zones_together_are_one_market_and_never_dearer_for_the_optimum(request_: PlacementReplay) -> None:
    policies = ("gpubroker", "eager-next-region", "omniscient")
    together = run_backtest(replace(request_, policies=policies, together=True))
    assert {cell.pool for cell in together.cells} == {"east+west"}
    assert {cell.pool for cell in together.families()} == {"2 pools together"}
    assert all(cell.missed == 0 for cell in together.cells)
    apart = run_backtest(replace(request_, policies=("omniscient",)))
    for cell in together.cells:
        for other in apart.cells:
            if cell.deadline_s == other.deadline_s:
                pairs = zip(cell.windows, other.windows, strict=True)
                assert all(a.optimum <= b.optimum + 1e-9 for a, b in pairs)


def test_with_hardly_a_changeover_and_with_one_as_long_as_the_slack(request_: PlacementReplay) -> None:
    for changeover in (1.0, 2 * HOUR):
        report = run_backtest(replace(request_, changeovers=[changeover], deadlines=[10 * HOUR], starts=2))
        assert all(cell.missed == 0 and cell.ratio_mean >= 1 - 1e-9 for cell in report.cells)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"deadlines": [7 * HOUR]}, "a deadline of 7 h is shorter than the work, 8 h"),
        ({"changeovers": [3 * HOUR]}, "longer than the slack, 2 h"),
        ({"changeovers": [-1.0]}, "above 0"),
        ({"changeovers": [0.0]}, "above 0"),
        ({"work": 0.0}, "work must be positive"),
        ({"work": float("nan")}, "finite"),
        ({"starts": 0}, "at least one start"),
        ({"from_fraction": 1.0}, "0 ≤ from < 1"),
        ({"to_fraction": 0.5}, "from < to ≤ 1"),
        ({"to_fraction": 1.1}, "from < to ≤ 1"),
        ({"to_fraction": 0.51}, "between 50% and 51% of it"),
        ({"from_fraction": 0.999}, "between 99.9% and 100% of it"),
        ({"deadlines": [60 * HOUR]}, "no room for a window of 60 h"),
        ({"policies": ()}, "--policies: expected at least one"),
    ],
)
def test_requests_that_cannot_be_replayed(request_: PlacementReplay, change: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        run_backtest(replace(request_, **change))  # type: ignore[arg-type]  # wrong on purpose


def test_ticks_that_would_take_hours_are_refused(request_: PlacementReplay, tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 1}, "data": [1] * 60_000}))
    with pytest.raises(InvalidInput, match="ticks of 1 s are too fine for 14 h with changeovers of 720 s"):
        run_backtest(replace(request_, traces=[path], from_fraction=0))


def test_a_policy_nobody_knows(request_: PlacementReplay) -> None:
    with pytest.raises(UnknownName, match="did you mean 'greedy'"):
        run_backtest(replace(request_, policies=("gredy",)))
    with pytest.raises(UnknownName, match="--policies: unknown policy 'gredy'"):
        run_backtest(replace(request_, policies=("gredy",)))


def test_quantiles_interpolate() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([1, 2], 0.95) == pytest.approx(1.95)
    assert quantile([1], 0.95) == 1
