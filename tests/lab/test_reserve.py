"""`python -m tests.lab.reserve`: what it measures, and what it refuses."""

import json
import os
from pathlib import Path

import pytest

from broker.app.capacity.demand_files import Demand, read_demand
from broker.core.errors import InvalidInput, UnknownName
from broker.economics.reserve.replay import ReserveTerms
from tests.lab.reserve import POLICIES, main, measure, pattern_demand

DATA = Path(os.environ.get("GPUBROKER_TEST_DATA", "")) / "demand"
SAWTOOTH = tuple(4 + hour % 24 // 6 for hour in range(24 * 20))


def series(hours: tuple[int, ...] = SAWTOOTH) -> list[Demand]:
    return [Demand("demand", hours, "demand.csv")]


def test_each_policy_on_each_series_at_each_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, hours in (("a", SAWTOOTH), ("b", SAWTOOTH[::-1])):
        (tmp_path / f"{name}.csv").write_text("".join(f"{units}\n" for units in hours))
    files = [str(tmp_path / "a.csv"), "--demand", str(tmp_path / "b.csv")]
    assert (
        main([*files, "--term", "2d", "--ratio", "0.4", "--ratio", "0.7", "--policies", ",".join(POLICIES), "--json"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert [(cell["series"], cell["ratio"], cell["policy"]) for cell in document["cells"]] == [
        (series, ratio, policy) for series in "ab" for ratio in (0.4, 0.7) for policy in POLICIES
    ]
    for cell in document["cells"]:
        assert cell["cost_over_optimum"] >= 1
        assert cell["cost_over_optimum"] == 1 or cell["policy"] != "optimum"
    on_demand = document["cells"][POLICIES.index("on-demand")]
    assert on_demand["cost"] == sum(SAWTOOTH[48:])
    assert main([*files, "--term", "48h", "--end", "known", "--policies", "gpubroker, on-demand"]) == 0
    assert "end known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ratio", "0"], "--ratio"),
        (["--ratio", "nan"], "--ratio"),
        (["--term", "0"], "--term"),
        (["--warmup", "90d"], "leaves nothing"),
        (["--history", "missing.csv"], "no such file"),
        (["--pattern", "half-days"], "half-days"),
        (["--policies", "gpubrokr"], "did you mean 'gpubroker'"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    path = tmp_path / "demand.csv"
    path.write_text("".join(f"{units}\n" for units in SAWTOOTH))
    with pytest.raises((InvalidInput, UnknownName), match=says):
        main([str(path), *arguments])


@pytest.mark.system  # years of demand, hour by hour: seconds each
@pytest.mark.parametrize(
    ("pattern", "ratio", "once"), [("half-day", 0.4, 1.167), ("weekday", 0.6, 1.143), ("quarter-end", 0.6, 1.748)]
)
def test_regular_demand_is_held_near_the_optimum(pattern: str, ratio: float, once: float) -> None:
    """``once``: cost over the optimum when independent brute force first judged the rule."""
    document = measure([pattern_demand(pattern)], [ReserveTerms(720, ratio)], ["gpubroker", "on-demand"])
    planned, rented = (cell["cost_over_optimum"] for cell in document["cells"])
    assert planned <= 1.05 < once
    assert planned <= rented * 1.02


@pytest.mark.skipif(
    "GPUBROKER_TEST_DATA" not in os.environ or not DATA.is_dir(),
    reason="recorded demand is not part of the project; set GPUBROKER_TEST_DATA to a folder that has it",
)
@pytest.mark.parametrize(
    ("pattern", "term", "target"),
    [("ali26_*", 720, 1.02), ("helios_*", 168, 1.10), ("philly_*", 336, 1.045), ("ali23_openb*", 336, 1.045)],
)
def test_reaches_its_targets_on_recorded_demand_and_beats_the_staggered_rule(
    pattern: str, term: int, target: float
) -> None:
    ratios = (0.4, 0.6, 0.7)
    terms = [ReserveTerms(term, ratio) for ratio in ratios]
    found = measure(read_demand(sorted(DATA.glob(f"{pattern}.csv"))), terms, ["gpubroker", "staggered-quantile"])
    means = {(mean["ratio"], mean["policy"]): mean["mean_cost_over_optimum"] for mean in found["means"]}
    assert means[0.6, "gpubroker"] <= target
    for ratio in ratios:
        assert means[ratio, "gpubroker"] < means[ratio, "staggered-quantile"]
