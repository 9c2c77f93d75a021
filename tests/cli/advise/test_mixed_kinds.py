"""Two kinds of machines for one traffic, at the prices of Mélange (arXiv 2404.14527: A10G 1.01, A100-80GB 3.67)."""

import re
from typing import Any

import pytest

from tests.cli.advise.test_small_models import answer

USD = {"A10G": 1.01, "A100-80GB": 3.67}
PRICES = " ".join(f"--gpu {gpu} --price {gpu}={usd}" for gpu, usd in USD.items())
SERVE = f"advise serve 7B {PRICES} --requests-per-minute"


def mixed(found: Any) -> list[str]:
    return [note for note in found["assumptions"] if note.startswith("mixed: ")]


@pytest.mark.parametrize(("rate", "cheapest"), [(60, "A10G"), (4800, "A100-80GB")])
def test_little_traffic_takes_the_small_card_and_much_the_large_one(gpubroker: Any, rate: int, cheapest: str) -> None:
    assert answer(gpubroker, f"{SERVE} {rate}")["options"][0]["accelerator"] == cheapest


def test_one_machine_is_not_mixed(gpubroker: Any) -> None:
    assert not mixed(answer(gpubroker, f"{SERVE} 60"))


def test_a_card_that_is_too_slow_is_not_in_a_mix(gpubroker: Any) -> None:
    found = answer(gpubroker, f"{SERVE} 1400 --p95 1")
    assert {one["accelerator"] for one in found["options"] if one["meets_latency"]} == {"A100-80GB"}
    assert not mixed(found)


def test_a_small_card_for_the_rest_costs_less_than_another_large_one(gpubroker: Any) -> None:
    found = answer(gpubroker, f"{SERVE} 1400")
    (note,) = mixed(found)
    parts = {gpu: int(number) for number, gpu in re.findall(r"(\d+) × ([A-Z0-9-]+B?):1 ", note)}
    assert parts == {"A100-80GB": 1, "A10G": 1}
    monthly = sum(number * USD[gpu] * 730 for gpu, number in parts.items())
    stated = float(note.split("cost $")[1].split(" ")[0].replace(",", ""))
    assert stated == pytest.approx(monthly, rel=0.005), "to three digits"
    speeds = {
        one["accelerator"]: one["tokens_per_second_per_replica"]
        for one in found["options"]
        if one["precision"] == "int8"
    }
    assert sum(number * speeds[gpu] for gpu, number in parts.items()) >= found["plan"]["required_tokens_per_second"]
    saved = 1 - monthly / float(found["options"][0]["monthly_usd_on_demand"])
    assert f"{saved:.0%} less" in note


def test_spare_machines_are_of_the_same_kind(gpubroker: Any) -> None:
    assert not mixed(answer(gpubroker, f"{SERVE} 1400 --assume spare_machines=1"))
