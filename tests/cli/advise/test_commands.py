"""Every command of advice: its examples work, its JSON is one document, bad input says what is wrong."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from broker.app.use_cases.catalogue import DOCUMENTS
from broker.cli.program import app
from broker.economics.assumptions import table
from tests.cli.documents import names_of
from tests.counts import part

PROGRAM: Any = typer.main.get_command(app)
GROUP: Any = PROGRAM.commands["advise"]
COMMANDS = ("size", "speed", "cost", "buy-or-rent", "serve", "hardware", "savings", "deploy", "rules", "assumptions")
COMMON = {"--gpu", "--price", "--where", "--assume", "--json", "--chart"}


def lines_of(name: str) -> list[list[str]]:
    """The examples in a command's help, as arguments."""
    epilog = GROUP.commands[name].epilog.replace("\\[", "[").replace("\\\n", "")
    return [shlex.split(line)[1:] for line in epilog.splitlines()[1:]]


EXAMPLES = [(name, line) for name in COMMANDS for line in lines_of(name) if "--from-history" not in line]
EXAMPLES = EXAMPLES[part(3) :: 3]  # each of them on every third day


def test_there_are_ten_commands_with_at_most_six_options_of_their_own() -> None:
    assert tuple(GROUP.commands) == COMMANDS
    for name in COMMANDS:
        options = [one.opts[0] for one in GROUP.commands[name].params if one.opts[0].startswith("--")]
        own = [option for option in options if option not in COMMON]
        assert len(own) <= 6, f"{name}: {own}"
        assert len(options) <= 14, name


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(EXAMPLES)])
def test_examples_work_as_text_and_as_json(gpubroker: Any, name: str, line: list[str], tmp_path: Path) -> None:
    plain = [word for word in line if word not in ("--json", "--write", "deployment")]
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


def test_every_command_has_its_document() -> None:
    printed = {name for command in COMMANDS for name in names_of(["advise", command])}
    assert printed == {name for name in DOCUMENTS if name.startswith("advise-")}


BAD = [
    ("size 0", "parameters: expected"),
    ("size 7", "did you mean 7B"),
    ("size 500T", "parameters: expected"),
    ("size seven", "a number of parameters such as 7B"),
    ("size nowhere.json", "cannot be read"),
    ("size 7B --batch 0", "--batch: expected a whole number, 1 to"),
    ("size 7B --context -1", "context: expected"),
    ("size 7B --gpus 0", "gpus: expected"),
    ("size 7B --gpus 8 --assume tensor_degree=3", "cannot be split"),
    ("size 7B --assume kv_heads=8", "number of layers is missing"),
    ("size 7B --assume memory_headroom=1.5", "expected a number, 0 to 0.9"),
    ("size 7B --assume memory_hedroom=0.1", "did you mean 'memory_headroom'"),
    ("size 7B --assume fast", "expected NAME=VALUE"),
    ("size 7B --assume precision=int4", "cannot do it in int4"),
    ("size 7B --gpu H10", "did you mean"),
    ("size 70B --gpu RTX4090", "do not fit on one card"),
    ("size 7B --price 3", "names no accelerator"),
    ("size 7B --price H100=0", "above 0"),
    ("size 7B --where cloud=aws", "unknown key 'cloud'"),
    ("size 7B --where provider", "expected KEY=VALUE"),
    ("speed", "the work is missing"),
    ("speed 7B --measured 1000000000", "of the peak"),
    ("speed 7B --measured fast", "--measured"),
    ("speed --assume gpu_hours=100 --measured 8:100", "at least two"),
    ("cost unit 70", "no accelerator is named"),
    ("cost unit 0 --assume purchase_usd=100", "tokens per second: expected"),
    ("cost unit 70 --utilization 70 --assume purchase_usd=100", "above 0, up to 1"),
    ("cost unit 70 --assume purchase_usd=lots", "above 0, up to 1T"),
    ("cost run 10 --gpus 8", "add --gpu, such as --gpu H100, or --price USD"),
    ("cost cluster 0", "server price: expected"),
    ("cost images SDXXL", "did you mean"),
    ("cost embedding 335M --items 1M", "the length of an item is missing"),
    ("buy-or-rent --gpu H100:8", "write --gpu H100 --gpus 8"),
    ("serve 7B --gpu H100:8 --requests-per-minute 60", "write --gpu H100\n"),
    ("buy-or-rent", "no price of owning or renting is known"),
    ("buy-or-rent --gpu H100 --hours-per-day 25", "--hours-per-day: expected"),
    ("buy-or-rent --gpu H100 --hours-per-day 5 --from-history 90", "cannot be combined"),
    ("buy-or-rent --gpu H100 --from-history 90", "no GPU job ran on H100 in the last 90 days"),
    ("serve 7B", "the traffic is missing"),
    ("serve --requests-per-minute 1", "the speed of a replica is missing"),
    ("serve 7B --requests-per-minute 1 --tier a:1", "--tier"),
    ("hardware --trial L4", "--trial"),
    ("hardware --gpu P4", "no price is known for these"),
    ("hardware --gpu H100 --hours 8 --location atlantis", "unknown grid region"),
    ("hardware --gpu tpu-v5p --hours 8", "its power is not published"),
    ("savings --utilization 1.4", "--utilization: expected"),
    ("savings --is fast", "exact-output"),
    ("deploy serve 7B", "the traffic is missing"),
    ("deploy fine-tune 7B --deadline soon", "--deadline: expected"),
    ("deploy fine-tune 7B --budget-usd 0", "--budget-usd"),
    ("deploy fine-tune 7B --assume method=inference", "inference does not train"),
    ("assumptions owing", "did you mean 'owning'"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_says_what_was_expected(gpubroker: Any, line: str, says: str) -> None:
    done = gpubroker("advise", *line.split())
    assert (done.code, done.out) == (2, ""), done.out
    assert says in done.err


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
    done = gpubroker("advise", "size", write("config.json", content))
    assert (done.code, says in done.err) == (2, True), done.err


def test_a_folder_with_a_configuration_will_do(gpubroker: Any, write: Any, tmp_path: Path) -> None:
    write(
        "config.json",
        '{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}',
    )
    found = gpubroker("advise", "size", tmp_path, "--json").json
    assert found["parameters"] == pytest.approx(124e6, rel=0.01)


@pytest.mark.parametrize("line", ["speed --assume gpu_hours=100", "buy-or-rent --gpu H100", "hardware"])
def test_charts_are_drawn(gpubroker: Any, line: str) -> None:
    done = gpubroker("advise", *line.split(), "--chart")
    assert done.code == 0
    assert max(map(len, done.out.splitlines()[-25:])) <= 200


def test_prices_come_from_the_market_unless_they_are_given(gpubroker: Any) -> None:
    def price(*more: str) -> Any:
        return gpubroker("advise", "size", "7B", "--method", "qlora", "--gpu", "H100", *more, "--json").json[
            "accelerators"
        ][0]["on_demand"]

    assert (price()["source"], price()["reference"]) == ("pricebook", True)
    assert price("--price", "1.25")["usd_per_hour"] == "1.25"
    assert price("--price", "h100=1.5")["source"] == "given on the command line"


def test_sizing_ends_in_a_constraint_that_a_job_file_takes(gpubroker: Any) -> None:
    found = gpubroker("advise", "size", "70B", "--gpu", "H100", "--gpus", "64", "--json").json
    plan = found["parallelism"]
    assert plan["strategy"] == "hybrid"
    assert plan["tensor_parallel"] * plan["pipeline_parallel"] * plan["data_parallel"] == plan["gpus"] == 64
    assert found["constraint"] == {
        "resources": {"accelerators": "H100:8"}, "num_nodes": 8, "constraints": {"interconnect": "nvlink"}
    }  # fmt: skip
    assert found["supply"]["linked"] > 0


def test_sizing_proposes_machines_that_are_offered_on_demand_or_says_why_no_job_starts_on_them(
    gpubroker: Any, write: Any
) -> None:
    """One A6000 is known on spot alone, where no engine starts jobs; four of them on demand."""
    found = gpubroker("advise", "size", "7B", "--method", "lora", "--gpu", "A6000", "--json").json
    assert found["constraint"] == {"resources": {"accelerators": "A6000:1+"}}
    assert "list price" in found["obstacle"]
    for machine, is_offered in (("A6000:1", False), ("A6000:1+", True)):
        file = write("x.yaml", f"run: x\nresources: {{accelerators: '{machine}'}}\n")
        assert bool(gpubroker("plan", file, "--json").json["estimated"]) == is_offered
    rows = gpubroker("advise", "size", "7B", "--method", "qlora", "--json").json["accelerators"]
    launchable = [any(row[kind] and row[kind]["launchable"] for kind in ("on_demand", "spot")) for row in rows]
    assert launchable == sorted(launchable, reverse=True)


CASE = ("buy-or-rent", "--assume", "purchase_usd=12000", "--assume", "rent_usd_per_hour=5.12", "--json")


def test_assumptions_are_set_by_name_by_file_and_by_policy_and_listed(gpubroker: Any, write: Any) -> None:
    def first_rule(*more: Any) -> str:
        found = gpubroker("advise", *CASE, *more).json["comparison"]["rules_of_thumb"]
        return str(found[0]["rule"])

    assert first_rule() == "under 4 h/day: rent"
    policy = write("policy.yaml", "version: 1\npolicy: p\nassumptions: {rent_below_hours_per_day: 2, mfu: 0.3}\n")
    assert gpubroker("policy", "apply", policy).code == 0
    assert first_rule() == "under 2 h/day: rent"
    own = write("own.yaml", "rent_below_hours_per_day: 3\n")
    assert first_rule("--assume", own) == "under 3 h/day: rent"
    assert first_rule("--assume", own, "--assume", "rent_below_hours_per_day=1") == "under 1 h/day: rent", "the last"
    listed = gpubroker("advise", "assumptions", "--assume", "kwh_usd=$0.30", "--json").json["assumptions"]
    assert [one["name"] for one in listed] == list(table())
    changed = {one["name"]: one["value"] for one in listed if one["changed"]}
    assert changed == {"rent_below_hours_per_day": 2, "mfu": 0.3, "kwh_usd": 0.3}
    assert "kwh_usd" in gpubroker("advise", "assumptions", "owning").out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("memory_hedroom: 0.1", "did you mean 'memory_headroom'"),
        ("memory_headroom: much", "expected a number, 0 to 0.9"),
    ],
)
def test_a_file_of_assumptions_that_is_wrong(gpubroker: Any, write: Any, content: str, says: str) -> None:
    done = gpubroker("advise", "size", "7B", "--assume", write("own.yaml", content))
    assert (done.code, says in done.err) == (2, True), done.err


@pytest.mark.parametrize(("rent", "holds"), [("1", False), ("50", True)])
def test_every_rule_of_thumb_is_held_against_the_arithmetic(gpubroker: Any, rent: str, holds: bool) -> None:
    case = ("--assume", "purchase_usd=100000", "--assume", f"rent_usd_per_hour={rent}", "--hours-per-day", "12")
    found = gpubroker("advise", "buy-or-rent", *case, "--json").json["comparison"]["rules_of_thumb"]
    said = {one["rule"]: one["holds"] for one in found}
    assert said["more than 6 h/day for years: buy"] is holds


def test_a_model_of_unknown_size_is_not_scored(gpubroker: Any) -> None:
    line = ("advise", "hardware", "--gpu", "H100", "--hours", "8", "--json")
    unknown = gpubroker(*line).json
    assert "model size" not in [score["what"] for score in unknown["eco"]["scorecard"]["scores"]]
    sizes = ("--assume", "model_parameters=7B", "--assume", "smallest_parameters=1B")
    known = gpubroker(*line, *sizes).json["eco"]["scorecard"]["scores"]
    assert next(score for score in known if score["what"] == "model size")["points"] == pytest.approx(1 / 7)


def test_measured_power_stands_for_the_model_of_it(gpubroker: Any) -> None:
    line = "hardware --gpu tpu-v5p --hours 10 --gpus 4 --assume gpu_watts=300 --assume pue=1.1 --json"
    assert gpubroker("advise", *line.split()).json["eco"]["footprint"]["kwh"] == pytest.approx(13.2)


def test_a_card_is_bought_or_rented_in_a_whole_machine(gpubroker: Any) -> None:
    """MI300X come in machines of eight: whoever rents one pays for all of them, and the answer says so."""
    line = "buy-or-rent --gpu MI300X --years 1 --assume utilization=1 --where provider=crusoe --json"
    answer = gpubroker("advise", *line.split()).json
    found = answer["comparison"]
    offers = gpubroker("advise", "size", "1B", "--gpu", "MI300X", "--where", "provider=crusoe", "--json").json
    machine = offers["accelerators"][0]["on_demand"]
    assert machine["machine"] == "MI300X:8"
    (rented,) = [float(way["total_usd"]) for way in found["ways"] if way["way"] == "on_demand"]
    assert rented == pytest.approx(float(machine["usd_per_hour"]) * 8760)
    assert any("sold as 8 GPUs, 1 needed: all 8 are paid for" in note for note in answer["assumptions"])
