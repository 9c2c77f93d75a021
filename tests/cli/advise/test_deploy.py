"""`advise deploy`: three situations, three sensible answers, each ending in files that are taken as they are."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.core.job.file import parse_job
from broker.core.market.offers import CapacityType
from broker.economics.assumptions import DEFAULTS
from broker.placement.pricing.conditions import Conditions
from policies.loader import load

FINE_TUNE = "fine-tune 7B --tokens 50M --budget-usd 100"
SENSITIVE = "serve 13B --requests-per-minute 600 --assume tokens_per_request=300 --sensitive"
PRETRAIN = "pretrain 70B --tokens 1.4T --deadline 8w"
PATH = [
    "demand", "supply and budget", "right-size the model", "hardware", "owned, cloud or hybrid", "parallelism",
    "optimizations", "monitoring", "sustainability", "revisit",
]  # fmt: skip


def deploy(gpubroker: Any, line: str, folder: Path) -> Any:
    done = gpubroker("advise", "deploy", *line.split(), "--write", folder, "--json")
    assert done.code == 0, done.out
    return done.json


@pytest.mark.parametrize("line", [FINE_TUNE, SENSITIVE, PRETRAIN], ids=["fine-tune", "sensitive", "pretrain"])
def test_each_step_has_its_arithmetic_and_the_files_are_taken(gpubroker: Any, line: str, tmp_path: Path) -> None:
    found = deploy(gpubroker, line, tmp_path)
    assert [step["step"] for step in found["steps"]] == PATH
    assert all(step["rule"] and step["numbers"] and step["decision"] for step in found["steps"])
    assert found["job_file"] == (tmp_path / "job.yaml").read_text("utf-8")
    planned = gpubroker("plan", tmp_path / "job.yaml", "--policy", tmp_path / "policy.yaml", "--json")
    assert planned.code in (0, 3, 4, 6), f"plan does not take the file: {planned.out}{planned.err}"
    assert planned.json["job"]["name"] == parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC)).name
    assert gpubroker("policy", "check", tmp_path / "policy.yaml").code == 0


def test_a_fine_tune_on_a_small_budget_adapts_on_one_cheap_card(gpubroker: Any, tmp_path: Path) -> None:
    found = deploy(gpubroker, FINE_TUNE, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert (found["verdict"], found["gpus"], found["fits_budget"]) == ("rent", 1, True)
    assert "qlora" in found["title"]
    assert any("`defaults: {allow_reference_prices: true}`" in warning for warning in found["warnings"])
    assert float(found["usd"]) < 20
    assert job.max_cost is not None
    assert job.max_cost.as_json() == "100.00"
    assert job.checkpoint.size is not None
    assert job.checkpoint.size < 2e9, "an adapter, not the model"
    flops = next(step["numbers"]["flops"] for step in found["steps"] if step["step"] == "demand")
    assert flops == pytest.approx(6 * 7e9 * 50e6)


def test_sensitive_inference_around_the_clock_is_bought_and_stays_at_home(gpubroker: Any, tmp_path: Path) -> None:
    found = deploy(gpubroker, SENSITIVE, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert found["verdict"] == "buy"
    assert job.data.sensitive
    assert job.constraints.capacity_types == (CapacityType.OWNED,)
    where = next(step for step in found["steps"] if step["step"] == "owned, cloud or hybrid")
    assert float(where["numbers"]["owned_usd"]) < float(where["numbers"]["rented_usd"])
    assert "sensitive data: on premises" in where["numbers"]["rules_of_thumb"]
    policy = load({"policy.yaml": found["policy_file"]})
    assert "allowed_locations" in {rule.kind for rule in policy.rules}


def test_a_pre_training_in_eight_weeks_is_rented_by_the_hundred(gpubroker: Any, tmp_path: Path) -> None:
    found = deploy(gpubroker, PRETRAIN, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert found["verdict"] == "rent"
    assert found["meets_deadline"] is True
    assert found["gpus"] > 100
    assert job.num_nodes * 8 == found["gpus"]
    assert job.constraints.interconnect == "nvlink"
    assert job.work is not None
    weeks = job.work.duration.total_seconds() / 604_800
    assert 4 < weeks < 8 * 0.9 + 0.01
    parallel = next(step["numbers"] for step in found["steps"] if step["step"] == "parallelism")
    assert parallel["tensor"] * parallel["pipeline"] * parallel["data"] == found["gpus"]
    assert parallel["gib_per_gpu"] <= parallel["usable_gib"]


def test_limits_that_cannot_be_met_are_said(gpubroker: Any, tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    dear = deploy(gpubroker, PRETRAIN + " --budget-usd 50000", tmp_path)
    assert dear["fits_budget"] is False
    assert any("above the budget" in warning for warning in dear["warnings"])

    late = deploy(gpubroker, PRETRAIN.replace("8w", "1h"), tmp_path / "late")
    assert late["meets_deadline"] is False
    assert any("misses the deadline" in warning for warning in late["warnings"])


def test_bursts_are_rented_and_the_baseline_owned(gpubroker: Any, tmp_path: Path) -> None:
    line = SENSITIVE.replace(" --sensitive", " --assume peak_to_baseline=3")
    assert deploy(gpubroker, line, tmp_path)["verdict"] == "hybrid"


def test_a_few_hours_a_day_are_rented(gpubroker: Any, tmp_path: Path) -> None:
    line = SENSITIVE.replace("--sensitive", "--assume hours_per_day=3")
    assert deploy(gpubroker, line, tmp_path)["verdict"] == "rent"


def test_a_file_that_is_there_is_left_alone(gpubroker: Any, write: Any, tmp_path: Path) -> None:
    file = write("job.yaml", "mine")
    done = gpubroker("advise", "deploy", *FINE_TUNE.split(), "--write", tmp_path)
    assert done.code == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize("rate", [60, 370, 600, 1100, 2300])
def test_as_many_cards_are_asked_for_as_are_paid(gpubroker: Any, tmp_path: Path, rate: int) -> None:
    line = f"serve 13B --requests-per-minute {rate} --assume tokens_per_request=300 --sensitive"
    found = deploy(gpubroker, line, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert job.resources[0].count * job.num_nodes == found["gpus"]
    assert f"buy {found['gpus']} × {found['accelerator']}" in found["title"]
    parallel = next(step["numbers"] for step in found["steps"] if step["step"] == "parallelism")
    assert found["gpus"] >= parallel["replicas"] * parallel["gpus_per_replica"]


def test_nothing_is_advised_that_was_decided_before(gpubroker: Any, tmp_path: Path) -> None:
    (tmp_path / "serve").mkdir()
    gang = deploy(gpubroker, PRETRAIN, tmp_path)
    service = deploy(gpubroker, SENSITIVE, tmp_path / "serve")
    assert "int8 weights" in service["title"]
    steps = {step["step"]: step for one in (gang,) for step in one["steps"]}
    assert "spot" not in steps["optimizations"]["decision"], "a gang of machines is no work for spot"
    ladder = next(step for step in service["steps"] if step["step"] == "optimizations")
    assert not [name for name in ladder["numbers"] if "quantization" in name], "its weights are quantised"


@pytest.mark.parametrize("line", [FINE_TUNE, PRETRAIN])
def test_writing_checkpoints_leaves_time_for_the_work(gpubroker: Any, tmp_path: Path, line: str) -> None:
    """One machine writes 980 GB in half an hour; those of a gang write their parts at once, and lose less work."""
    found = deploy(gpubroker, line, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert job.checkpoint.every is not None
    assert job.checkpoint.size is not None
    assert DEFAULTS.checkpoint_bytes_per_s == Conditions().write_bytes_per_second, "advice and plans reckon alike"
    alone = job.checkpoint.size / job.num_nodes / DEFAULTS.checkpoint_bytes_per_s
    writing = alone / job.checkpoint.every.total_seconds()
    assert writing <= 0.051  # every: whole minutes
    assert timedelta(minutes=15) <= job.checkpoint.every < timedelta(hours=1)


def test_a_buyer_is_told_what_the_average_of_a_month_hides(gpubroker: Any, tmp_path: Path) -> None:
    line = "serve 8B --requests-per-minute 600 --budget-usd 5000 --assume prompt_tokens=1000"
    found = deploy(gpubroker, line, tmp_path)
    assert found["verdict"] == "buy"
    assert any("one replica on one machine" in warning for warning in found["warnings"])
    assert any("paid at once" in warning for warning in found["warnings"])
    money = next(step["decision"] for step in found["steps"] if step["step"] == "supply and budget")
    assert money == f"{float(found['usd']) / 5000:.0%} of the $5,000 a month are needed"
