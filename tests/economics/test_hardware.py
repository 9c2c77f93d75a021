"""Value for money, the radar, and measured candidates."""

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import accelerator_names, lookup
from broker.economics.hardware import Candidate, Trial, compare, radar, rank
from broker.economics.kinds import BoundBy


def test_what_the_work_is_bound_by_decides_the_ranking() -> None:
    prices = {"RTX3090": 700.0, "RTX4090": 1600.0, "A100": 10_000.0, "H100": 30_000.0, "L40S": 9000.0}
    candidates = [Candidate(lookup(name), usd) for name, usd in prices.items()]
    by_bandwidth = [value.accelerator for value in rank(candidates, BoundBy.BANDWIDTH)]
    assert by_bandwidth == ["RTX3090", "RTX4090", "A100", "H100", "L40S"]
    by_compute = rank(candidates, BoundBy.COMPUTE)
    assert by_compute[0].accelerator == "RTX4090"
    assert by_compute[0].per_kusd == pytest.approx(165.2 / 1.6)


def test_cards_without_a_figure_are_left_out_of_a_ranking() -> None:
    assert rank([Candidate(lookup("K80"), 100)], BoundBy.COMPUTE) == ()


def test_the_radar_shows_all_axes_from_0_to_1() -> None:
    rows = radar([Candidate(lookup(name), 1000) for name in accelerator_names()], BoundBy.COMPUTE)
    assert len(rows) == len(accelerator_names())
    for row in rows:
        for axis in (row.cost, row.performance, row.energy_efficiency, row.maturity, row.score):
            assert axis is None or 0 <= axis <= 1
    assert max(row.performance or 0 for row in rows) == 1
    scores = [row.score for row in rows]
    assert scores == sorted(scores, reverse=True)
    by_name = {row.accelerator: row for row in rows}
    assert by_name["tpu-v5p"].energy_efficiency is None, "its power is not published"
    assert any("XLA" in caveat for caveat in by_name["tpu-v5p"].caveats)
    assert by_name["H100"].caveats == ()


def test_a_marketplace_host_has_its_caveat() -> None:
    pair = [Candidate(lookup("H100"), 3.0), Candidate(lookup("MI300X"), 2.0, marketplace=True)]
    caveats = {row.accelerator: row.caveats for row in radar(pair, BoundBy.COMPUTE)}
    assert any("confidentiality" in caveat for caveat in caveats["MI300X"])


def test_candidates_are_compared_by_unit_of_work_not_by_hour() -> None:
    results = compare([Trial("H100", 3.0, 1000), Trial("L4", 0.7, 150), Trial("64 CPU cores", 1.2, 600)])
    assert [result.name for result in results] == ["64 CPU cores", "H100", "L4"]
    assert results[0].times_cheapest == 1
    assert results[2].usd_per_unit == pytest.approx(0.7 / 150)


def test_nothing_compared_is_nothing_found() -> None:
    assert (radar([], BoundBy.COMPUTE), compare([])) == ((), ())


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="H100: price"):
        Candidate(lookup("H100"), 0)
    with pytest.raises(InvalidInput, match="L4: work"):
        compare([Trial("L4", 0.7, 0)])
