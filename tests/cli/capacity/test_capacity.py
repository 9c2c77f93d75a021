"""`gpubroker capacity` as people run it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gpubroker
from tests.cli.documents import check

Write = Callable[[str, str], Path]

DAILY = "".join(f"{12 if 9 <= hour % 24 < 15 else 4}\n" for hour in range(24 * 40))


def test_what_is_added_is_listed_and_can_be_taken_back(gpubroker: Gpubroker) -> None:
    added = gpubroker(
        *("capacity", "add", "owned", "h100:8", "--machines", "2", "--site", "basement", "--price", "$560,640"),
        *("--from", "2026-01-01T00:00Z", "--life", "4y", "--power", "11.2kW", "--json"),
    )
    assert added.code == 0
    assert added.json["accelerator"] == "H100"
    assert added.json["gpus"] == 16
    assert added.json["watts"] == 11200
    assert added.json["usd_per_gpu_hour"] == "1.000000"  # 560,640 / (4 × 8,760 × 16)
    listed = gpubroker("capacity", "list", "--json")
    assert [row["number"] for row in listed.json["recorded"]] == [1]
    assert "basement" in gpubroker("capacity", "list").out
    assert gpubroker("capacity", "remove", "1").code == 0
    assert gpubroker("capacity", "list", "--json").json["recorded"] == []
    assert gpubroker("capacity", "remove", "1").code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("owned", "H100:8"), "--term"),
        (("owned", "H100:8", "--term", "1y", "--until", "2030-01-01"), "both set the end"),
        (("owned", "H100:8", "--until", "30d", "--price", "9"), "for a duration use --term"),
        (("owned", "H100:8", "--life", "4y"), "the payment is missing"),
        (("reservation", "H100:8", "--term", "1y", "--provider", "aws"), "--price (one-time), --hourly"),
        (("owned", "H100:8", "--term", "forever"), "--term"),
        (("owned", "H100:8", "--until", "2001-01-01"), "before the start"),
        (("owned", "H1000:8", "--term", "1y"), "H1000"),
        (("owned", "H100:0", "--term", "1y"), "GPU"),
        (("owned", "H100:8", "--term", "1y", "--price", "-5"), "--price"),
        (("owned", "H100:8", "--term", "1y", "--power", "much"), "--power"),
        (("reservation", "H100:8", "--term", "1y"), "--provider"),
    ],
)
def test_what_makes_no_sense_is_not_recorded(gpubroker: Gpubroker, arguments: tuple[str, ...], says: str) -> None:
    done = gpubroker("capacity", "add", *arguments)
    assert done.code == 2
    assert says in done.err
    assert gpubroker("capacity", "list", "--offline", "--json").json["recorded"] == []


def test_what_cost_nothing_is_said_so(gpubroker: Gpubroker) -> None:
    done = gpubroker("capacity", "add", "owned", "H100:8", "--life", "4y", "--price", "0", "--json")
    assert (done.code, done.json["upfront_usd"], done.err) == (0, "0.00", "")


@pytest.mark.parametrize(
    ("kind", "provider", "recorded", "says"),
    [
        ("reservation", "SANDBOX", "sandbox", ""),
        ("reservation", "sandbx", "sandbx", "warning: no provider here is called 'sandbx'; did you mean 'sandbox'?"),
        ("reservation", "zzz", "zzz", "warning: no provider here is called 'zzz'; known are "),
        ("reservation", "crusoe", "crusoe", ""),
        ("owned", "basement", "basement", ""),
        ("owned", "ownd", "ownd", "did you mean 'owned'? It is recorded as your own site"),
    ],
)
def test_a_provider_that_is_perhaps_misspelt_is_warned_of(
    gpubroker: Gpubroker, kind: str, provider: str, recorded: str, says: str
) -> None:
    terms = ("--provider", provider, "--price", "9", "--term", "1y", "--json")
    done = gpubroker("capacity", "add", kind, "H100:8", *terms)
    assert (done.code, done.json["provider"]) == (0, recorded)
    assert says in done.err
    assert bool(says) == bool(done.err)


def test_a_site_that_is_perhaps_misspelt_is_warned_of_in_a_new_store(gpubroker: Gpubroker) -> None:
    terms = ("--provider", "aws", "--site", "us-eats-1", "--price", "9", "--term", "1y")
    done = gpubroker("capacity", "add", "reservation", "H100:8", *terms)
    assert (done.code, "no offer of aws is in 'us-eats-1'; did you mean 'us-east-1'?" in done.err) == (0, True)


def test_a_plan_from_a_file_and_stated_prices(gpubroker: Gpubroker, write: Write, tmp_path: Path) -> None:
    done = gpubroker(
        *(
            "capacity",
            "plan",
            "--demand",
            f"H100={write('x.csv', DAILY)}",
            "--on-demand-price",
            "2",
            "--spot-price",
            "1",
        ),
        *("--reserved-price", "H100=1.2", "--term", "720h", "--spot-share", "0.5", "--json"),
    )
    assert done.code == 0
    (plan,) = done.json["plans"]
    assert (plan["accelerator"], plan["baseline_gpus"], plan["buy_now_gpus"]) == ("H100", 4, 4)
    assert plan["prices"]["burst_usd_per_gpu_hour"] == "1.5"
    costs = {row["scenario"]: row["usd_per_month"]["expected"] for row in plan["scenarios"]}
    assert costs == {"as_is": "6570", "all_on_demand": "8760", "all_spot": "4380", "planned": "5694"}
    assert plan["steps"][0]["action"] == "buy"


def test_what_is_on_record_counts_in_the_plan(gpubroker: Gpubroker, write: Write) -> None:
    gpubroker("capacity", "add", "reservation", "H100:3", "--provider", "aws", "--hourly", "3", "--term", "1y")
    file = write("x.csv", DAILY)
    done = gpubroker("capacity", "plan", "--demand", f"H100={file}", "--on-demand-price", "2", "--ratio", "0.6")
    assert done.code == 0
    assert "3 held; buy 1 now" in done.out
    assert "reservation aws" in done.out


def test_market_prices_are_used_where_none_are_stated_and_charts_drawn(gpubroker: Gpubroker, write: Write) -> None:
    fleet = write("fleet.csv", "H100,L4\n" + "".join(f"{4 + hour % 3},2\n" for hour in range(400)))
    done = gpubroker("capacity", "plan", "--demand", fleet, "--chart")
    assert done.code == 0
    assert "worth holding" in done.out
    assert done.out.count("demand and capacity worth holding") == 2
    assert " ".join(done.out.split()).count("on-demand, pricebook: list price of 20") == 2
    only = gpubroker("capacity", "plan", "--demand", fleet, "--where", "gpu=L4", "--json")
    assert [plan["accelerator"] for plan in only.json["plans"]] == ["L4"]
    stated = gpubroker("capacity", "plan", "--demand", fleet, "--on-demand-price", "2")
    assert stated.out.count("rent: $2.00 per GPU-hour, as stated") == 2


HALF_A_DAY = "".join(f"{12 if hour % 24 < 12 else 4}\n" for hour in range(24 * 365))
BOOK = """
[[pages]]
provider = "aws"
source = "EC2"
url = "https://aws.amazon.com/ec2/pricing/on-demand/"
date = "{date}"
region = "us-east-1"
engine = "skypilot"
machines = [
  {{ type = "p5.4xlarge", gpu = "H100", on_demand = "6.88" }},
  {{ type = "p5", gpu = "H100", link = "nvlink", n = {gpus}, {prices} }},
]

[[pages]]
provider = "vast"
source = "Vast.ai"
url = "https://console.vast.ai/"
date = "{fresh}"
region = "global"
machines = [ {{ type = "1x-H100_SXM", gpu = "H100", on_demand = "2.40" }} ]
"""


def plan_of_half_a_day(
    gpubroker: Gpubroker,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    *options: str,
    gpus: int = 8,
    hours: str = HALF_A_DAY,
) -> tuple[dict[str, Any], str]:
    """The plan for 4 GPUs half the day and 12 the other half, or what is needed in those ``hours``, and its notes, by a
    price book of that age with machines of ``gpus``: $6.88 a GPU-hour on demand, $3.60 for 36 months."""
    today = datetime.now(UTC).date()
    prices = f'on_demand = "{6.88 * gpus:.2f}", reserved = {{ 36 = "{3.60 * gpus:.2f}" }}'
    dates = {"date": today - timedelta(days=days), "fresh": today - timedelta(days=1)}
    book = write("book.toml", BOOK.format(gpus=gpus, prices=prices, **dates))
    monkeypatch.setenv("GPUBROKER_PROVIDERS__PRICEBOOK__FILE", str(book))
    monkeypatch.setenv("GPUBROKER_STORE", f"sqlite:///{Path(book).parent / 'other.db'}")  # without earlier prices
    demand = write("half.csv", hours)
    done = gpubroker("capacity", "plan", "--demand", f"H100={demand}", *options, "--json")
    assert done.code == 0, done.err
    return done.json["plans"][0], "\n".join([*done.json["plans"][0]["notes"], *done.json["notes"]])


@pytest.mark.parametrize(
    ("options", "gpus"), [((), 1), (("--on-demand-price", "6.88", "--reserved-price", "3.60", "--term", "36mo"), 8)]
)
def test_of_4_to_12_gpus_4_are_held_at_like_prices(
    gpubroker: Gpubroker, write: Write, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], gpus: int
) -> None:
    """Sold by the card, or for a stated price: $3.60 a GPU-hour against $6.88: ρ = 0.52. GPUs 1 to 4 are needed in all
    hours, 5 to 12 in half of them, which is less. A month of 730 hours with 4 held costs (4 × 3.60 + 4 × 6.88) × 730 =
    $30,602, with none 8 × 6.88 × 730 = $40,179, with 12 12 × 3.60 × 730 = $31,536."""
    plan, notes = plan_of_half_a_day(gpubroker, write, monkeypatch, 10, *options, gpus=gpus)
    assert (plan["baseline_gpus"], plan["buy_now_gpus"]) == (4, 4)
    assert plan["choices"][0]["ratio"] == pytest.approx(3.60 / 6.88)
    assert {row["scenario"]: row["usd_per_month"]["expected"] for row in plan["scenarios"]} == {
        "as_is": "40179.2", "all_on_demand": "40179.2", "planned": "30601.6"
    }  # fmt: skip
    assert "GPU 4 in 100%, GPU 5 in 50% of the hours, asked 52%" in notes
    assert "the best constant number, 4: hold 0: $9,578; hold 4: $0; hold 12: $934" in notes
    is_market = not options
    assert (
        "rent: $6.88 per GPU-hour of H100:1 (aws/us-east-1, on-demand, pricebook: list price of" in notes
    ) is is_market
    assert ("not counted: vast/global H100:1 at $2.40 per GPU-hour (private hosts, no engine" in notes) is is_market
    assert ("if your jobs run on vast/global H100:1 at $2.40 per GPU-hour, rent there" in notes) is is_market


@pytest.mark.parametrize(
    ("need", "held", "shares", "regrets"),
    [
        (3, 0, "GPUs 1 to 8 (one machine) in 38% of the hours, asked 52%", "0: hold 0: $0; hold 8: $5,957"),
        (5, 8, "GPUs 1 to 8 (one machine) in 62% of the hours, asked 52%", "8: hold 0: $4,088; hold 8: $0"),
        (None, 8, "in 75%, GPUs 9 to 16 (one machine) in 25% of", "8: hold 0: $9,110; hold 8: $0; hold 16: $10,979"),
    ],
)
def test_machines_that_are_sold_whole_are_bought_whole(
    gpubroker: Gpubroker, write: Write, monkeypatch: pytest.MonkeyPatch,
    need: int | None, held: int, shares: str, regrets: str,
) -> None:  # fmt: skip
    """A machine of eight for $28.80 an hour is $21,024 a month of 730 hours. Three GPUs rented at $6.88 are $15,067, so
    they are rented; five are $25,112, so the machine is bought. For 4 and 12 in turns one machine and 4 GPUs rented
    half of the time cost $21,024 + 730 × 2 × $6.88 = $31,069, renting $40,179, two machines $42,048."""
    hours = HALF_A_DAY if need is None else f"{need}\n" * 24 * 365
    plan, notes = plan_of_half_a_day(gpubroker, write, monkeypatch, 10, hours=hours)
    assert (plan["baseline_gpus"], plan["buy_now_gpus"], plan["choices"][0]["gpus_per_machine"]) == (held, held, 8)
    planned = next(row for row in plan["scenarios"] if row["scenario"] == "planned")
    rented = 3 if need == 3 else 0 if need else 2
    assert float(planned["usd_per_month"]["expected"]) == pytest.approx(730 * (held * 3.60 + rented * 6.88), abs=1)
    assert [step["gpus"] for step in plan["steps"]] == ([held] if held else [])
    if held:
        spent = (held * 3.60 + rented * 6.88) * 730
        assert float(plan["hindsight"]["usd_per_month"]) == pytest.approx(spent, abs=1)
    assert shares in notes
    assert f"the best constant number, {regrets}" in notes
    assert "36 months is sold as whole machines of 8 GPUs: all of them are paid for" in notes


def test_an_old_price_of_a_term_is_no_recommendation(
    gpubroker: Gpubroker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """181 days: the machine of the term and its rent are old, what is left is the marketplace."""
    plan, notes = plan_of_half_a_day(gpubroker, write, monkeypatch, 181)
    assert (plan["choices"], plan["baseline_gpus"]) == ([], 0)
    assert "not used: aws/us-east-1 p5, 36 months at $3.60 per GPU-hour, 0.52 of its own price" in notes
    assert "ask for a quote" in notes
    assert "GPU 4 in 100%, GPU 5 in 50% of the hours" in notes
    assert plan["sensitivity"][-1] == {"ratio": 1.0, "baseline_gpus": 4}, "needed in every hour: up to the rent itself"


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("", (), "empty"),
        ("1\n\n2\n", (), ":2"),
        (DAILY, ("--ratio", "0"), "--ratio"),
        (DAILY, ("--assume", "watt=700"), "did you mean 'watts'"),
        (DAILY, ("--assume", "watts=much"), "--assume watts: expected a number, 0 to 100M; got 'much'"),
        (DAILY, ("--assume", "pue=0"), "--assume pue"),
        (DAILY, ("--ratio", "0.5", "--reserved-price", "1"), "--ratio"),
        (DAILY, ("--term", "1y"), "--term"),
        (DAILY, ("--spot-share", "70"), "spot share"),
        (DAILY, ("--pue", "0"), "--pue"),
        (DAILY, ("--own-price", "free"), "--own-price"),
        (DAILY, ("--where", "gpu=L4"), "L4"),
        (DAILY, ("--where", "provider=nobody"), "nobody"),
        (DAILY, ("--from-history",), "--from-history"),
    ],
)
def test_bad_input_ends_with_a_sentence(
    gpubroker: Gpubroker, write: Write, text: str, arguments: tuple[str, ...], says: str
) -> None:
    done = gpubroker("capacity", "plan", "--demand", f"H100={write('x.csv', text)}", *arguments)
    assert done.code == 2
    assert says in done.err


def test_without_demand_or_a_price_it_says_what_to_give(gpubroker: Gpubroker, write: Write) -> None:
    nothing = gpubroker("capacity", "plan")
    assert nothing.code == 2
    assert "--demand" in nothing.err
    unknown = gpubroker("capacity", "plan", "--demand", write("our_cards.csv", DAILY), "--ratio", "0.5")
    assert unknown.code == 2
    assert "--on-demand-price our_cards=" in unknown.err


@pytest.mark.system
def test_a_year_of_ten_accelerators(gpubroker: Gpubroker, write: Write) -> None:
    names = ["H100", "A100", "A100-80GB", "L4", "T4", "A10G", "V100", "L40S", "H200", "RTX4090"]
    rows = (",".join(str(50 + (hour * (7 + i) % 97) + hour // 200) for i in range(10)) for hour in range(8760))
    fleet = write("fleet.csv", ",".join(names) + "\n" + "\n".join(rows) + "\n")
    done = gpubroker("capacity", "plan", "--demand", fleet, "--on-demand-price", "3", "--ratio", "0.6", "--json")
    assert done.code == 0
    assert len(done.json["plans"]) == 10


def test_a_document_is_kept_with_what_it_proves(gpubroker: Gpubroker, tmp_path: Path) -> None:
    invoice, back = tmp_path / "invoice.pdf", tmp_path / "back.pdf"
    invoice.write_bytes(b"%PDF 9000")
    owned = ("capacity", "add", "owned", "H100:8", "--price", "9000", "--term", "1y")
    added = gpubroker(*owned, "--proof", str(invoice), "--json").json
    assert added["proof"] == sha256(b"%PDF 9000").hexdigest()
    check("capacity-proof", gpubroker("capacity", "proof", "1", "--to", str(back), "--json").json)
    assert (back.read_bytes(), back.stat().st_mode & 0o777) == (b"%PDF 9000", 0o600)
    assert gpubroker("capacity", "proof", "1", "--to", str(back)).code == 2, "nothing is overwritten"
    assert gpubroker(*owned).code == 0
    assert "without a document" in gpubroker("capacity", "proof", "2", "--to", str(tmp_path / "c")).err
    invoice.write_bytes(b"")
    for wrong in (str(invoice), str(tmp_path), str(tmp_path / "none")):
        assert gpubroker(*owned, "--proof", wrong).code == 2
    assert len(gpubroker("capacity", "list", "--offline", "--json").json["recorded"]) == 2


def test_a_checklist_says_what_a_person_does(gpubroker: Gpubroker) -> None:
    found = gpubroker("capacity", "checklist", "crusoe", "--json").json
    assert (found["provider"], found["sells"]) == ("crusoe", [])
    assert any("--proof FILE" in step["command"] for step in found["steps"])
