"""Energy, carbon and their data."""

import tomllib
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.energy import (
    average_watts,
    carbon_kg,
    default_pue,
    energy_kwh,
    footprint,
    grid_intensity,
    grid_near,
    grid_range,
    known_regions,
    scorecard,
)

DATA = tomllib.loads(resources.files("broker.economics").joinpath("grid.toml").read_text(encoding="utf-8"))


def at(location: str) -> Assumptions:
    return replace(DEFAULTS, location=location)


def test_power_runs_from_idle_to_the_board_limit() -> None:
    assert [average_watts(700, busy, replace(DEFAULTS, idle_watts=70)) for busy in (0, 1)] == [70, 700]
    assert average_watts(700, 0.5, replace(DEFAULTS, idle_watts=100)) == 400
    assert average_watts(700, 0) == pytest.approx(105), "15 % of the board power unless measured"


def test_energy_and_carbon_of_a_job() -> None:
    assert energy_kwh(500, hours=24, gpus=8, pue=1.25) == pytest.approx(120)
    assert carbon_kg(120, 400) == 48
    stated = replace(at("aws/us-east-1"), pue=1.0, stated=frozenset({"pue"}))
    job = footprint(lookup("H100"), gpus=8, hours=10, utilization=1, assumptions=stated)
    assert job.kwh == pytest.approx(56)
    assert job.kg_co2e == pytest.approx(56 * 0.39625)
    assert (job.intensity.year, job.intensity.grams_per_kwh) == (2024, 396.25)


def test_a_clean_grid_emits_a_fraction() -> None:
    clean, dirty = (
        footprint(lookup("A100"), gpus=1, hours=100, utilization=0.7, assumptions=at(place)).kg_co2e
        for place in ("gcp/europe-west9", "gcp/us-central1")
    )
    assert clean < dirty / 20


@pytest.mark.parametrize(
    ("said", "region"),
    [
        ("gcp/us-central1", "gcp/us-central1"),
        ("gcp/us-central1-a", "gcp/us-central1"),
        ("aws/us-east-1a", "aws/us-east-1"),
        ("AWS/us-east-1", "aws/us-east-1"),
        ("de", "DE"),
        ("world", "world"),
    ],
)
def test_regions_zones_and_countries_are_found(said: str, region: str) -> None:
    assert grid_intensity(said).region == region


def test_an_unknown_region_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'gcp/us-central1'"):
        grid_intensity("gcp/us-centrall")


def test_every_row_has_a_source_a_year_and_a_credible_value() -> None:
    sections = [section for section in DATA.values() if "g_per_kwh" in section]
    rows = [region for section in sections for region in section["g_per_kwh"]]
    assert len(rows) == len(set(rows)) == len(known_regions()), "no region twice"
    for region in known_regions():
        found = grid_intensity(region)
        assert 5 < found.grams_per_kwh < 900
        assert 2023 <= found.year <= 2026
        assert len(found.source) > 20


def test_overhead_of_the_building() -> None:
    assert default_pue("aws/us-east-1") == 1.15
    assert default_pue("gcp/us-central1") == 1.10
    assert default_pue("runpod/EU") == default_pue("DE") == 1.58


@given(st.floats(1, 2000), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 1e4), st.integers(1, 1000))
def test_more_use_time_or_cards_never_take_less_energy(
    tdp: float, one: float, other: float, hours: float, gpus: int
) -> None:
    low, high = sorted((one, other))
    assert average_watts(tdp, low) <= average_watts(tdp, high) <= tdp * (1 + 1e-12)
    assert energy_kwh(tdp, hours, gpus) <= energy_kwh(tdp, hours * 1.5, gpus + 1, pue=1.1)


def test_the_scorecard_grades_a_green_and_a_wasteful_job() -> None:
    def grade(location: str, utilization: float, parameters: float) -> str:
        known = replace(at(location), model_parameters=parameters, smallest_parameters=7e9)
        card = lookup("H100")
        used = footprint(card, gpus=8, hours=10, utilization=utilization, assumptions=known)
        return scorecard(
            used, card, utilization=utilization, training=True, best_tflops_per_watt=2.25, assumptions=known
        ).grade

    assert grade("gcp/europe-north2", 0.8, 7e9) in "AB"
    assert grade("aws/ap-south-1", 0.1, 70e9) in "DE"


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not published"):
        footprint(lookup("tpu-v5p"), gpus=1, hours=1, utilization=1)
    with pytest.raises(InvalidInput, match="utilization"):
        average_watts(700, 70)
    with pytest.raises(InvalidInput, match="PUE"):
        energy_kwh(700, 1, pue=0.8)
    with pytest.raises(InvalidInput, match="idle power"):
        average_watts(700, 0.5, replace(DEFAULTS, idle_watts=900))


@pytest.mark.parametrize(
    ("place", "grams", "known"),
    [
        ("aws/us-east-1", 396.25, True),
        ("gcp/europe-north1", 29.84, True),
        ("vast/SE", 41, True),
        ("vast/de-frankfurt", 381, True),
        ("hyperstack/global", 481, False),
        ("owned/local", 481, False),
    ],
)
def test_the_nearest_grid_that_is_known(place: str, grams: float, known: bool) -> None:
    grid, found = grid_near(place)
    assert (grid.grams_per_kwh, found) == (grams, known)


def test_a_short_run_has_the_wider_range() -> None:
    short, long = (
        footprint(lookup("H100"), gpus=8, hours=hours, utilization=0.7, assumptions=at("DE")) for hours in (24, 2000)
    )
    assert (short.kg_co2e_low, short.kg_co2e_high) == pytest.approx((short.kg_co2e / 2, short.kg_co2e * 2))
    assert long.kg_co2e_low / long.kg_co2e > short.kg_co2e_low / short.kg_co2e
    assert long.kg_co2e_low < long.kg_co2e < long.kg_co2e_high


@pytest.mark.parametrize(("name", "hours"), [("days", 24), ("months", 2000)])
def test_a_range_tells_its_source(name: str, hours: float) -> None:
    told, of = DATA["ranges"][name], grid_range(hours)
    assert (of.low, of.high, of.source) == (told["low"], told["high"], told["source"])
    assert "assumption" in told["source"] or "http" in told["source"]
    mine = replace(DEFAULTS, grid_of_days=(0.9, 1.1), grid_of_months=(0.9, 1.1))
    assert grid_range(hours, mine).source == "your assumptions"
