"""Every command of advice: its examples work, its JSON is one document, bad input says what is wrong."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from broker.cli.program import app

PROGRAM: Any = typer.main.get_command(app)
GROUP: Any = PROGRAM.commands["advise"]
COMMANDS = sorted(GROUP.commands)


def lines_of(name: str) -> list[list[str]]:
    """The examples in a command's help, as arguments."""
    epilog = GROUP.commands[name].epilog.replace("\\[", "[")
    return [shlex.split(line)[1:] for line in epilog.split("\n\n")[1:]]


EXAMPLES = [(name, line) for name in COMMANDS for line in lines_of(name) if "--from-history" not in line]


def test_all_the_commands_are_there() -> None:
    assert set(COMMANDS) >= {
        "size", "parallelism", "throughput", "scale", "unit-cost", "buy-or-rent", "serve", "hardware", "eco", "savings",
        "deploy",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(EXAMPLES)])
def test_examples_work_as_text_and_as_json(gpubroker: Any, name: str, line: list[str]) -> None:
    plain = [word for word in line if word != "--json" and not word.endswith("-file")]
    plain = [word for word in plain if word not in ("job.yaml", "policy.yaml")]
    shown = gpubroker(*plain)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.strip()
    document = gpubroker(*plain, "--json").json
    assert document["assumptions"], "says what it assumes"
    for key, value in _money(document):
        assert value is None or re.fullmatch(r"-?\d+\.\d{2,9}", value), f"{key} is no amount: {value!r}"


def _money(document: Any) -> list[tuple[str, Any]]:
    """Every single amount of a document, by key."""
    found: list[tuple[str, Any]] = []
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, dict | list):
            found += [pair for item in (value if isinstance(value, list) else [value]) for pair in _money(item)]
        elif re.search(r"(^|_)usd(_|$)", key):
            found.append((key, value))
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(gpubroker: Any, name: str) -> None:
    done = gpubroker("advise", name, "--help")
    assert done.code == 0
    assert f"gpubroker advise {name}" in done.out


BAD = [
    ("size", "the model's size is missing"),
    ("size --parameters 0", "out of range"),
    ("size --parameters -7B", "must not be negative"),
    ("size --parameters 1000000000000000000", "out of range"),
    ("size --parameters 1e18", "out of range"),
    ("size --parameters 500T", "parameters: expected"),
    ("size --parameters seven", "expected a count"),
    ("size --parameters 7B --batch 0", "batch: expected"),
    ("size --parameters 7B --context -1", "context: expected"),
    ("size --parameters 7B --gpus 0", "gpus: expected"),
    ("size --parameters 7B --tp 0", "gpus: expected"),
    ("size --parameters 7B --gpus 8 --tp 3", "cannot be split"),
    ("size --parameters 7B --zero 4 --gpus 8", "--zero"),
    ("size --parameters 7B --layers 0", "--layers: expected"),
    ("size --parameters 7B --kv-heads 8", "number of layers is missing"),
    ("size --parameters 7B --headroom 1.5", "headroom: expected"),
    ("size --parameters 7B --method adamw --precision int4", "cannot do it in int4"),
    ("size --config nowhere.json", "cannot be read"),
    ("size --parameters 7B --gpu H10", "did you mean"),
    ("size --parameters 7B --price 3", "names no accelerator"),
    ("size --parameters 7B --price H100=0", "above 0"),
    ("parallelism --parameters 70B --gpu RTX4090", "do not fit on one card"),
    ("parallelism --parameters 7B --gpus 0", "gpus: expected"),
    ("throughput --parameters 7B --efficiency 1.2", "efficiency: expected"),
    ("throughput --parameters 7B --batch 0", "batch: expected"),
    ("throughput --model-gb 0", "model size: expected"),
    ("throughput --parameters 7B --measured 1000000000", "of the peak"),
    ("scale --gpu H100", "the work is missing"),
    ("scale --gpu-hours 100 --sizes 8,x", "--sizes"),
    ("scale --gpu-hours 100 --measured 8", "--measured"),
    ("scale --gpu-hours 100 --measured 8:100", "at least two"),
    ("scale --gpu-hours 0", "work: expected"),
    ("scale --gpu-hours 100 --gpu P4", "no price of P4 is known"),
    ("unit-cost --tokens-per-second 70", "the price is missing"),
    ("unit-cost --tokens-per-second 0 --hardware-usd 100", "throughput: expected"),
    ("unit-cost --tokens-per-second 70 --hardware-usd 0", "hardware price: expected"),
    ("unit-cost --tokens-per-second 70 --hardware-usd 100 --utilisation 70", "0.7 is 70 %"),
    ("unit-cost --tokens-per-second 70 --hardware-usd 100 --years 0", "years: expected"),
    ("unit-cost --tokens-per-second 70 --hardware-usd lots", "expected an amount in USD"),
    ("unit-cost --tokens-per-second 70 --hardware-usd nan", "hardware price: expected"),
    ("buy-or-rent --years 3", "--purchase-usd and --rent-usd-per-hour: missing"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --hours-per-day 25", "hours per day: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --hours-per-day 0", "hours per day: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 0", "rent: expected"),
    ("buy-or-rent --purchase-usd 1e300 --rent-usd-per-hour 1", "purchase price: expected"),
    ("buy-or-rent --purchase-usd -1 --rent-usd-per-hour 1", "purchase price: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --utilisation 1.2", "utilisation: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --pue 0.5", "PUE"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --resale-usd 200", "resale value: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --obsolescence soon", "--obsolescence"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --years 1 --lead-time-weeks 60", "longer than"),
    ("buy-or-rent --purchase-usd 1 --rent-usd-per-hour 1 --utilisation 1 --from-history", "with --hours-per-day"),
    ("buy-or-rent --gpu H100 --from-history", "no GPU job ran on H100 in the last 90 days"),
    ("serve --requests-per-minute 0 --tokens-per-request 1 --parameters 7B", "requests per minute: expected"),
    ("serve --requests-per-minute 1 --tokens-per-request 1", "the speed of a replica is missing"),
    ("serve --requests-per-minute 1 --tokens-per-request 1 --parameters 7B --prefix-cache 0.5", "give --prompt-tokens"),
    ("serve --requests-per-minute 1 --tokens-per-request 1 --parameters 7B --tier a:1", "--tier"),
    ("hardware --trial L4", "--trial"),
    ("hardware --gpu P4", "no price is known for these"),
    ("eco --gpu H100 --location atlantis", "unknown grid region"),
    ("eco --gpu H100 --hours -1", "hours: expected"),
    ("eco --gpu H100 --gpus 0", "gpus: expected"),
    ("savings --utilisation 1.4", "utilisation: expected"),
    ("savings --utilisation 0", "utilisation: expected"),
    ("run-cost --gpu-hours 10", "the price is missing"),
    ("cluster-cost --server-usd 0", "server price: expected"),
    ("eco --hours 0", "--hours: expected above 0"),
    ("eco --pue 0.5", "PUE: expected 1 (no overhead) to 5"),
    ("eco --gpu tpu-v5p", "its power is not published"),
    ("throughput --gpu H100 --parameters 7B --context -5", "context: expected"),
    ("buy-or-rent --purchase-usd 100 --rent-usd-per-hour 1 --peak-to-baseline 0.5", "peak to baseline: expected 1"),
    ("deploy --for serve --parameters 7B", "the traffic is missing"),
    ("deploy --for fine-tune --parameters 7B --deadline soon", "--deadline"),
    ("deploy --for fine-tune --parameters 7B --budget-usd 0", "budget: expected"),
    ("deploy --for fine-tune --parameters 7B --method inference", "inference does not train"),
    ("deploy --for serve --parameters 7B --requests-per-minute 1 --hours-per-day 30", "hours per day: expected"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_says_what_was_expected(gpubroker: Any, line: str, says: str) -> None:
    done = gpubroker("advise", *line.split())
    assert done.code == 2, done.out
    assert says in done.err
    assert done.out == ""


def test_bad_input_is_a_document_too(gpubroker: Any) -> None:
    done = gpubroker("advise", "size", "--parameters", "0", "--json")
    assert done.code == 2
    assert "out of range" in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "no hidden_size in it"),
        ('{"hidden_size": 0, "num_hidden_layers": 2}', "hidden_size: expected"),
        ('{"hidden_size": 64, "num_hidden_layers": 2, "kv_lora_rank": 4}', "num_attention_heads"),
    ],
)
def test_a_configuration_nobody_knows(gpubroker: Any, write: Any, content: str, says: str) -> None:
    done = gpubroker("advise", "size", "--config", write("config.json", content))
    assert done.code == 2
    assert says in done.err


def test_a_folder_with_a_configuration_will_do(gpubroker: Any, write: Any, tmp_path: Path) -> None:
    write(
        "config.json",
        '{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}',
    )
    found = gpubroker("advise", "size", "--config", tmp_path, "--json").json
    assert found["parameters"] == pytest.approx(124e6, rel=0.01)


@pytest.mark.parametrize("line", ["scale --gpu-hours 100", "buy-or-rent --gpu H100", "hardware"])
def test_charts_are_drawn(gpubroker: Any, line: str) -> None:
    done = gpubroker("advise", *line.split(), "--chart")
    assert done.code == 0
    assert max(map(len, done.out.splitlines()[-25:])) <= 200


def test_prices_come_from_the_market_unless_they_are_given(gpubroker: Any) -> None:
    def price(*more: str) -> Any:
        fits = gpubroker("advise", "size", "--parameters", "7B", "--method", "qlora", "--gpu", "H100", *more, "--json")
        return fits.json["fits"][0]

    market = price()
    assert market["on_demand"]["source"] == "pricebook"
    assert market["on_demand"]["reference"] is True
    assert market["usd_per_hour"] == market["on_demand"]["usd_per_hour"]
    assert price("--price", "1.25")["usd_per_hour"] == "1.25"
    assert price("--price", "h100=1.5")["on_demand"]["source"] == "given on the command line"


def test_parallelism_ends_in_a_constraint_that_a_job_file_takes(gpubroker: Any) -> None:
    found = gpubroker("advise", "parallelism", "--parameters", "70B", "--gpu", "H100", "--gpus", "64", "--json").json
    assert found["strategy"] == "hybrid"
    assert found["tensor_parallel"] * found["pipeline_parallel"] * found["data_parallel"] == found["gpus"] == 64
    assert found["constraint"] == {
        "resources": {"accelerators": "H100:8"}, "num_nodes": 8, "constraints": {"interconnect": "nvlink"}
    }  # fmt: skip
    assert found["supply"]["linked"] > 0


def test_rules_of_thumb_of_ones_own(gpubroker: Any, write: Any) -> None:
    rules = write("rules.yaml", "memory_headroom: 0.3\nrent_below_hours_per_day: 2\n")
    size = gpubroker("advise", "--rules", rules, "size", "--parameters", "7B", "--json").json
    assert "30% of GPU memory kept free" in size["assumptions"]
    line = ("buy-or-rent", "--purchase-usd", "12000", "--rent-usd-per-hour", "5.12", "--json")
    found = gpubroker("advise", "--rules", rules, *line).json["rules_of_thumb"]
    assert found[0]["rule"] == "under 2 h/day: rent"
    assert found[0]["holds"] is True


def test_rules_of_thumb_of_the_active_policy(gpubroker: Any, write: Any) -> None:
    policy = write("policy.yaml", "version: 1\npolicy: p\nrules_of_thumb: {rent_below_hours_per_day: 2, mfu: 0.3}\n")
    assert gpubroker("policy", "apply", policy).code == 0
    line = ("buy-or-rent", "--purchase-usd", "12000", "--rent-usd-per-hour", "5.12", "--json")
    found = gpubroker("advise", *line).json
    assert found["rules_of_thumb"][0]["rule"] == "under 2 h/day: rent"
    assert "rule of thumb rent_below_hours_per_day: 2, not the default" in found["assumptions"]
    own = write("rules.yaml", "rent_below_hours_per_day: 3\n")
    assert gpubroker("advise", "--rules", own, *line).json["rules_of_thumb"][0]["rule"] == "under 3 h/day: rent"


@pytest.mark.parametrize(("rent", "holds"), [("1", False), ("50", True)])
def test_every_rule_of_thumb_is_held_against_the_arithmetic(gpubroker: Any, rent: str, holds: bool) -> None:
    case = ("--purchase-usd", "100000", "--rent-usd-per-hour", rent, "--years", "3", "--hours-per-day", "12")
    found = gpubroker("advise", "buy-or-rent", *case, "--json").json
    assert [one["holds"] for one in found["opinions"]] == [holds, holds]
    said = "holds" if holds else "does not hold here"
    assert f"more than 6 h/day for years: buy: {said}" in gpubroker("advise", "buy-or-rent", *case).out


@pytest.mark.parametrize(
    ("content", "says"),
    [("memory_hedroom: 0.1", "did you mean 'memory_headroom'"), ("memory_headroom: much", "expected 0 to 0.9")],
)
def test_rules_that_are_wrong(gpubroker: Any, write: Any, content: str, says: str) -> None:
    done = gpubroker("advise", "--rules", write("rules.yaml", content), "eco")
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(
    ("line", "hours"),
    [("--hours-per-day 12", 12), ("--utilisation 0.5", 12), ("--hours-per-day 12 --utilisation 0.5", 12),
     ("--hours-per-day 24 --utilisation 0.7", 16.8), ("--hours-per-day 12 --utilisation 0.8", 9.6)],
)  # fmt: skip
def test_hours_and_utilisation(gpubroker: Any, line: str, hours: float) -> None:
    case = "--purchase-usd 12000 --rent-usd-per-hour 5.12 --years 1"
    found = gpubroker("advise", "buy-or-rent", *case.split(), *line.split(), "--json").json
    assert found["hours"] == pytest.approx(hours * 365)


HEAVY = {"sqlalchemy", "numpy", "scipy", "matplotlib", "boto3", "alembic"}


def test_advice_is_quick_because_it_imports_nothing_heavy(home: Path) -> None:
    lines = [
        "size --parameters 7B",
        "buy-or-rent --gpu H100 --from-history",
        "deploy --for serve --parameters 13B --requests-per-minute 600",
    ]
    script = f"""import sys, cli
from broker.cli.program import run
codes = [run(["advise", *line.split()], cli.registries) for line in {lines!r}]
assert set(codes) <= {{0, 2}}, codes
print("MODULES", *sys.modules, file=sys.stderr)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr
    modules = done.stderr.rpartition("MODULES ")[2].split()
    assert "broker.economics.assumptions" in modules
    assert HEAVY.isdisjoint(modules)


def test_a_model_of_unknown_size_is_not_scored(gpubroker: Any) -> None:
    unknown = gpubroker("advise", "eco", "--json").json
    assert "model size" not in [line["what"] for line in unknown["scorecard"]["scores"]]
    assert "model size is not scored without --parameters" in unknown["assumptions"]
    known = gpubroker("advise", "eco", "--parameters", "7B", "--smallest-parameters", "1B", "--json").json
    size = next(line for line in known["scorecard"]["scores"] if line["what"] == "model size")
    assert size["points"] == pytest.approx(1 / 7)


def test_measured_power_stands_for_the_model_of_it(gpubroker: Any) -> None:
    line = "eco --gpu tpu-v5p --watts 300 --gpus 4 --hours 10 --pue 1.1 --json"
    assert gpubroker("advise", *line.split()).json["kwh"] == pytest.approx(13.2)


def test_a_card_is_bought_or_rented_against_a_card(gpubroker: Any) -> None:
    """MI300X come in machines of eight: one card's price stands against an eighth of their rent."""
    line = "buy-or-rent --gpu MI300X --years 1 --kwh-usd 0.12 --json"
    found = gpubroker("advise", *line.split()).json
    offers = gpubroker(
        "advise", "size", "--parameters", "1B", "--method", "inference", "--gpu", "MI300X", "--json"
    ).json
    machine = offers["fits"][0]["on_demand"]
    assert machine["machine"] == "MI300X:8"
    assert float(found["rent_total_usd"]) == pytest.approx(float(machine["usd_per_hour"]) / 8 * 8760)
    assert float(found["running_usd_per_month"]) == pytest.approx(0.750 * 0.12 * 730)


def test_savings_say_which_workload_was_taken(gpubroker: Any) -> None:
    assert (
        "a model of 7B parameters, present GPU utilisation 50%"
        in gpubroker("advise", "savings", "--json").json["assumptions"]
    )
