"""Small models at low rates: machines without accelerators are candidates, and cheaper."""

import re
from typing import Any

import pytest

SMALL = "advise serve 100M --requests-per-minute 10"


def answer(gpubroker: Any, line: str) -> Any:
    done = gpubroker(*line.split(), "--json")
    assert done.code == 0, done.err
    return done.json


def test_a_hundred_million_parameters_at_ten_requests_a_minute_need_no_gpu(gpubroker: Any) -> None:
    found = answer(gpubroker, SMALL)
    best = found["options"][0]
    assert (best["accelerator"], best["gpus"], found["plan"]["gpus"]) == ("2 vCPUs", 0, 0)
    assert float(found["monthly_usd"]) == pytest.approx(0.046 * 730), "the price book's machine, a month of 730 hours"
    cheapest_gpu = min(
        float(one["monthly_usd_on_demand"]) for one in found["options"] if one["gpus"] and one["monthly_usd_on_demand"]
    )
    assert float(found["monthly_usd"]) < cheapest_gpu / 4
    notes = " ".join(found["assumptions"])
    assert "2 vCPUs: $0.046/h of VM.Standard.E5.Flex$_2_8, oci/global, on-demand, pricebook: list price" in notes
    assert "2.9 GB/s (cpu_gb_s) and 0.03 TFLOPS (cpu_tflops) per vCPU" in notes


def test_the_speed_of_a_cpu_follows_from_its_share_of_bandwidth(gpubroker: Any) -> None:
    options = answer(gpubroker, f"{SMALL} --prompt-tokens 0 --assume batch=1")["options"]
    (eight,) = [one for one in options if (one["accelerator"], one["precision"]) == ("8 vCPUs", "fp16")]
    weights = 100e6 * 2 / (8 * 2.9e9 * 0.7)
    assert 0.6 * weights < eight["time_per_token_s"] < 1.5 * weights, "less what is only looked up, and the cache"


def test_a_faster_answer_takes_more_cores(gpubroker: Any) -> None:
    best = answer(gpubroker, f"{SMALL} --p95 3")["options"][0]
    assert best["meets_latency"]
    assert int(re.findall(r"(\d+) vCPUs", best["accelerator"])[0]) > 2


@pytest.mark.parametrize(
    "line",
    [
        "advise serve 7B --requests-per-minute 10",
        f"{SMALL} --gpu L4",
        f"{SMALL} --assume replica_tokens_per_second=500",
        f"{SMALL} --assume cpu_below_parameters=0",
    ],
)
def test_others_stay_on_gpus(gpubroker: Any, line: str) -> None:
    assert all(one["gpus"] for one in answer(gpubroker, line)["options"])


def test_deploy_says_that_a_cpu_does(gpubroker: Any) -> None:
    found = answer(gpubroker, "advise deploy serve 100M --requests-per-minute 10")
    assert any(re.search(r"vCPUs without a GPU would do for \$[\d.]+ a month", text) for text in found["warnings"])
    large = answer(gpubroker, "advise deploy serve 7B --requests-per-minute 10")
    assert not any("without a GPU" in text for text in large["warnings"])


def test_buying_counts_the_overheads_of_cost_cluster_beside_its_own(gpubroker: Any) -> None:
    line, bare = "advise buy-or-rent --gpu A100 --gpus 8", "--assume staff_usd_per_gpu_hour=0 --assume facility_usd=0"
    default = answer(gpubroker, line)
    (note,) = [text for text in default["assumptions"] if "advise cost cluster" in text]
    stated = answer(gpubroker, f"{line} --assume staff_usd_per_gpu_hour=4.5 --assume facility_usd=87500")
    assert default["comparison"]["ways"] == stated["comparison"]["ways"]
    without = answer(gpubroker, f"{line} {bare}")["comparison"]["ways"]
    owned = next(way for way in without if way["way"] == "owned")
    said = re.findall(r"owning costs \$([\d,]+)", note)[0].replace(",", "")
    assert float(said) == pytest.approx(float(owned["present_value_usd"]), rel=0.01)
    assert note.endswith(f"{without[0]['way'].replace('_', '-')} is cheapest")
    assert not [text for text in stated["assumptions"] if "advise cost cluster" in text], "stated: nothing to add"
