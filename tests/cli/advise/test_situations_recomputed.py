"""The twelve situations of docs/situations.md, each figure computed a second time from first principles, by hand.

No formula of `broker.economics` is used here: bytes, FLOPs, bytes per second and hours are multiplied out. Prices are
those of the answer; peaks and bandwidths are data-sheet figures (B200: 2,250 TFLOPS BF16; MI300X: 1,307.4, FP8 2,614.9,
5.3 TB/s; H100 SXM: 989.5 TFLOPS BF16; A100: 312)."""

import re
from pathlib import Path
from typing import Any

import pytest

GIB, YEAR = 2**30, 8760

pytestmark = pytest.mark.system  # a command each, beside those of test_situations.py


def answer(gpubroker: Any, line: str) -> Any:
    done = gpubroker(*line.split(), "--json")
    assert done.code == 0, done.err
    return done.json


def numbers(document: Any, step: str) -> Any:
    (found,) = [one["numbers"] for one in document["steps"] if one["step"].startswith(step)]
    return found


NO_OVERHEADS = "--assume staff_usd_per_gpu_hour=0 --assume facility_usd=0"


def ways(gpubroker: Any, line: str) -> tuple[dict[str, float], dict[str, float]]:
    """Total of each way, and the prices an hour that its assumptions name."""
    found = answer(
        gpubroker, f"advise buy-or-rent --gpu A100 --gpus 8 --assume lead_time_weeks=0 {NO_OVERHEADS} {line}"
    )
    told = " ".join(found["assumptions"])
    prices = {name: float(usd) for name, usd in re.findall(r"(on-demand|spot|reserved): \$([\d.]+)/h", told)}
    return {way["way"]: float(way["total_usd"]) for way in found["comparison"]["ways"]}, prices


def test_1_two_gaming_cards_hold_a_70b_qlora_by_way_of_the_host(gpubroker: Any) -> None:
    line = "advise size 70B --method qlora --context 512 --gpu RTX4090 --gpus 2 --assume zero=3 --assume offload=yes"
    found = answer(gpubroker, line)
    embedded = 2 * 128256 * 8192
    weights = (70e9 - embedded) * (0.5 + 0.016) + embedded * 4
    adapter = 0.01 * 70e9 * (4 + 12)
    host = next(note for note in found["assumptions"] if "host memory" in note)
    assert float(re.findall(r"offload: ([\d.]+) GiB", host)[0]) == pytest.approx((weights + adapter) / GIB, rel=0.02)
    assert found["memory"]["per_gpu_gib"] < 24 * 0.9


def test_2_a_13b_in_full_on_eight_small_a100(gpubroker: Any) -> None:
    line = "advise size 13B --context 2048 --gpus 8 --gpu A100-40GB --assume zero=3 --assume recomputation=full"
    states = 13e9 * (2 + 4 + 12) / 8
    inputs, logits = 40 * 2048 * 5120 * 2, 2048 * 32000 * 14
    two_layers = 2 / 40 * 13e9 * 2 * (1 - 1 / 8)
    expected = (states + inputs + logits + two_layers) / GIB + 1.0
    assert answer(gpubroker, line)["memory"]["per_gpu_gib"] == pytest.approx(expected, rel=0.02)
    sizes = answer(gpubroker, "advise speed 13B --gpu A100-40GB --tokens 100M --assume mfu=0.3")["scaling"]["sizes"]
    (point,) = [size for size in sizes if size["gpus"] == 8]
    assert point["hours"] == pytest.approx(6 * 13e9 * 100e6 / (8 * 312e12 * 0.30) / 3600, rel=0.01)


def test_3_fifty_requests_a_second_with_4000_tokens(gpubroker: Any) -> None:
    line = "advise serve 70B --requests-per-minute 3000 --tokens-per-request 300 --prompt-tokens 4000"
    best = answer(gpubroker, f"{line} --p95 30 --assume spare_machines=1")["options"][0]
    assert (best["accelerator"], best["precision"]) == ("MI300X", "fp8"), "by the price book; else mend the peaks below"
    peak8, peak16, bandwidth = 2614.9e12, 1307.4e12, 5.3e12
    looked_up = 128256 * 8192  # the input embedding, as large as the output layer, which a prompt computes once
    moved = 80 * (12 * 8192 + 6 * 28672 + 4 * (8192 + 2 * 1024))  # bytes of norms, activations, rotation, cache a token
    prompt = 2 * (70e9 - 2 * looked_up) * 4000 / (peak8 * 0.7) + 2 * 80 * 8192 * 4000**2 / (peak16 * 0.5)
    prompt += moved * 4000 / (bandwidth * 0.7)
    kept = 80 * 8 * 128 * 2 * 2  # bytes of KV cache a token
    matrices = max((70e9 - looked_up) / (bandwidth * 0.7), best["batch"] * 2 * (70e9 - looked_up) / (peak8 * 0.5))
    step = matrices + best["batch"] * 4150 * kept / (bandwidth * 0.8) + 80 * 5e-5 + 0.0005
    each = prompt + 299 * step / best["batch"]
    assert best["tokens_per_second_per_replica"] == pytest.approx(300 / each, rel=0.02)
    assert best["replicas"] == -(-50 * 1.2 * each // 1)
    assert best["machines"] == best["replicas"] + 1


def test_4_five_thousand_a_month_is_ample_for_ten_requests_a_second(gpubroker: Any) -> None:
    line = "advise deploy serve 8B --requests-per-minute 600 --budget-usd 5000 --assume prompt_tokens=1000"
    found = answer(gpubroker, line)
    assert numbers(found, "demand")["required_tokens_per_second"] == 600 / 60 * 200 * 1.2
    assert found["fits_budget"]
    assert float(found["usd"]) < 5000


def test_5_sensitive_work_in_the_eu_uses_every_card_that_is_paid_for(gpubroker: Any) -> None:
    line = "advise deploy fine-tune 8B --tokens 20M --sensitive --where residency=eu"
    found = answer(gpubroker, line)
    alone = 6 * 8e9 * 20e6 / (989.5e12 * 0.40) / 3600
    assert found["accelerator"] == "H200", "by the price book; else mend the peak above"
    price = float(re.findall(r"× \$([\d.]+)/h", numbers_text(found))[0])
    assert float(found["usd"]) == pytest.approx((alone / found["gpus"] * 1.1 + 5 / 60) * price, rel=0.02)
    assert found["gpus"] == 8, "the machine has eight, and all are paid for"


def numbers_text(document: Any) -> str:
    (found,) = [str(one["decision"]) for one in document["steps"] if one["step"] == "supply and budget"]
    return found


def test_6_own_machines_cost_their_electricity(gpubroker: Any) -> None:
    added = "capacity add owned A100-80GB:8 --machines 4 --site campus --price 400000 --life 4y --power 22kW"
    assert gpubroker(*added.split()).code == 0
    found = answer(gpubroker, "advise deploy fine-tune 70B --assume method=lora")
    first = next(iter(numbers(found, "supply and budget").items()))
    assert "owned" in first[0]
    gpus = int(re.findall(r":(\d+) owned", first[0])[0])
    assert float(re.findall(r"\$([\d.]+)/h", first[1])[0]) == pytest.approx(22 / 32 * 0.12 * 1.58 * gpus, abs=0.01)


def test_7_a_billion_documents(gpubroker: Any) -> None:
    line = "advise cost embedding 335M --items 1B --assume tokens_per_item=256 --gpu H100"
    (best,) = answer(gpubroker, line)["options"]
    work = 1e9 * (2 * 335e6 * 256 + 4 * 24 * 1024 * 256**2)
    redone = 1.1 if best["quote"]["capacity_type"] == "spot" else 1.0
    assert best["gpu_hours"] == pytest.approx(work / (989.5e12 * 0.5) / 3600 * redone, rel=0.02)


def test_8_every_night_for_a_year(gpubroker: Any) -> None:
    total, price = ways(gpubroker, "--hours-per-day 8 --years 1")
    used = 8 * 365
    assert total["on_demand"] == pytest.approx(used * price["on-demand"], rel=0.001)
    assert total["reserved"] == pytest.approx(YEAR * price["reserved"], rel=0.001)
    assert total["owned"] == pytest.approx(84_000 * (1 - 0.15) + 5.12 * 1.58 * 0.12 * used, rel=0.001)


def test_9_three_years_with_falling_rents(gpubroker: Any) -> None:
    total, price = ways(gpubroker, "--assume utilization=0.7 --assume price_decline=0.15 --assume discount_rate=0.08")
    months = sum(0.85 ** ((month + 0.5) / 12) for month in range(36))
    assert total["on_demand"] == pytest.approx(0.7 * YEAR / 12 * price["on-demand"] * months, rel=0.01)
    assert total["owned"] == pytest.approx(84_000 * 0.85 + 5.12 * 1.58 * 0.12 * 0.7 * 3 * YEAR, rel=0.005)
    assert min(total, key=lambda way: total[way]) == "owned"


def test_10_a_season_of_two_months_is_rented(gpubroker: Any, tmp_path: Path) -> None:
    file = tmp_path / "season.csv"
    file.write_text("".join(f"{24 if day >= 300 else 8}\n" * 24 for day in range(365)))
    prices = "--reserved-price 1.45 --on-demand-price 2.40 --term 1y"
    (plan,) = answer(gpubroker, f"capacity plan --demand H100={file} {prices}")["plans"]
    assert 65 / 365 < 1.45 / 2.40, "the high season is shorter than the share at which a GPU pays"
    assert plan["choices"][0]["baseline_gpus"] == 8


def test_11_bursts_of_three_times_the_baseline(gpubroker: Any) -> None:
    line = "advise deploy serve 13B --requests-per-minute 6000 --assume tokens_per_request=300"
    found = answer(gpubroker, f"{line} --assume peak_to_baseline=3")
    speed = float(
        re.findall(r"([\d,]+) tokens/s a replica", str(numbers(found, "right-size")["fp8"]))[0].replace(",", "")
    )
    peak = -(-6000 / 60 * 300 * 1.2 // speed)
    owned, rented = (int(str(numbers(found, "owned")[key]).split(" ×")[0]) for key in ("owned", "bursts"))
    assert owned == -(-peak / 3 // 1)
    assert owned + rented == peak


def test_12_seventy_billion_parameters_in_eight_weeks(gpubroker: Any) -> None:
    found = answer(gpubroker, "advise deploy pretrain 70B --tokens 1.4T --deadline 8w")
    flops, gpu_hour = 6 * 70e9 * 1.4e12, 2250e12 * 0.40 * 3600
    assert found["accelerator"] == "B200", "by the price book; else mend the peak above"
    assert found["gpus"] == -(-flops / gpu_hour / (8 * 168 * 0.9) // 8) * 8
    price = float(re.findall(r"\$([\d,.]+)/h", numbers_text(found))[0].replace(",", ""))
    assert float(found["usd"]) == pytest.approx(flops / gpu_hour / found["gpus"] * price, rel=0.01)
