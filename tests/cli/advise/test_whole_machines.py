"""What is sold whole is paid for whole, at one basis, by all answers; old prices of spot and terms count nowhere."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

BOOK = """
[[pages]]
provider = "aws"
source = "EC2"
url = "https://aws.amazon.com/ec2/pricing/on-demand/"
date = "{recent}"
region = "us-east-1"
engine = "skypilot"
machines = [
  {{ type = "h1", gpu = "H100", link = "nvlink", on_demand = "3.99" }},
  {{ type = "a1", gpu = "A100-80GB", on_demand = "2.00" }},
  {{ type = "a8", gpu = "A100-80GB", link = "nvlink", n = 8, on_demand = "12.00" }},
]

[[pages]]
provider = "gcp"
source = "GCE"
url = "https://cloud.google.com/spot-vms/pricing"
date = "{old}"
region = "us-central1"
engine = "skypilot"
machines = [ {{ type = "a3", gpu = "H100", link = "nvlink", spot = "1.00" }} ]

[[pages]]
provider = "far"
source = "Far"
url = "https://far.example/pricing"
date = "{recent}"
region = "global"
machines = [
  {{ type = "h1", gpu = "H100", link = "nvlink", on_demand = "3.20" }},
  {{ type = "h8", gpu = "H100", link = "nvlink", n = 8, reserved = {{ 12 = "16.00" }} }},
]
"""


@pytest.fixture
def answer(gpubroker: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command's document, by that price book; the spot price of it is 61 days old."""
    today = datetime.now(UTC).date()
    text = BOOK.format(recent=today - timedelta(days=9), old=today - timedelta(days=61))
    monkeypatch.setenv("GPUBROKER_PROVIDERS__PRICEBOOK__FILE", str(write("book.toml", text)))
    monkeypatch.setenv("GPUBROKER_STORE", f"sqlite:///{Path(write('x', '')).parent / 'other.db'}")

    def ask(*arguments: Any) -> Any:
        done = gpubroker(*arguments, "--json")
        assert done.code == 0, done.err
        return done.json

    return ask


def test_a_term_that_no_engine_reaches_is_compared_with_the_rent_of_all_answers(answer: Any, write: Any) -> None:
    """$16 ÷ 8 = $2 against $3.99 where jobs start, not $3.20 where none does: ρ = 0.50."""
    demand = write("eight.csv", "8\n" * 24 * 200)
    plans = answer("capacity", "plan", "--demand", f"H100={demand}")
    (plan,) = plans["plans"]
    assert plan["prices"]["on_demand_usd_per_gpu_hour"] == "3.99"
    assert plan["choices"][0]["ratio"] == pytest.approx(2 / 3.99)
    notes = "\n".join(plans["notes"])
    assert "rent: $3.99 per GPU-hour of H100:1 (aws/us-east-1, on-demand" in notes
    assert "not counted: far/global H100:1 at $3.20 per GPU-hour (no engine starts jobs there)" in notes
    assert "no engine starts jobs at far/global" in notes
    run = answer("advise", "cost", "run", "10", "--gpu", "H100")
    assert run["usd_per_gpu_hour"] == "3.99"
    assert answer("offers", "--gpu", "H100")["offers"][0]["price_per_gpu_hour"] == "3.99"


def test_buying_or_renting_one_card_counts_the_whole_machine_of_a_term_and_no_old_spot(answer: Any) -> None:
    """In a year the machine of eight costs 8,760 × $16 = $140,160, for one card as for eight; `serve` says the same by
    the month of 730 hours, $11,680. One card on demand is 8,760 × $3.99 = $34,952."""
    found = answer("advise", "buy-or-rent", "--gpu", "H100", "--years", "1", "--assume", "utilization=1")
    ways = {way["way"]: float(way["total_usd"]) for way in found["comparison"]["ways"]}
    assert ways["reserved"] == pytest.approx(140_160)
    assert ways["on_demand"] == pytest.approx(34_952.4)
    assert "spot" not in ways
    notes = "\n".join(found["assumptions"])
    assert "$16.00/h of H100:8 (far/global, reserved" in notes
    assert "term 12 months; sold as 8 GPUs, 1 needed: all 8 are paid for" in notes
    assert "no spot price of such a machine: omitted" in notes
    served = answer("advise", "serve", "7B", "--gpu", "H100", "--requests-per-minute", "60")
    assert float(served["options"][0]["monthly_usd_reserved"]) == pytest.approx(11_680)
    eight = answer("advise", "buy-or-rent", "--gpu", "H100", "--gpus", "8", "--years", "1")
    assert {way["way"]: float(way["total_usd"]) for way in eight["comparison"]["ways"]}["reserved"] == 140_160


def test_a_service_has_the_price_of_its_machine_with_source_and_age(answer: Any, gpubroker: Any) -> None:
    """$3.99 an hour × 730 hours × the machines; at 80 columns the cost of a month stays beside the latency."""
    line = ("advise", "serve", "7B", "--gpu", "H100", "--requests-per-minute", "60")
    served = answer(*line)
    best = served["options"][0]
    assert best["machine_usd_per_hour"] == "3.99"
    assert float(best["monthly_usd_on_demand"]) == pytest.approx(3.99 * 730 * best["machines"], rel=1e-3)
    assert best["price_origin"].startswith("aws/us-east-1, on-demand, pricebook: list price of ")
    assert f"$3.99/h of H100:1 ({best['price_origin']})" in served["assumptions"]


@pytest.mark.parametrize("size", ["7B", "70B"])
def test_eighty_columns_show_what_a_service_costs(gpubroker: Any, monkeypatch: Any, size: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = gpubroker("advise", "serve", size, "--requests-per-minute", "300").out
    (titles,) = [line for line in shown.splitlines() if line.startswith("accelerator ")]
    assert "monthly $ on demand  machine $ per hour" in titles
    assert titles.index("machine $") < titles.index("p95")


def test_a_rule_of_thumb_has_the_break_even_of_the_command_that_it_names(answer: Any) -> None:
    """$182,000 for a board of H100 against $3.99 an hour for one: never, by both; the quoted build pays."""
    rules = answer("advise", "rules")["rules_of_thumb"]
    owned = {rule["command"]: rule["says"] for rule in rules if rule["rule"].startswith("above 6 h/day")}
    assert len(owned) == 3, "the cards of this price book, and the quoted build"
    for command, says in owned.items():
        found = answer(*command.split()[1:])["comparison"]["break_even"]["hours_per_day"]
        assert ("owning never pays" if found > 24 else f"owning pays above {found:.1f} h/day") in says


def test_what_was_assumed_unsaid_is_said(answer: Any) -> None:
    """The memory of a request, the machine that a price is of."""
    served = answer("advise", "serve", "7B", "--gpu", "H100", "--requests-per-minute", "60")
    assert "memory for 700 tokens of each request, prompt and answer (--assume context=N)" in served["assumptions"]
    context = ("deploy", "serve", "7B", "--requests-per-minute", "60")
    assert "memory for 4,096 tokens of each request (--assume context=N)" in answer("advise", *context)["assumptions"]
    fast = answer("advise", "speed", "7B", "--gpu", "H100", "--assume", "tokens=10B", "--gpus", "1")["assumptions"]
    assert any(note.startswith("$3.99 per GPU-hour of H100:1 (aws/us-east-1, on-demand") for note in fast)


def test_the_limits_of_a_job_file_allow_what_it_may_fall_back_on(answer: Any) -> None:
    found = answer("advise", "deploy", "fine-tune", "8B")
    (hardware, carbon) = (
        next(step for step in found["steps"] if step["step"] == name) for name in ("hardware", "sustainability")
    )
    limit = float(found["job_file"].partition("max_cost: $")[2].split()[0])
    costs = [float(text.rpartition("$")[2].replace(",", "")) for text in hardware["numbers"].values()]
    assert limit >= max(costs) * 1.2
    assert carbon["numbers"]["location"] == "aws/us-east-1", "where the price is"


def test_falling_rents_are_those_of_the_way_that_is_cheapest(answer: Any) -> None:
    """Reserved, the same machine costs half: a table of its rent on demand would contradict the verdict."""
    prices = {"purchase_usd": 364_000, "rent_usd_per_hour": 31.92, "reserved_usd_per_hour": 16}
    case = [word for name, usd in prices.items() for word in ("--assume", f"{name}={usd}")]
    rows = answer("advise", "buy-or-rent", "--gpus", "8", *case)["comparison"]["falling_rents"]
    assert rows[0]["way"] == "reserved"
    for row in rows:
        assert (row["verdict"] == "buy") is (float(row["owned_usd"]) < float(row["rented_usd"]))


def test_two_cards_that_no_machine_has_together_are_two_machines(gpubroker: Any) -> None:
    """RTX 4090 are rented one by one: two for five hours a day cost twice as much as one."""
    line = "advise buy-or-rent --gpu RTX4090 --hours-per-day 5 --years 2 --gpus"
    one, two = (gpubroker(*line.split(), gpus, "--json").json for gpus in ("1", "2"))
    rents = [
        next(float(way["total_usd"]) for way in found["comparison"]["ways"] if way["way"] == "on_demand")
        for found in (one, two)
    ]
    assert rents[1] == pytest.approx(2 * rents[0])
    assert two["comparison"]["machines"] == 2
    assert "no machine with 2 RTX4090 is for rent: machines with 1" in two["assumptions"]


def test_a_run_on_eight_cards_has_the_price_of_a_machine_of_eight(gpubroker: Any) -> None:
    """Single A100 are cheaper by the hour than those of a machine of eight, and no place for a run on eight."""
    line = ("advise", "cost", "run", "24", "--gpu", "A100-80GB")
    single, eight = (gpubroker(*line, *more, "--json").json for more in ((), ("--gpus", "8")))
    assert "per GPU-hour of A100-80GB:8" in eight["assumptions"][0]
    assert float(eight["usd_per_gpu_hour"]) > float(single["usd_per_gpu_hour"])
    assert (single["gpu_hours"], single["hours"], eight["gpu_hours"], eight["hours"]) == (24, None, 24, 3)
    assert "24 GPU-hours on 8 GPUs: 3 h" in gpubroker(*line, "--gpus", "8").out


def test_a_service_that_is_seldom_asked_is_told_of_scale_to_zero(answer: Any) -> None:
    line = ("advise", "serve", "7B", "--gpu", "H100", "--requests-per-minute")
    seldom, often = ("\n".join(answer(*line, rate)["assumptions"]) for rate in ("0.14", "60"))
    assert "of the time at most: --assume idle_share=" in seldom
    assert "idle_share" not in often
    assert "no latency is required: the cheapest is first, however slow (--p95 SECONDS)" in often
    assert "--p95" not in "\n".join(answer(*line, "60", "--p95", "30")["assumptions"])


@pytest.mark.parametrize(("gpus", "usd", "month", "machine"), [(3, "2", "4380", 1), (7, "1.5", "8760", 8)])
def test_a_plan_rents_the_machines_with_which_the_demand_costs_least(
    answer: Any, write: Any, gpus: int, usd: str, month: str, machine: int
) -> None:
    """Three single cards for $2 are $6 an hour, a machine of eight $12; seven are $14. A month has 730 hours."""
    demand = write("a100.csv", f"{gpus}\n" * 24 * 100)
    plans = answer("capacity", "plan", "--demand", f"A100-80GB={demand}")
    (plan,) = plans["plans"]
    assert plan["prices"]["on_demand_usd_per_gpu_hour"] == usd
    assert plan["scenarios"][0]["usd_per_month"]["expected"] == month
    assert (plan["mean_gpus"], plan["peak_gpus"]) == (gpus, gpus)
    notes = "\n".join([*plan["notes"], *plans["notes"]])
    assert f"per GPU-hour of A100-80GB:{machine} (aws" in notes
    assert ("rented in whole machines of 8: demand counts in steps of 8 GPUs" in notes) is (machine == 8)


def test_modules_are_bought_by_the_board(answer: Any) -> None:
    """A service that needs one H100 (SXM) would buy four: 4 × $32,500 × 1.4 = $182,000 are more than three years of
    rent, 26,280 × $3.99 = $104,857. Buying a single one costs the board, too."""
    found = answer("advise", "deploy", "serve", "7B", "--requests-per-minute", "600", "--assume", "least_maturity=5")
    supply = next(step for step in found["steps"] if step["step"] == "supply and budget")
    assert supply["numbers"]["H100"] == "$3.99/h rented, $182,000 to buy"
    bare = [word for zero in ZERO for word in ("--assume", f"{zero}=0")]
    bought = answer("advise", "buy-or-rent", "--gpu", "H100", *bare)
    assert any("$182,000, 4 ×" in note and "1 needed, all 4 are paid for" in note for note in bought["assumptions"])
    assert owned_usd(bought) == pytest.approx(182_000)
    with_staff = answer("advise", "buy-or-rent", "--gpu", "H100", *bare[4:])
    assert owned_usd(with_staff) == pytest.approx(182_000 + 26_280 * 4.5 + 87_500 / 8), "for the card that is needed"
    (note,) = [text for text in with_staff["assumptions"] if "advise cost cluster" in text]
    assert note.startswith("staff $4.50 per GPU-hour and facilities $10,900: the middle of quoted ranges")
    assert "with 0 instead, owning costs $182,000 in present value: on-demand is cheapest" in note


ZERO = ("staff_usd_per_gpu_hour", "facility_usd", "kwh_usd", "resale_share", "lead_time_weeks")


def owned_usd(found: Any) -> float:
    return next(float(way["present_value_usd"]) for way in found["comparison"]["ways"] if way["way"] == "owned")


def test_a_plan_says_why_it_looks_back_on_fewer_days_than_are_known(gpubroker: Any, write: Any) -> None:
    """Of 60 days the first week is history: 53 are left."""
    demand = write("sixty.csv", "8\n" * 24 * 60)
    line = ("capacity", "plan", "--reserved-price", "1.45", "--on-demand-price", "2.40")
    shown = " ".join(gpubroker(*line, "--demand", f"H100={demand}").out.split())
    assert "Over the last 53 days, with the days before (a week or more) as history" in shown
