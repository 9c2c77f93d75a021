"""Reserve rules on the part of the recorded demand that chooses nothing, at ρ = 0.6 with the end unknown.

The split, made before the mixture of rules was written: of Helios the virtual clusters at odd places by name are
judged, of the other families the last two fifths of the time, with the first three fifths as history. Whoever changes a
constant looks at the other part alone; this test is looked at when the change is done. (Constants of the planner are
older than the split and were looked at on all of the series.)
"""

import os
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

from broker.economics.reserve.planner import Planner
from broker.economics.reserve.replay import Buyer, ReserveTerms, replay
from tests.lab.reserve_rules import Mixture, OnDemand, StaggeredQuantile, optimum, static_best

DATA = Path(os.environ.get("GPUBROKER_TEST_DATA", "")) / "demand"
TERMS = {"ali26": 720, "helios": 168, "philly": 336, "ali23": 336}
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        "GPUBROKER_TEST_DATA" not in os.environ or not DATA.is_dir(),
        reason="recorded demand is not part of the project; set GPUBROKER_TEST_DATA to a folder that has it",
    ),
]


def judged(family: str) -> list[tuple[list[int], int]]:
    """Demand, and how much of it is history."""
    files = sorted(DATA.glob(f"{family}*"))
    known = [[int(line) for line in file.read_text().split() if line.isdecimal()] for file in files]
    if family == "helios":
        return [(demand, TERMS[family]) for demand in known[1::2]]
    return [(demand, len(demand) * 6 // 10) for demand in known]


@cache
def over_optimum(family: str) -> dict[str, float]:
    """Mean cost over the optimum of each rule, and of the best constant level, known only afterwards."""
    terms = ReserveTerms(TERMS[family], 0.6)
    rules: dict[str, type[Planner | Mixture]] = {"planner": Planner, "mixture": Mixture}
    found: dict[str, list[float]] = {}
    for demand, warm_up in judged(family):
        least = optimum(demand[warm_up:], terms).cost
        buyers: dict[str, Buyer] = {name: rule(terms.term, terms.ratio) for name, rule in rules.items()}
        buyers |= {"staggered": StaggeredQuantile(terms.ratio), "nothing": OnDemand()}
        for name, buyer in buyers.items():
            found.setdefault(name, []).append(replay(buyer, demand, terms, warm_up=warm_up).cost / least)
        found.setdefault("level known afterwards", []).append(static_best(demand[warm_up:], terms).cost / least)
    return {name: mean(values) for name, values in found.items()}


@pytest.mark.parametrize("family", TERMS)
def test_the_rules_are_no_dearer_than_the_best_of_their_baselines(family: str) -> None:
    found = over_optimum(family)
    for rule in ("planner", "mixture"):
        assert found[rule] <= 1.005 * min(found["staggered"], found["nothing"])


@pytest.mark.parametrize(
    ("family", "target"),
    [
        ("ali26", 1.02),
        pytest.param("helios", 1.04, marks=pytest.mark.xfail(reason="1.101; the best level afterwards 1.102")),
        pytest.param("philly", 1.008, marks=pytest.mark.xfail(reason="1.061; the best level afterwards 1.061")),
    ],
)
def test_targets_on_unseen_parts(family: str, target: float) -> None:
    found = over_optimum(family)
    assert found["planner"] <= target, found


@pytest.mark.parametrize("family", ["helios", "philly"])
def test_where_a_target_is_missed_no_constant_level_would_have_met_it(family: str) -> None:
    found = over_optimum(family)
    assert found["planner"] <= found["level known afterwards"] + 0.002
