"""Ten situations in which independent arithmetic disagreed with the advice once: the command, the new answer, and the
figure that was computed independently beside it."""

from pathlib import Path
from typing import Any

import pytest

from broker.core.market.accelerators import lookup


def answer(gpubroker: Any, line: str) -> Any:
    done = gpubroker("advise", *line.split(), "--json")
    assert done.code == 0, done.out
    return done.json


def test_1_batch_and_context_count_in_training_memory(gpubroker: Any) -> None:
    found = answer(gpubroker, "size 8B --method qlora --batch 8 --context 4096 --assume logit_bytes=4")
    held, found = found["accelerators"], found["memory"]
    assert found["loss_gib"] == pytest.approx(15.7, abs=0.1)  # FP32 logits: 8 × 4096 × 128256 × 4 bytes
    assert found["total_gib"] == pytest.approx(12.9 + 15.7, rel=0.2)  # everything recomputed, and those logits
    assert "T4" not in {row["fit"]["accelerator"] for row in held if row["fit"]["gpus"] == 1}


def test_2_a_reservation_is_paid_for_every_hour(gpubroker: Any) -> None:
    found = answer(
        gpubroker,
        "buy-or-rent --hours-per-day 12 --assume reserved_usd_per_hour=4.858 --assume rent_usd_per_hour=11.06",
    )["comparison"]
    total = {way["way"]: float(way["total_usd"]) for way in found["ways"]}
    assert total["reserved"] == pytest.approx(127_668, rel=1e-4)  # 3 × 8760 h, not 63,835
    assert total["on_demand"] == pytest.approx(11.06 * 13_140, rel=1e-4)


def test_3_alternatives_do_not_multiply(gpubroker: Any) -> None:
    found = answer(gpubroker, "savings 7B --method inference --monthly-usd 12000")
    steps = {step["name"]: step for step in found["steps"]}
    before, after = steps["INT8 quantization"], steps["INT4 quantization"]
    left = steps["smallest model that meets the bar"]["remaining_low"]
    assert before["remaining_low"] == pytest.approx(left * 0.5)
    assert after["remaining_low"] == pytest.approx(left * 0.2)  # the better of the two, not 0.5 × 0.2
    assert steps["pruning"]["remaining_low"] == after["remaining_low"]
    assert min(step["remaining_low"] for step in found["steps"]) * 12_000 > 100  # $2.69 once


def test_4_whole_machines_are_paid_and_two_cards_are_not_twice_one(gpubroker: Any) -> None:
    found = answer(gpubroker, "serve 8B --requests-per-minute 600")
    for option in found["options"]:
        if option["machines"]:
            assert option["machines"] * option["gpus_per_machine"] >= option["gpus"]
    assert not [one for one in found["options"] if (one["accelerator"], one["precision"]) == ("V100", "int4")]
    one = answer(gpubroker, "serve 7B --requests-per-minute 60 --gpu RTX4090")
    assert {option["gpus_per_replica"] for option in one["options"]} == {1}


def test_5_prompts_are_work(gpubroker: Any) -> None:
    found = answer(gpubroker, "serve 70B --requests-per-minute 3000 --prompt-tokens 4096")
    best = found["options"][0]
    card = lookup(best["accelerator"])
    assert card.tflops_fp8 is not None
    assert best["gpus"] * card.tflops_fp8 * 1e12 > 50 * 2 * 70e9 * 4096  # 28.7 PFLOP/s for prompts alone
    assert best["batch"] > 8


def test_6_what_is_worth_buying_is_not_hidden_by_what_is_not(gpubroker: Any, tmp_path: Path) -> None:
    file = tmp_path / "constant.csv"
    file.write_text("10\n" * 4368)
    prices = ("--own-price", "35000", "--assume", "watts=1120", "--assume", "kwh_usd=0.12", "--on-demand-price", "2.40")
    done = gpubroker("capacity", "plan", "--demand", f"H100={file}", *prices, "--reserved-price", "4.86", "--json")
    assert done.code == 0
    (plan,) = done.json["plans"]
    assert plan["choices"][0]["baseline_gpus"] == 10
    assert plan["choices"][0]["option"].startswith("bought")


def test_8_an_empty_store_gives_no_finding(gpubroker: Any) -> None:
    found = gpubroker("policy", "findings")
    assert found.code == 0
    assert "rent instead" not in found.out
    assert "Not enough data" in found.out


def test_9_owned_machines_on_record_are_offers_at_their_electricity(gpubroker: Any, write: Any) -> None:
    added = "capacity add owned A100-80GB:8 --machines 4 --site campus --price 400000 --life 4y --power 22kW"
    assert gpubroker(*added.split()).code == 0
    found = gpubroker("offers", "--gpu", "A100-80GB", "-w", "capacity_type=owned", "--offline", "--json").json
    (row,) = found["offers"]
    assert (row["price_per_gpu_hour"], row["engine"], row["slots"]) == ("0.13035", None, 4)
    job = write("job.yaml", 'name: t\nresources: {accelerators: "A100-80GB:8"}\nrun: python x.py\nmax_duration: 4h\n')
    planned = gpubroker("plan", job, "--offline")
    assert planned.code == 4
    first = next(line for line in planned.out.splitlines() if line.startswith("1 "))
    assert "owned/campus" in first
    assert "$1.04" in first


def test_10_a_70b_qlora_on_two_gaming_cards(gpubroker: Any) -> None:
    line = "size 70B --method qlora --context 512 --gpu RTX4090 --assume offload=yes"
    offloaded = answer(gpubroker, f"{line} --gpus 2 --assume zero=3")
    (row,) = offloaded["accelerators"]
    assert (row["fit"]["accelerator"], row["fit"]["gpus"]) == ("RTX4090", 2)
    assert any("host memory" in note for note in offloaded["assumptions"])
    refused = gpubroker("advise", *line.split())
    assert refused.code == 2
    assert "zero=3" in refused.err


def test_10_a_billion_embeddings(gpubroker: Any) -> None:
    found = answer(gpubroker, "cost embedding 340M --items 1B --assume tokens_per_item=256 --gpu H100")
    (best,) = found["options"]
    work = 1e9 * (2 * 340e6 * 256 + 4 * 24 * 1024 * 256**2)
    assert best["gpu_hours"] == pytest.approx(work / (989.5e12 * 0.5) / 3600, rel=0.11)  # a tenth more on spot
    assert found["vectors_gb"] == 4096
