"""`gpubroker prices import`."""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.core.market.accelerators import accelerator_names
from tests.fakes.catalogues import OURS_COLUMNS, OURS_ROWS, SKYPILOT_COLUMNS, SKYPILOT_ROWS, table

VMS = table(SKYPILOT_COLUMNS, SKYPILOT_ROWS)


def ago(**time: float) -> str:
    return (datetime.now(UTC) - timedelta(**time)).isoformat()


@pytest.fixture
def vms(write: Callable[[str, str], Path]) -> Path:
    return write("vms.csv", VMS)


def of(gpubroker: Any, provider: str) -> list[dict[str, Any]]:
    offers: list[dict[str, Any]] = gpubroker("offers", "-w", f"provider={provider}", "--all", "--json").json["offers"]
    return [offer for offer in offers if offer["source"].startswith("csv:")]


def test_a_file_becomes_offers_as_of_its_own_date(gpubroker: Any, vms: Path) -> None:
    os.utime(vms, (1_790_000_000, 1_790_000_000))
    done = gpubroker("prices", "import", vms, "--provider", "aws", "--json")
    assert done.code == 0
    assert done.json["layout"] == "skypilot"
    assert (done.json["offers_seen"], done.json["offers_changed"], done.json["rows_skipped"]) == (8, 8, {})
    assert (done.json["as_of"], done.json["as_of_from"]) == ("2026-09-21T14:13:20Z", "file")
    offers = of(gpubroker, "aws")
    assert len(offers) == 8
    assert {offer["as_of"] for offer in offers} == {"2026-09-21T14:13:20Z"}
    assert {offer["source"] for offer in offers} == {"csv:skypilot"}
    assert {offer["stale"] for offer in offers} == {True}
    assert {offer["reference"] for offer in offers} == {False}


def test_the_same_file_again_changes_nothing(gpubroker: Any, vms: Path) -> None:
    first = gpubroker("prices", "import", vms, "--provider", "aws", "--json").json
    before = of(gpubroker, "aws")
    again = gpubroker("prices", "import", vms, "--provider", "aws", "--json").json
    assert (first["offers_changed"], again["offers_changed"]) == (8, 0)

    def plain(offers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in offer.items() if key != "age_seconds"} for offer in offers]

    assert plain(of(gpubroker, "aws")) == plain(before)


def test_a_newer_file_replaces_what_was_imported_of_that_provider_and_nothing_else(
    gpubroker: Any, vms: Path, write: Callable[[str, str], Path]
) -> None:
    quote = write("quote.csv", table(OURS_COLUMNS, OURS_ROWS))
    assert gpubroker("prices", "import", quote, "--provider", "acme").code == 0
    assert gpubroker("prices", "import", vms, "--provider", "aws", "--dated", ago(days=2)).code == 0
    newer = write("newer.csv", table(SKYPILOT_COLUMNS, SKYPILOT_ROWS[2:4]))
    done = gpubroker("prices", "import", newer, "--provider", "aws", "--dated", ago(days=1), "--json").json
    assert (done["offers_seen"], done["offers_changed"]) == (3, 5)
    assert {o["instance_type"] for o in of(gpubroker, "aws") if o["availability"] != "unavailable"} <= {
        "p5.48xlarge",
        "g6.xlarge",
    }
    assert len(of(gpubroker, "acme")) == 4


def test_files_imported_one_after_the_other_make_the_history_that_their_dates_say(
    gpubroker: Any, write: Callable[[str, str], Path]
) -> None:
    def row(price: str) -> list[str]:
        return [*SKYPILOT_ROWS[3][:6], price, "", *SKYPILOT_ROWS[3][8:]]

    now = datetime.now(UTC).replace(microsecond=0)
    days = {days_ago: (now - timedelta(days=days_ago)).isoformat() for days_ago in (9, 7, 4, 2)}
    for days_ago, rows in ((9, [row("1.0")]), (7, [row("2.0")]), (4, SKYPILOT_ROWS[2:3]), (2, [row("3.0")])):
        file = write("vms.csv", table(SKYPILOT_COLUMNS, rows))
        assert gpubroker("prices", "import", file, "--provider", "aws", "--dated", days[days_ago]).code == 0
    history = ("prices", "history", "--gpu", "L4:1", "-w", "provider=aws", "--last", "10d", "--json")
    (series,) = [s for s in gpubroker(*history).json["series"] if s["source"].startswith("csv:")]
    points = [(datetime.fromisoformat(p["at"]), p["price_per_hour"]) for p in series["prices"]]
    moments = [datetime.fromisoformat(day) for day in days.values()]
    assert points == list(zip(moments, ["1.00", "2.00", None, "3.00"], strict=True))


def test_of_rows_with_dates_of_their_own_the_newest_counts_and_the_others_are_told(
    gpubroker: Any, write: Callable[[str, str], Path]
) -> None:
    def row(price: str, days: float) -> list[str]:
        told = {"price_per_hour": price, "as_of": ago(days=days)}
        return [told.get(column, cell) for column, cell in zip(OURS_COLUMNS, OURS_ROWS[0], strict=True)]

    file = write("quotes.csv", table(OURS_COLUMNS, [row("20", 2), row("22", 1), row("20", 3)]))
    done = gpubroker("prices", "import", file, "--provider", "acme", "--json").json
    assert (done["offers_seen"], done["rows_skipped"]) == (1, {"older_row": 2})
    assert "import one file for each moment, with --dated" in done["samples"]["older_row"]
    (offer,) = of(gpubroker, "acme")
    assert offer["price_per_hour"] == "22.00"


def test_an_older_file_does_not_rewrite_what_is_known(gpubroker: Any, vms: Path) -> None:
    assert gpubroker("prices", "import", vms, "--provider", "aws", "--dated", ago(days=1)).code == 0
    done = gpubroker("prices", "import", vms, "--provider", "aws", "--dated", ago(days=3))
    assert done.code == 2
    assert "were imported before" in done.err
    assert "import the oldest file first" in done.err
    assert "--dated" in done.err


REALMS = ["eu-frankfurt-2", "ap-chiyoda-1", "me-dcc-muscat-1", "eu-jovanovac-1"]


@pytest.mark.parametrize(
    ("provider", "closed", "usual"),
    [
        (
            "azure",
            ["usgovvirginia", "chinaeast2", "attatlanta1", "perth", "eastus2euap"],
            ["eastus2", "centralus", "germanywestcentral"],
        ),
        (
            "aws",
            ["us-gov-west-1", "cn-north-1", "us-east-1-atl-1a", "us-east-1-wl1-bos-wlz-1"],
            ["us-east-1", "eu-west-3"],
        ),
        ("gcp", ["u-germany-northeast1"], ["us-central1", "europe-west4-a"]),
        ("oci", ["us-gov-ashburn-1", "us-langley-1", *REALMS], ["us-ashburn-1", "eu-madrid-3"]),
    ],
)
def test_places_that_are_closed_to_an_ordinary_account_are_listed_and_not_launched_in(
    gpubroker: Any, write: Callable[[str, str], Path], provider: str, closed: list[str], usual: list[str]
) -> None:
    rows = [["m", "A100", "8", "96", "900", "", "27.2", "9.1", place, ""] for place in [*closed, *usual]]
    file = write("vms.csv", table(SKYPILOT_COLUMNS, rows))
    assert gpubroker("prices", "import", file, "--provider", provider).code == 0
    told = {o["region"]: o for o in of(gpubroker, provider) if o["source"].startswith("csv:")}
    assert {place for place, offer in told.items() if offer["engine"] is None} == set(closed)
    assert {place for place, offer in told.items() if offer["engine"] == "skypilot"} == set(usual)
    assert all(place in told[place]["unavailable_because"] for place in closed)


def test_a_stale_import_is_shown_and_not_launched_on(
    gpubroker: Any, policy: Path, write: Callable[[str, str], Path]
) -> None:
    """The policies let no reference price pass, and a price that is too old is no better."""
    quote = write("vms.csv", table(SKYPILOT_COLUMNS, SKYPILOT_ROWS[3:4]))
    told = gpubroker("prices", "import", quote, "--provider", "vast", "--dated", ago(days=30))
    assert "too old for launches" in told.out
    job = write(
        "job.yaml",
        "name: t\nresources: {accelerators: 'L4:1'}\nconstraints: {providers: [vast]}\nrun: x\nwork: 1h\n"
        "max_duration: 2h\n",
    )
    rejected = gpubroker("plan", job, "--json").json
    assert "stale_price" in str(rejected)


def test_rows_that_make_no_sense_are_counted_with_a_sample(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    row = [
        cell if column != "Price" else "0.0" for column, cell in zip(SKYPILOT_COLUMNS, SKYPILOT_ROWS[2], strict=True)
    ]
    file = write("vms.csv", table(SKYPILOT_COLUMNS, [*SKYPILOT_ROWS, ["p6", "Z900", *row[2:]], row]))
    done = gpubroker("prices", "import", file, "--provider", "aws")
    assert done.code == 0
    assert "1 row skipped, invalid_price: line 8" in done.out
    assert "1 row skipped, unknown_accelerator: line 7" in done.out
    assert gpubroker("prices", "import", file, "--provider", "aws", "--json").json["rows_skipped"] == {
        "invalid_price": 1,
        "unknown_accelerator": 1,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (VMS.replace("InstanceType", "Instancetyp"), "did you mean 'Instancetyp'?"),
        (VMS.replace(",Price,", ",PriceEUR,"), "US dollars"),
        ("", "empty"),
        (table(SKYPILOT_COLUMNS, []), "no rows"),
        (table(SKYPILOT_COLUMNS, [["x", "Z900", "1", "", "", "", "1", "", "r", ""]]), "no row can be used"),
    ],
)
def test_a_file_of_no_use_is_refused_and_stores_nothing(
    gpubroker: Any, write: Callable[[str, str], Path], text: str, says: str
) -> None:
    file = write("odd.csv", text)
    done = gpubroker("prices", "import", file, "--provider", "aws")
    assert done.code == 2
    assert says in done.err
    assert str(file) in done.err
    assert of(gpubroker, "aws") == []
    document = gpubroker("prices", "import", file, "--provider", "aws", "--json")
    assert (document.code, document.json["error"]["kind"]) == (2, "invalid_input")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--provider", "aws", "--dated", "2099-01-01"], "which is in the future"),
        (["--provider", "aws", "--dated", "soon"], "expected a date"),
        (["--provider", "sandbox"], "prices can be imported"),
        (["--provider", "owned"], "prices can be imported"),
        (["--provider", "pricebook"], "prices can be imported"),
        (["--provider", "A/b"], "cannot be a provider's name"),
        ([], "--provider"),
    ],
)
def test_a_wrong_option_says_what_was_expected(gpubroker: Any, vms: Path, arguments: list[str], says: str) -> None:
    done = gpubroker("prices", "import", vms, *arguments)
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(("memory", "doubts"), [("768", 1), ("2", 0)])
def test_a_machine_without_gpus_is_judged_by_its_memory_too(
    gpubroker: Any, write: Callable[[str, str], Path], memory: str, doubts: int
) -> None:
    rows = [["m", "", "", "0.5", memory, "", "0.004", "", "us-east-1", ""]]
    done = gpubroker("prices", "import", write("v.csv", table(SKYPILOT_COLUMNS, rows)), "--provider", "aws", "--json")
    assert done.json["offers_suspicious"] == doubts


def test_a_file_that_is_not_there_is_said(gpubroker: Any) -> None:
    done = gpubroker("prices", "import", "none.csv", "--provider", "aws")
    assert done.code == 2
    assert "none.csv" in done.err


def test_a_new_name_that_resembles_a_known_one_is_said(gpubroker: Any, vms: Path) -> None:
    assert gpubroker("prices", "import", vms, "--provider", "acme").err == ""
    done = gpubroker("prices", "import", vms, "--provider", "acmee")
    assert done.code == 0
    assert "did you mean 'acme'?" in done.err


def test_every_door_takes_what_others_call_a_provider(
    gpubroker: Any, write: Callable[[str, str], Path], vms: Path
) -> None:
    gpubroker("prices", "import", vms, "--provider", "Oracle-Cloud")
    assert of(gpubroker, "oci")
    assert len(of(gpubroker, "oracle")) == len(of(gpubroker, "oci"))
    for line in ("constraints: {providers: [oracle]}", "resources: {cloud: Oracle}", "resources: {infra: oracle}"):
        plan = gpubroker("plan", write("job.yaml", f"name: t\n{line}\nrun: x\n"))
        assert "no provider" not in plan.out + plan.err
    holding = ("H100:8", "--provider", "oracle", "--site", "us-ashburn-1", "--term", "1y", "--price", "9")
    assert gpubroker("capacity", "add", "reservation", *holding, "--json").json["provider"] == "oci"
    (misspelled,) = gpubroker(
        "capacity", "add", "reservation", *holding[:4], "eu-wset-1", *holding[5:]
    ).err.splitlines()
    assert misspelled == "warning: no offer of oci is in 'eu-wset-1'; did you mean 'eu-west-1'?"
    assert gpubroker("prices", "poll", "--provider", "Sand-box").code == 0
    cases = "policies: p.yaml\ncases: [{name: c, expect: deny, offer: {provider: Oracle, price: $1}}]\n"
    write("p.yaml", "version: 1\nguardrails: [{name: g, allowed_locations: {providers: {deny: oci}}}]\n")
    assert "1 case passed" in gpubroker("policy", "test", write("p.test.yaml", cases)).out


def test_imported_prices_are_compared_with_the_price_book_on_a_new_store(
    gpubroker: Any, write: Callable[[str, str], Path]
) -> None:
    rows = [
        "8x_H100,H100,8,128,1600,,0.605,,US,",
        "8x_B200,B200,8,128,1600,,40.0,60.0,US,",
        "1x_RTX3090,RTX3090,1,16,64,,0.006,,US,",
        "1x_tpu,tpu-v4,1,16,64,,1.5,,US,",
        "2x_A40,A40,2,18,100,,0.88,,US,",
        "cpu-8,,,8,32,,0.01,,US,",
    ]
    catalogue = write("cheap.csv", "\n".join([",".join(SKYPILOT_COLUMNS), *rows]))
    done = gpubroker("prices", "import", catalogue, "--provider", "acme")
    assert "5 offers in doubt, not used for launches: gpubroker offers --where price_kind=suspicious" in done.out
    doubts = {(o["instance_type"], o["capacity_type"]): o["doubt"] for o in of(gpubroker, "acme")}
    assert doubts == {
        ("8x_H100", "on_demand"): "too_low",
        ("8x_B200", "on_demand"): None,
        ("8x_B200", "spot"): "above_on_demand",
        ("1x_RTX3090", "on_demand"): "too_low",  # compared with the RTX 4090
        ("1x_tpu", "on_demand"): "uncompared",
        ("2x_A40", "on_demand"): None,
        ("cpu-8", "on_demand"): "too_low",
    }
    gpubroker("prices", "accept", "acme")
    again = gpubroker("prices", "import", catalogue, "--provider", "acme", "--json").json
    assert again["offers_suspicious"] == 0


@pytest.mark.parametrize("price", ["0.0051", "150"])
def test_no_absurd_price_of_any_model_is_believed(
    gpubroker: Any, write: Callable[[str, str], Path], price: str
) -> None:
    rows = [f"m{n},{model},1,16,64,,{price},,US," for n, model in enumerate(accelerator_names())]
    catalogue = write("any.csv", "\n".join([",".join(SKYPILOT_COLUMNS), *rows]))
    gpubroker("prices", "import", catalogue, "--provider", "acme")
    assert [offer["accelerator"] for offer in of(gpubroker, "acme") if not offer["doubt"]] == []


@pytest.mark.parametrize("seed", range(3))
def test_no_imported_price_that_nothing_compares_with_is_planned_with_unasked(
    gpubroker: Any, write: Callable[[str, str], Path], seed: int
) -> None:
    chance = random.Random(seed)
    models = chance.sample(sorted(accelerator_names()), 12)
    rows = [
        f"m{n},{model},1,16,64,,{10 ** chance.uniform(-3, 4):.4f},{10 ** chance.uniform(-3, 4):.4f},US,"
        for n, model in enumerate(models * 2)
    ]
    catalogue = write("any.csv", "\n".join([",".join(SKYPILOT_COLUMNS), *rows]))
    gpubroker("prices", "import", catalogue, "--provider", "acme")
    offers = of(gpubroker, "acme")
    suspicious = {offer["pool"] for offer in offers if offer["doubt"]}
    assert len(offers) == 48
    assert suspicious
    for model in models:
        plan = gpubroker("plan", "--gpu", f"{model}:1", "--json", "--", "x").json
        shown = {placement["offer"]["pool"] for placement in (*plan["placements"], *plan["estimate"])}
        assert shown & suspicious == set()
        refused = {reason["reason"]: reason["count"] for reason in plan["reasons"]}
        own = sum(offer["accelerator"] == model and offer["pool"] in suspicious for offer in offers)
        assert refused.get("suspect_offer", 0) + refused.get("wrong_capacity_type", 0) >= own
