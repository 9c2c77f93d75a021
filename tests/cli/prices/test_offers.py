"""`gpubroker offers`: filters, order, groups, and what each row says of itself."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from broker.app.market import offer_rows
from broker.app.market.offer_documents import OfferList, OfferResult, OfferRiskList, OfferWithRisk
from broker.app.market.offer_lists import MatchingOffers, group_offers
from broker.cli.prices import offers
from broker.cli.prices import offers as view
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Availability, CapacityType, Doubt, Offer
from broker.core.market.price_basis import Standing
from broker.core.values.money import Money
from broker.placement.pricing.hazard import HazardBasis, ObservedTime, Risk

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

FIELDS = {
    "provider", "region", "zone", "instance_type", "accelerator", "count", "capacity_type", "term_months",
    "price_per_hour", "price_per_gpu_hour", "availability", "score", "interruption_rate", "as_of", "source", "engine",
    "reference", "money", "age_seconds", "stale",
}  # fmt: skip


def offer(price: str | None = "8", **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": None, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.ON_DEMAND, "price": None if price is None else Money.usd(price),
        "as_of": NOW - timedelta(minutes=5), "source": "api", "max_age": timedelta(hours=1),
        "availability": Availability.AVAILABLE,
    }  # fmt: skip
    return Offer(**(fields | changed))


def matching(rows: list[offer_rows.ListedOffer]) -> MatchingOffers:
    return MatchingOffers(rows, NOW, 5, 0, {}, {})


def shown_of(rows: list[offer_rows.ListedOffer]) -> OfferList:
    return OfferList.from_parts(matching(rows), offers=rows)


def test_a_price_in_doubt_has_no_discount_and_gives_none() -> None:
    spot = {"capacity_type": CapacityType.SPOT, "source": "spot"}
    there = [
        offer("8"),
        offer("1", doubt=Doubt.TOO_HIGH),
        offer("2", **spot),
        offer("40", doubt=Doubt.TOO_HIGH, **spot),
    ]
    assert [row.discount for row in offer_rows.rows(there, NOW)] == [None, None, 0.75, None]


def offers_of(gpubroker: Any, *arguments: str) -> list[Any]:
    done = gpubroker("offers", "--all", "--json", *arguments)
    assert done.code == 0
    found: list[Any] = done.json["offers"]
    return found


def test_a_fresh_install_shows_a_market(gpubroker: Any) -> None:
    document = gpubroker("offers", "--all", "--json").json
    listed = document["offers"]
    assert len(listed) == document["matching"] == document["total"] > 100
    assert set(listed[0]) >= FIELDS
    assert {row["source"] for row in listed} >= {"pricebook", "owned"}
    assert all(row["reference"] for row in listed if row["source"] == "pricebook")
    assert all(row["as_of"].endswith("Z") for row in listed)
    priced = [row for row in listed if row["price_per_gpu_hour"]]
    standard = [row for row in priced if row["age_seconds"] < 60 * 86_400]
    prices = [
        (row["engine"] is None, row["term_months"] is not None, Decimal(row["price_per_gpu_hour"])) for row in standard
    ]
    assert prices == sorted(prices), "first where jobs can start; what is bought for a term comes last"


@pytest.mark.parametrize(
    ("changed", "standing"),
    [
        ({}, Standing.LAUNCHABLE),
        ({"availability": Availability.UNKNOWN}, Standing.LAUNCHABLE),
        ({"availability": Availability.UNAVAILABLE}, Standing.SOLD_OUT),
        ({"availability": Availability.NO_QUOTA}, Standing.SOLD_OUT),
        ({"engine": None}, Standing.LISTED),
        ({"as_of": NOW - timedelta(hours=2)}, Standing.STALE),
        ({"as_of": NOW - timedelta(days=181), "reference": True}, Standing.OLD),
    ],
)
def test_offers_where_jobs_can_start_come_first(changed: dict[str, Any], standing: Standing) -> None:
    (row,) = offer_rows.rows([offer(**{"engine": "skypilot", **changed})], NOW)
    assert row.standing is standing
    dear = offer_rows.rows([offer("80", engine="skypilot")], NOW)[0]
    assert min(row, dear, key=offer_rows.sort_key(OfferOrder.GPU_PRICE)) is (
        row if standing is Standing.LAUNCHABLE else dear
    )


def test_the_heading_promises_no_engine_where_there_is_none(gpubroker: Any) -> None:
    for provider, has_engine in (("aws", True), ("verda", False)):
        done = gpubroker("offers", "--where", f"provider={provider}").out
        assert done.startswith("First where an engine runs jobs") == has_engine
        assert done.startswith("No engine runs jobs on these offers") != has_engine


def test_offers_on_which_an_engine_runs_jobs_come_first(gpubroker: Any) -> None:
    """Each part, those offers and the others, begins with its cheapest GPU-hour."""
    done = gpubroker("offers", "--gpu", "H100", "--offline", "--limit", "100")
    lines = [line for line in done.out.splitlines() if "H100:" in line and "on-demand" in line]
    # Only rows of reference prices (``ref``), whose two cells after the capacity type are: runs jobs, $ per GPU-hour.
    parts = [re.split(r"on-demand +", line)[1].split()[:2] for line in lines if "  ref" in line]
    reached, others = ([float(usd[1:]) for word, usd in parts if word == answer] for answer in ("yes", "no"))
    assert [word for word, _ in parts] == ["yes"] * len(reached) + ["no"] * len(others)
    assert reached == sorted(reached)
    assert others[0] < reached[-1]


def test_an_unknown_key_that_is_an_option_names_it(gpubroker: Any) -> None:
    assert "unknown key 'gpu'; write --gpu H100" in gpubroker("offers", "--where", "gpu=H100").err
    assert "write --gpu" not in gpubroker("jobs", "list", "--where", "gpu=H100").err


def test_filters(gpubroker: Any) -> None:
    assert {(o["accelerator"], o["count"]) for o in offers_of(gpubroker, "--gpu", "nvidia-h100:8")} == {("H100", 8)}
    assert {o["accelerator"] for o in offers_of(gpubroker, "-g", "H100", "-g", "L4")} == {"H100", "L4"}
    assert {o["accelerator"] for o in offers_of(gpubroker, "--gpu", "RTX 4090:1")} == {"RTX4090"}
    assert {o["accelerator"] for o in offers_of(gpubroker, "--gpu", "cpu")} == {None}
    assert {o["capacity_type"] for o in offers_of(gpubroker, "--spot", "-w", "capacity_type=owned")} == {
        "spot",
        "owned",
    }
    assert {o["capacity_type"] for o in offers_of(gpubroker, "-w", "capacity_type=reserved")} == {"reserved"}
    assert {o["provider"] for o in offers_of(gpubroker, "-w", "provider=a[wz]*")} == {"aws", "azure"}
    assert all(o["region"].startswith("us-") for o in offers_of(gpubroker, "-w", "region=us-*"))
    cheap = offers_of(gpubroker, "--max-price", "$1", "-w", "capacity-type=on-demand")
    assert cheap
    assert all(Decimal(o["price_per_gpu_hour"]) <= 1 for o in cheap)
    assert len(offers_of(gpubroker, "--limit", "3")) == 3


def test_only_what_can_be_had_and_only_what_is_live(gpubroker: Any) -> None:
    kinds = {o["availability"] for o in offers_of(gpubroker, "-w", "provider=sandbox", "--gpu", "H100")}
    assert {"available", "unavailable"} & kinds
    available = offers_of(gpubroker, "-w", "provider=sandbox", "--available")
    assert {o["availability"] for o in available} == {"available"}
    assert offers_of(gpubroker, "-w", "price_kind=live,provider=aws") == []
    assert {o["source"] for o in offers_of(gpubroker, "-w", "price_kind=live")} == {"owned"}
    assert {o["instance_type"] for o in offers_of(gpubroker, "-w", "instance_type=p5.48*")} == {"p5.48xlarge"}
    assert offers_of(gpubroker, "-w", "instance_type=p5") == []


def test_groups_by_nothing_are_refused(gpubroker: Any) -> None:
    done = gpubroker("offers", "--by", ",")
    assert done.code == 2
    assert "expected one or more of gpu, machine" in done.err


def test_simulated_offers_only_when_they_are_asked_for(gpubroker: Any) -> None:
    simulated = offers_of(gpubroker, "-w", "provider=sandbox")
    assert {o["money"] for o in simulated} == {"sandbox"}
    assert all(o["money"] != "sandbox" for o in offers_of(gpubroker))
    document = gpubroker("offers", "--all", "--json").json
    assert document["total"] == document["matching"]
    shown = gpubroker("offers", "-w", "provider=sandbox", "-n", "2")
    assert "simulated" in shown.out


def test_the_footer_says_how_much_is_not_shown(gpubroker: Any) -> None:
    done = gpubroker("offers", "--all", "--spot", "-n", "2")
    total = gpubroker("offers", "--json").json["total"]
    matching = len(offers_of(gpubroker, "--spot"))
    assert f"2 of {matching} matching offers shown ({total} known); use --all" in done.out
    assert "reference price" in done.out
    assert "0 of" in gpubroker("offers", "--gpu", "H100:7").out


def test_what_is_meant_by_a_wrong_name(gpubroker: Any) -> None:
    assert "did you mean 'aws'" in gpubroker("offers", "-w", "provider=awss").err
    assert "did you mean 'H100'" in gpubroker("offers", "--gpu", "H10").err


def test_groups(gpubroker: Any) -> None:
    document = gpubroker("offers", "--gpu", "H100", "--by", "gpu,provider", "--json").json
    groups = document["groups"]
    assert {group["gpu"] for group in groups} == {"H100"}
    assert len({group["provider"] for group in groups}) == len(groups)
    assert sum(group["offers"] for group in groups) == document["matching"]
    cheapest = [Decimal(group["cheapest"]["price_per_gpu_hour"]) for group in groups]
    assert cheapest == sorted(cheapest)
    assert "cheapest" in gpubroker("offers", "--by", "capacity-type").out


@pytest.mark.parametrize("sort", ["gpu-price", "price", "provider", "gpu", "age", "interruptions"])
def test_every_order(gpubroker: Any, sort: str) -> None:
    assert len(offers_of(gpubroker, "--sort", sort)) > 100


def test_spot_saves_against_on_demand_of_the_same_machine_only() -> None:
    spot = offer("2", capacity_type=CapacityType.SPOT)
    elsewhere = offer("2", capacity_type=CapacityType.SPOT, region="eu-west-1")
    rows = offer_rows.rows([spot, elsewhere, offer("8"), offer("10", source="book")], NOW)
    assert [row.discount for row in rows] == [0.75, None, None, None]


def test_age_and_staleness() -> None:
    fresh, old, book = offer_rows.rows(
        [offer(), offer(as_of=NOW - timedelta(hours=2)), offer(as_of=NOW - timedelta(days=900), reference=True)], NOW
    )
    assert [fresh.stale, old.stale, book.stale] == [False, True, True], "one meaning: too old to rely on"
    spot: dict[str, Any] = {"capacity_type": CapacityType.SPOT, "reference": True}
    listed = [offer(as_of=NOW - timedelta(days=days), **spot) for days in (60, 61)]
    assert [row.stale for row in offer_rows.rows(listed, NOW)] == [False, True]
    assert old.age == timedelta(hours=2)


def test_offers_without_a_price_come_last_and_have_none_in_json() -> None:
    rows = sorted(
        offer_rows.rows([offer(None), offer("80"), offer("8")], NOW), key=offer_rows.sort_key(OfferOrder.GPU_PRICE)
    )
    assert [row.offer.price for row in rows] == [Money.usd("8"), Money.usd("80"), None]
    assert OfferResult.of(rows[-1]).price_per_hour is None


@pytest.mark.parametrize("name", ["gpu-price", "price", "age", "interruptions"])
def test_offers_of_one_price_have_one_order(name: str) -> None:
    rows = offer_rows.rows([offer("8", zone=zone, source=source) for zone in "ab" for source in "xy"], NOW)
    mixed = [rows[2], rows[0], rows[3], rows[1]]
    assert sorted(mixed, key=offer_rows.sort_key(OfferOrder(name))) == rows


def test_what_is_sold_out_is_never_the_cheapest_of_a_group() -> None:
    out = offer("1", availability=Availability.UNAVAILABLE, zone="a")
    (group,) = group_offers(offer_rows.rows([out, offer("8", zone="b")], NOW), ["gpu"])
    assert group.offers == 2
    assert group.cheapest is not None
    assert group.cheapest.price_per_hour == Money.usd("8")
    (nothing,) = group_offers(offer_rows.rows([out], NOW), ["gpu"])
    assert nothing.cheapest is None


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    console = Console(width=width, force_terminal=True, record=True, file=StringIO())
    rows = offer_rows.rows([offer(region="a-region-with-a-long-name", zone=f"zone-{n}") for n in range(3)], NOW)
    for part in view.offer_lines(console, shown_of(rows)):
        console.print(part, highlight=False)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    header = lines[0]
    assert all(title in header for title in ("provider", "GPU", "purchase type", "$/GPU-h"))
    assert ("source" in header) == (width == 140)
    assert "note" in header
    assert all("live" in line for line in lines[2:5])
    assert any("hidden columns" in line for line in lines) == (width < 140)


def test_eighty_columns_have_room_for_the_age_and_the_kind_of_source() -> None:
    console = Console(width=80, force_terminal=True, record=True, file=StringIO())
    term: dict[str, Any] = {"capacity_type": CapacityType.RESERVED, "term_months": 36, "accelerator": "RTX4090"}
    book = offer(region="north-america", reference=True)
    rows = offer_rows.rows([offer(provider="hyperstack", count=1, **term), book], NOW)
    for part in view.offer_lines(console, shown_of(rows)):
        console.print(part, highlight=False)
    header, _, live, listed, *_ = console.export_text().splitlines()
    assert header.split()[-2:] == ["age", "note"]
    assert live.split()[-3:] == ["5", "min", "live"]
    assert listed.split()[-3:] == ["5", "min", "ref"]


def test_what_was_typed_is_quoted_and_a_region_that_is_none_is_said(gpubroker: Any) -> None:
    assert "Value error" not in gpubroker("offers", "--sort", "colour").err
    assert "got 'cheap'" in gpubroker("offers", "--max-price", "cheap").err
    wrong = gpubroker("offers", "-w", "region=us-esat-1")
    assert wrong.code == 2
    assert "did you mean 'us-east-1'" in wrong.err


@pytest.mark.parametrize("width", [80, 140])
def test_nothing_of_a_risk_is_cut_off_where_the_terminal_is_narrow(width: int) -> None:
    far = offer(zone="z" * 40, accelerator="A100-80GB", count=8)
    risk = Risk(0.21, 2.0, (0.2,) * 6, HazardBasis.FAMILY, 0.15, family=ObservedTime(12_345.0, 1_234))
    (row,) = offer_rows.rows([far], NOW)
    found = OfferRiskList.from_parts(matching([row]), offers=[OfferWithRisk.of(row, risk=risk)])
    console = Console(width=width, record=True, file=StringIO())
    for part in offers.offer_lines(console, found):
        console.print(part)
    shown = console.export_text()
    assert shown.count("z") == 40
    for word in ("A100-80GB:8", "on-demand", "0.21", "similar", "1,234", "12,345", "live"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= width


def test_risk_is_shown_with_what_it_rests_on(gpubroker: Any) -> None:
    spot = gpubroker("offers", "--all", "--gpu", "H100:8", "--spot", "--risk", "--json")
    risk = spot.json["offers"][0]["risk"]
    assert set(risk) == {
        "interruptions_per_hour", "mean_life", "left_after_3_hours",
        "time_to_return", "by_age", "basis", "prior_per_hour", "own", "family",
    }  # fmt: skip
    assert (risk["basis"], risk["own"]) == ("assumed", {"hours": 0, "losses": 0})
    assert risk["mean_life"] == pytest.approx(3600 / risk["interruptions_per_hour"])
    shown = gpubroker("offers", "--gpu", "H100:8", "--risk", "--sort", "interruptions")
    assert "assumed" in shown.out
    assert "interruptions/h" in shown.out
    both = gpubroker("offers", "--risk", "--by", "gpu")
    assert both.code == 2
    assert "--by" in both.err


def test_old_reference_prices_are_hidden_and_counted(gpubroker: Any) -> None:
    """Those of the price book of June 2024 are old on any day on which this runs."""
    shown, every = gpubroker("offers", "-n", "500"), gpubroker("offers", "--all")
    assert "old reference prices hidden" in shown.out
    assert "hidden" not in every.out
    hidden = int(shown.out.split(" old reference prices hidden")[0].split()[-1])
    document = gpubroker("offers", "--json").json
    assert document["old_hidden"] == hidden
    assert len(offers_of(gpubroker)) == len(document["offers"]) + hidden


def test_what_nobody_offers_has_a_hint_of_what_is_near(gpubroker: Any) -> None:
    for asked, name, near in (("A100-80GB-1of3", "A100-80GB-1of3", "A100-80GB"), ("H100:3", "H100:3", "H100:8")):
        done = gpubroker("offers", "--gpu", asked)
        assert f"hint: no {name} is offered; near it: " in done.out
        assert near in done.out
    shares = gpubroker("offers", "--gpu", "L4:0.25").out
    assert all(f"no L4-1of{parts} is offered; near it: L4," in shares for parts in (4, 3, 2))
    assert "1.5 cards cannot be requested" in gpubroker("offers", "--gpu", "L4:1.5").err
    assert "expected a whole number" in gpubroker("offers", "--gpu", "L4:2+").err
    document = gpubroker("offers", "--gpu", "A100-80GB-1of3", "--json").json
    assert document["nearby"]["A100-80GB-1of3"][0] == "A100-80GB"
    assert "nearby" in gpubroker("offers", "--gpu", "H100", "--json").json
    assert "did you mean 'A10-1of6'" in gpubroker("offers", "--gpu", "A10-2of12").err


def test_nothing_is_near_where_a_filter_leaves_nothing(gpubroker: Any) -> None:
    assert "hint" not in gpubroker("offers", "--gpu", "H100", "--max-price", "$0.01").out
