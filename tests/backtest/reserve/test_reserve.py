"""The backtest of reserve rules: what it measures, what it reads, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.app.results.backtests import ReserveBacktest
from broker.backtest.reserve.demand import PATTERN_HOURS, PATTERNS, pattern_demand, read_demand
from broker.backtest.reserve.reserve import POLICIES, ReserveReplay, run_reserve_backtest
from broker.core.errors import InvalidInput, UnknownName

pytest.importorskip("scipy", reason="the optimum needs the extra 'backtest'")

DATA = Path(os.environ.get("GPUBROKER_TEST_DATA", "")) / "demand"
recorded = pytest.mark.skipif(
    "GPUBROKER_TEST_DATA" not in os.environ or not DATA.is_dir(),
    reason="recorded demand is not part of the project; set GPUBROKER_TEST_DATA to a folder that has it",
)


def file(folder: Path, text: str, name: str = "demand.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lines(values: list[int]) -> str:
    return "".join(f"{value}\n" for value in values)


SAWTOOTH = [4 + hour % 24 // 6 for hour in range(24 * 20)]


def test_each_policy_on_each_series_at_each_ratio(tmp_path: Path) -> None:
    paths = [file(tmp_path, lines(SAWTOOTH), "a.csv"), file(tmp_path, lines(SAWTOOTH[::-1]), "b.csv")]
    done: list[tuple[int, int, str]] = []
    request = ReserveReplay(paths, term=48, ratios=(0.4, 0.7), policies=POLICIES)
    report = run_reserve_backtest(request, lambda *progress: done.append(progress))
    assert [(cell.series, cell.ratio, cell.policy) for cell in report.cells] == [
        (series, ratio, policy) for series in "ab" for ratio in (0.4, 0.7) for policy in POLICIES
    ]
    assert len(done) == len(report.cells) == done[-1][0] == done[-1][1]
    for cell in report.cells:
        assert cell.cost_over_optimum is not None
        assert cell.cost_over_optimum >= 1 - 1e-9
        assert (cell.cost_over_optimum == 1) or cell.policy != "optimum"


def test_the_document_has_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    request = ReserveReplay([file(tmp_path, lines(SAWTOOTH))], term=48, policies=("on-demand",))
    document = ReserveBacktest.of(run_reserve_backtest(request)).document()
    cells = document["cells"]
    assert isinstance(cells, list)
    assert {key: cells[0][key] for key in ("series", "ratio", "policy", "cost")} == {
        "series": "demand",
        "ratio": 0.6,
        "policy": "on-demand",
        "cost": sum(SAWTOOTH[48:]),
    }
    assert cells[0]["cost_over_optimum"] > 1


def test_history_is_known_from_the_first_hour_and_costs_nothing(tmp_path: Path) -> None:
    whole = file(tmp_path, lines(SAWTOOTH), "whole.csv")
    before = file(tmp_path, lines(SAWTOOTH[:100]), "before.csv")
    after = file(tmp_path, lines(SAWTOOTH[100:]), "after.csv")
    one = run_reserve_backtest(ReserveReplay([whole], term=48, warm_up=100))
    two = run_reserve_backtest(ReserveReplay([after], term=48, history=[before]))
    assert [cell.cost for cell in one.cells] == [cell.cost for cell in two.cells]


def test_where_nothing_was_asked_for_nothing_is_worse_than_the_optimum(tmp_path: Path) -> None:
    report = run_reserve_backtest(ReserveReplay([file(tmp_path, lines([0] * 100))], term=24))
    assert {cell.cost for cell in report.cells} == {0}
    assert {cell.cost_over_optimum for cell in report.cells} == {1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ratios": (0.0,)}, "--ratio"),
        ({"ratios": (float("nan"),)}, "--ratio"),
        ({"term": 0}, "--term"),
        ({"warm_up": 480}, "leaves nothing"),
        ({"warm_up": -1}, "--warmup"),
        ({"files": []}, "no demand files"),
        ({"history": [Path("missing.csv")]}, "no such file"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    request = {"files": [file(tmp_path, lines(SAWTOOTH))], "term": 48, **change}
    with pytest.raises(InvalidInput, match=says):
        run_reserve_backtest(ReserveReplay(**request))  # type: ignore[arg-type]  # the table above mixes types


def test_every_pattern_is_told_apart() -> None:
    known = [series.hours for series in pattern_demand(PATTERNS)]
    assert len(set(known)) == len(PATTERNS)
    assert {len(hours) for hours in known} == {PATTERN_HOURS}


@pytest.mark.system  # the optimum of a year takes a second
def test_a_pattern_is_measured_like_a_file() -> None:
    report = run_reserve_backtest(ReserveReplay([], 8760, patterns=("constant",), policies=("gpubroker", "on-demand")))
    assert [cell.cost_over_optimum for cell in report.cells] == [1.0, pytest.approx(1 / 0.6)]


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(UnknownName, match="half-days"):
        run_reserve_backtest(ReserveReplay([], 720, patterns=("half-days",)))


def test_a_misspelt_policy_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="gpubrokr"):
        run_reserve_backtest(ReserveReplay([file(tmp_path, lines(SAWTOOTH))], term=48, policies=("gpubrokr",)))


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("", "demand.csv", "empty"),
        ("\n\n", "demand.csv", "empty"),
        ("demand\n", "demand.csv", "header and no demand"),
        ("1\n\n3\n", "demand.csv:2", "gap"),
        ("1\n-2\n3\n", "demand.csv:2", "0 or more"),
        ("1\nmany\n3\n", "demand.csv:2", "'many'"),
        ("1\nnan\n", "demand.csv:2", "'nan'"),
        ("nan\n1\n", "demand.csv:1", "'nan'"),
        ("1\ninf\n", "demand.csv:2", "'inf'"),
        ("1\n1e18\n", "demand.csv:2", "more than"),
        ("1\n2,3\n", "demand.csv:2", "field"),
        ("1,2\n3,4\n", "demand.csv:1", "no header"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T00:00Z,2\n", "demand.csv:3", "next hour"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T00:30Z,2\n", "demand.csv:3", "next hour"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-04T00:00Z,2\n", "demand.csv:3", "hole of 71 h"),
        ("time,H100\n2026-03-01T00:00Z,1\nnoon,2\n", "demand.csv:3", "ISO 8601"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T01:00,2\n", "demand.csv", "time zone"),
        ("H100,L4\n1,2\n3,\n", "demand.csv:3", "gap"),
        ("H100,H100\n1,2\n", "demand.csv:1", "two columns"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, where: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as problem:
        read_demand([file(tmp_path, text)])
    assert problem.value.where.endswith(where)


def test_a_column_for_each_series_and_short_holes_filled(tmp_path: Path) -> None:
    text = "time,H100,L4\n2026-03-01T00:00Z,5,1\n2026-03-01T01:00Z,6,0\n2026-03-01T04:00Z,7,2.5\n"
    h100, l4 = read_demand([file(tmp_path, text)])
    assert (h100.name, h100.hours) == ("H100", (5, 6, 6, 6, 7))
    assert (l4.name, l4.hours) == ("L4", (1, 0, 0, 0, 3))
    assert h100.notes == ("2 h missing in 1 hole(s): taken as the hour before each",)
    assert "rounded" in l4.notes[1]


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(file(tmp_path / folder, "demand\n1\n2\n"))
    assert len({series.name for series in read_demand(paths)}) == 2


@recorded
@pytest.mark.parametrize(
    ("pattern", "term", "target"),
    [("ali26_*", 720, 1.02), ("helios_*", 168, 1.10), ("philly_*", 336, 1.045), ("ali23_openb*", 336, 1.045)],
)
def test_reaches_its_targets_on_recorded_demand_and_beats_the_staggered_rule(
    pattern: str, term: int, target: float
) -> None:
    files = sorted(DATA.glob(f"{pattern}.csv"))
    report = run_reserve_backtest(
        ReserveReplay(files, term, (0.4, 0.6, 0.7), policies=("gpubroker", "staggered-quantile"))
    )
    means = {(mean.ratio, mean.policy): mean.mean for mean in report.means()}
    assert means[0.6, "gpubroker"] <= target
    for ratio in (0.4, 0.6, 0.7):
        assert means[ratio, "gpubroker"] < means[ratio, "staggered-quantile"]
