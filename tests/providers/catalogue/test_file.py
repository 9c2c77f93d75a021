"""Catalogue files: layouts, traps, and what is refused."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.catalogue.file import CatalogueFile
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.catalogues import (
    GPUHUNT_COLUMNS,
    GPUHUNT_ROWS,
    OURS_COLUMNS,
    OURS_ROWS,
    SKYPILOT_COLUMNS,
    SKYPILOT_ROWS,
    gpu_info,
    table,
)

DATED = datetime(2026, 11, 20, tzinfo=UTC)


def opened(tmp_path: Path, text: str | bytes, provider: str = "acme") -> CatalogueFile:
    file = tmp_path / "prices.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return CatalogueFile(file, provider=provider, dated=DATED, now=NOW)


def read(tmp_path: Path, text: str | bytes, provider: str = "acme") -> tuple[list[Offer], list[SkippedRow]]:
    rows = list(opened(tmp_path, text, provider).offers(OfferQuery()))
    return [r for r in rows if isinstance(r, Offer)], [r for r in rows if isinstance(r, SkippedRow)]


class CatalogueContract(ProviderContract):
    """A file is no provider that is polled, and keeps every promise of one all the same."""

    plugin = "csv"


class TestSkypilotsLayout(CatalogueContract):
    @pytest.fixture
    def provider(self, clock: ManualClock, tmp_path: Path) -> CatalogueFile:
        return opened(tmp_path, table(SKYPILOT_COLUMNS, SKYPILOT_ROWS), "aws")


class TestGpuhuntsLayout(CatalogueContract):
    @pytest.fixture
    def provider(self, clock: ManualClock, tmp_path: Path) -> CatalogueFile:
        return opened(tmp_path, table(GPUHUNT_COLUMNS, GPUHUNT_ROWS), "azure")


class TestOurLayout(CatalogueContract):
    @pytest.fixture
    def provider(self, clock: ManualClock, tmp_path: Path) -> CatalogueFile:
        return opened(tmp_path, table(OURS_COLUMNS, OURS_ROWS))


def test_skypilots_rows_are_exact_and_a_list_price_holds_for_the_region(tmp_path: Path) -> None:
    offers, skipped = read(tmp_path, table(SKYPILOT_COLUMNS, SKYPILOT_ROWS), "aws")
    found = {(o.instance_type, o.zone, o.capacity_type.value): o.price for o in offers}
    assert found == {
        ("p4d.24xlarge", None, "on_demand"): Money.usd("32.7726"),
        ("p4d.24xlarge", "us-east-1a", "spot"): Money.usd("9.8318"),
        ("p4d.24xlarge", "us-east-1b", "spot"): Money.usd("9.9001"),
        ("p5.48xlarge", None, "on_demand"): Money.usd("98.32"),
        ("g6.xlarge", None, "on_demand"): Money.usd("0.8048"),
        ("g6.xlarge", "eu-west-1c", "spot"): Money.usd("0.3121"),
        ("c6i.large", None, "on_demand"): Money.usd("0.085"),
        ("c6i.large", "us-east-1a", "spot"): Money.usd("0.0331"),
    }
    assert not skipped
    machine = next(o for o in offers if o.instance_type == "p4d.24xlarge")
    assert (machine.accelerator, machine.count, machine.cpus, machine.memory_gib) == ("A100", 8, 96, 1152)
    assert (machine.source, machine.engine, machine.as_of) == ("csv:skypilot", "skypilot", DATED)
    assert next(o for o in offers if o.instance_type == "c6i.large").accelerator is None


def test_an_imported_price_ages_as_a_live_one_and_is_no_reference(tmp_path: Path) -> None:
    offers, _ = read(tmp_path, table(SKYPILOT_COLUMNS, SKYPILOT_ROWS), "aws")
    assert not any(offer.reference for offer in offers)
    assert {(o.capacity_type, o.max_age) for o in offers} == {
        (CapacityType.ON_DEMAND, timedelta(days=7)),
        (CapacityType.SPOT, timedelta(hours=6)),
    }


def test_google_prices_accelerators_apart_from_their_machines(tmp_path: Path) -> None:
    """A row of a GPU alone, and one of an a2 machine without its GPUs, is the price of nothing that can be rented."""
    rows = [
        ["", "A100", "1.0", "", "", gpu_info("A100", 1, 40), "2.933908", "0.88", "us-central1", "us-central1-a"],
        ["a2-highgpu-8g", "", "", "96", "680", "", "5.9", "1.77", "us-central1", "us-central1-a"],
        ["n2-standard-8", "", "", "8", "32", "", "0.388472", "0.09", "us-central1", "us-central1-a"],
        ["", "tpu-v99-32", "1", "", "", "tpu-v99-32", "32.0", "9.6", "us-east1", "us-east1-d"],
    ]
    offers, skipped = read(tmp_path, table(SKYPILOT_COLUMNS, rows), "gcp")
    assert {o.instance_type for o in offers} == {"n2-standard-8"}
    assert Counter(row.reason for row in skipped) == {"part_of_a_machine": 2, "unknown_accelerator": 1}


def test_a_tpu_has_no_instance_type_and_is_a_machine_all_the_same(tmp_path: Path) -> None:
    row = ["", "tpu-v5p-8", "1", "", "", "tpu-v5p-8", "16.8", "", "us-east5", "us-east5-a"]
    offers, skipped = read(tmp_path, table(SKYPILOT_COLUMNS, [row]), "gcp")
    assert [(o.instance_type, o.accelerator, o.count) for o in offers] == [("tpu-v5p-8", "tpu-v5p-8", 1)]
    assert not skipped


def test_a_part_of_an_accelerator_is_that_part_and_is_not_launched(tmp_path: Path) -> None:
    row = ["Standard_NV6ads_A10_v5", "A10", "0.16666", "6", "55", "", "0.454", "0.09", "eastus", ""]
    odd = ["Standard_NV7ads_A10_v5", "A10", "0.7", "6", "55", "", "0.454", "0.09", "eastus", ""]
    offers, skipped = read(tmp_path, table(SKYPILOT_COLUMNS, [row, odd]), "azure")
    assert {(o.machine, o.engine) for o in offers} == {("A10-1of6:1", "skypilot")}
    assert [row.reason for row in skipped] == ["part_of_an_accelerator"]


def test_a_card_with_little_memory_is_a_part_of_one(tmp_path: Path) -> None:
    row = ["g6.xlarge", "us-east-1", "0.805", "4", "16", "1", "L4", "24", "False"]
    columns = ["instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot"]
    offers, _ = read(tmp_path, table(columns, [row, ["g6f.large", *row[1:7], "3", "False"]]), "aws")
    assert [(o.machine, o.engine) for o in offers] == [("L4:1", "skypilot"), ("L4-1of8:1", None)]


def test_gigabytes_under_a_heading_of_mebibytes_change_no_card(tmp_path: Path) -> None:
    """As in SkyPilot's table of RunPod, where an A100 with 80 GB says ``'SizeInMiB': 80``."""
    info = gpu_info("A100 PCIe", 1, 80).replace(str(80 * 1024), "80")
    row = ["1x_A100-80GB_SECURE", "A100-80GB", "1.0", "8.0", "117.0", info, "1.39", "1.39", "CA", "CA-MTL-1"]
    offers, _ = read(tmp_path, table(SKYPILOT_COLUMNS, [row]), "runpod")
    assert {(o.accelerator, o.region, o.zone) for o in offers} == {
        ("A100-80GB", "CA", None),
        ("A100-80GB", "CA", "CA-MTL-1"),
    }


@pytest.mark.parametrize(
    ("count", "gib", "card"),
    [(1, 40, "A100"), (2, 80, "A100"), (4, 160, "A100"), (1, 80, "A100-80GB"), (8, 640, "A100-80GB")],
)
def test_vasts_memory_in_skypilots_table_is_of_all_cards(tmp_path: Path, count: int, gib: int, card: str) -> None:
    mib = gib * 1024
    info = f"{{'Gpus': [{{'Name': 'A100', 'Count': {count}, 'MemoryInfo': {{'SizeInMiB': {mib}}}}}], "
    info += f"'TotalGpuMemoryInMiB': {mib}}}"
    row = [f"{count}x-A100_SXM4-32-257928", "A100", str(count), "32", "251.9", info, "1.60", "0.80", "Sweden, SE", ""]
    offers, _ = read(tmp_path, table(SKYPILOT_COLUMNS, [row]), "vast")
    assert {(offer.accelerator, offer.count) for offer in offers} == {(card, count)}


def test_runpods_h100_in_skypilots_table_is_the_pcie_card(tmp_path: Path) -> None:
    rows = [
        ["1x_H100_SECURE", "H100", "1.0", "16", "176", gpu_info("H100 PCIe", 1, 80), "2.89", "", "CA", "CA-MTL-1"],
        ["1x_H100-SXM_SECURE", "H100", "1.0", "16", "176", gpu_info("H100 SXM", 1, 80), "2.99", "", "CA", "CA-MTL-1"],
        ["gpu_1x_h100_pcie", "H100", "1.0", "26", "200", "", "2.49", "", "us-west-1", ""],
    ]
    offers, _ = read(tmp_path, table(SKYPILOT_COLUMNS, rows), "runpod")
    assert [o.accelerator for o in offers] == ["H100-PCIe", "H100", "H100-PCIe"]


def test_a_machine_without_accelerators_counts_0_of_them(tmp_path: Path) -> None:
    """As in SkyPilot's table of Nebius, which has no column of zones either."""
    columns = SKYPILOT_COLUMNS[:-1]
    row = ["cpu-d3_4vcpu-16gb", "", "0", "4", "16", "", "0.0992", "", "eu-north1"]
    (offer,), skipped = read(tmp_path, table(columns, [row]), "nebius")
    assert (offer.accelerator, offer.count, offer.zone, offer.price) == (None, 0, None, Money.usd("0.0992"))
    assert not skipped


def test_gpuhunts_a100_is_told_by_its_memory(tmp_path: Path) -> None:
    offers, skipped = read(tmp_path, table(GPUHUNT_COLUMNS, GPUHUNT_ROWS), "azure")
    assert {(o.instance_type, o.accelerator, o.count, o.capacity_type.value) for o in offers} == {
        ("ND96amsr_A100_v4", "A100-80GB", 8, "on_demand"),
        ("ND96asr_v4", "A100", 8, "on_demand"),
        ("NC40ads_H100_v5", "H100-NVL", 1, "spot"),
        ("E4s_v5", None, 0, "on_demand"),
    }
    assert next(o.price for o in offers if o.instance_type == "NC40ads_H100_v5") == Money.usd("2.094")
    assert not skipped


def test_gpuhunts_machine_types_tell_a_pcie_card(tmp_path: Path) -> None:
    row = [
        "NVIDIA H100 PCIe",
        "CA-MTL-1",
        "2.39",
        "16",
        "176",
        "1",
        "H100",
        "80",
        "False",
        "",
        "nvidia",
        "",
        "x86",
        "{}",
    ]
    (offer,), _ = read(tmp_path, table(GPUHUNT_COLUMNS, [row]), "runpod")
    assert (offer.accelerator, offer.instance_type) == ("H100-PCIe", "NVIDIA-H100-PCIe")


def test_gpuhunts_google_places_are_zones_and_its_tpus_lost_their_prefix(tmp_path: Path) -> None:
    rows = [
        [
            "a2-highgpu-1g",
            "us-central1-a",
            "3.673385",
            "12",
            "85",
            "1",
            "A100",
            "40",
            "False",
            "",
            "nvidia",
            "",
            "",
            "",
        ],
        ["v5p-8", "us-east5-a", "16.8", "208", "448", "1", "v5p-8", "0", "False", "", "google", "gcp-tpu", "", ""],
    ]
    offers, _ = read(tmp_path, table(GPUHUNT_COLUMNS, rows), "gcp")
    assert [(o.region, o.zone, o.accelerator) for o in offers] == [
        ("us-central1", "us-central1-a", "A100"),
        ("us-east5", "us-east5-a", "tpu-v5p-8"),
    ]


def test_our_own_columns_come_back_as_they_were(tmp_path: Path) -> None:
    offers, skipped = read(tmp_path, table(OURS_COLUMNS, OURS_ROWS))
    assert not skipped
    first, gone, bought, cpu = offers
    assert (first.price, first.as_of, first.source) == (
        Money.usd("19.92"),
        datetime(2026, 11, 19, 8, tzinfo=UTC),
        "csv:gpubroker",
    )
    assert (first.availability, first.interconnect, first.cpus) == (Availability.AVAILABLE, Interconnect.NVLINK, 192)
    assert (gone.zone, gone.availability, gone.as_of) == ("n1", Availability.UNAVAILABLE, DATED)
    assert gone.unavailable_because
    assert (bought.term_months, bought.source, bought.engine) == (12, "csv:quote-2026-11", None)
    assert (cpu.provider, cpu.accelerator, cpu.count) == ("acme", None, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"provider": "other"}, "other_provider"),
        ({"capacity_type": "owned"}, "not_for_sale"),
        ({"money": "sandbox"}, "not_for_sale"),
        ({"capacity_type": "reserved"}, "malformed_row"),
        ({"term_months": "12"}, "malformed_row"),
        ({"capacity_type": "on-demands"}, "malformed_row"),
        ({"as_of": "2027-01-01"}, "dated_in_the_future"),
        ({"as_of": "yesterday"}, "malformed_row"),
        ({"accelerator": "H101"}, "unknown_accelerator"),
        ({"count": "0"}, "malformed_row"),
        ({"price_per_hour": "0"}, "invalid_price"),
        ({"price_per_hour": "-1"}, "invalid_price"),
        ({"price_per_hour": "nan"}, "no_price"),
        ({"price_per_hour": "Infinity"}, "invalid_price"),
        ({"price_per_hour": "1e9"}, "absurd_price"),
        ({"price_per_hour": "€19"}, "foreign_currency"),
        ({"price_per_hour": "19 EUR"}, "foreign_currency"),
        ({"price_per_hour": "19,92"}, "invalid_price"),
        ({"region": ""}, "malformed_row"),
        ({"reference": "maybe"}, "malformed_row"),
    ],
)
def test_a_row_that_makes_no_sense_is_counted_with_its_line(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    row = [changes.get(column, cell) for column, cell in zip(OURS_COLUMNS, OURS_ROWS[0], strict=True)]
    offers, skipped = read(tmp_path, table(OURS_COLUMNS, [OURS_ROWS[3], row, OURS_ROWS[1]]))
    assert len(offers) == 2
    assert [(row.reason, row.detail.startswith("line 3: ")) for row in skipped] == [(reason, True)]


def test_a_file_cannot_name_the_engine_that_is_to_spend_the_money(tmp_path: Path) -> None:
    named = [["local" if c == "engine" else x for c, x in zip(OURS_COLUMNS, OURS_ROWS[0], strict=True)]]
    (offer,), _ = read(tmp_path, table(OURS_COLUMNS, named))
    assert offer.engine is None


def test_a_dollar_sign_spaces_and_capitals_of_columns_do_not_matter(tmp_path: Path) -> None:
    columns = [f" {column.upper()} " for column in OURS_COLUMNS]
    rows = [["$19.92" if c == "price_per_hour" else x for c, x in zip(OURS_COLUMNS, OURS_ROWS[0], strict=True)]]
    (offer,), _ = read(tmp_path, b"\xef\xbb\xbf" + table(columns, rows).replace("\n", "\r\n").encode())
    assert offer.price == Money.usd("19.92")


def test_short_and_long_rows_and_empty_lines_harm_no_other(tmp_path: Path) -> None:
    lines = table(OURS_COLUMNS, OURS_ROWS).splitlines()
    lines[2] = "acme,north"
    lines[3] += ",and,more"
    lines.insert(2, "")
    offers, skipped = read(tmp_path, "\n".join(lines))
    assert len(offers) == 2
    assert [row.detail for row in skipped] == ["line 4: 2 cells under 19 columns", "line 5: 21 cells under 19 columns"]


def test_the_same_price_twice_is_one_offer_and_another_is_counted(tmp_path: Path) -> None:
    other = [["20" if c == "price_per_hour" else x for c, x in zip(OURS_COLUMNS, OURS_ROWS[0], strict=True)]]
    offers, skipped = read(tmp_path, table(OURS_COLUMNS, [OURS_ROWS[0], OURS_ROWS[0], *other]))
    assert len(offers) == 1
    assert [row.reason for row in skipped] == ["conflicting_duplicate"]


def test_wrong_columns_say_what_was_found_what_was_expected_and_what_was_meant(tmp_path: Path) -> None:
    text = (
        table(SKYPILOT_COLUMNS, SKYPILOT_ROWS)
        .replace("AcceleratorName", "AcceleratorNames")
        .replace(",Price,", ",Prize,")
    )
    with pytest.raises(InvalidInput) as caught:
        opened(tmp_path, text, "aws")
    error = caught.value
    assert "line 1" in error.message
    assert "AcceleratorNames" in error.message
    assert "prices.csv" in error.where
    assert [(p.line, p.key) for p in error.problems] == [(1, "AcceleratorName"), (1, "Price")]
    assert "did you mean 'AcceleratorNames'?" in str(error.problems[0])
    assert "skypilot: InstanceType" in error.hint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "empty"),
        ("\n\n\n", "empty"),
        (table(OURS_COLUMNS, []), "no rows"),
        ("name,city\nann,bonn\n", "no known layout"),
        ("region;instance_type;price_per_hour\nx;y;1,5\n", "separated by ';'"),
        ("region\tinstance_type\tprice_per_hour\n", "expected commas"),
        (b"\x1f\x8b\x08\x00\xff\xfe\xfd", "UTF-8"),
        (table((*OURS_COLUMNS, "region"), OURS_ROWS), "duplicate"),
    ],
)
def test_what_is_no_catalogue_is_refused(tmp_path: Path, content: str | bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(tmp_path, content)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be read"):
            CatalogueFile(path, provider="acme", dated=DATED, now=NOW)


def test_a_file_that_stops_being_text_is_refused_and_not_cut_short(tmp_path: Path) -> None:
    text = table(OURS_COLUMNS, OURS_ROWS * 2000).encode() + b"\xff\xfe\n"
    with pytest.raises(InvalidInput, match="UTF-8"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "column", ["price_eur", "PriceEUR", "Price (EUR)", "price_per_hour_gbp", "cost-CHF", "Price €"]
)
def test_a_column_of_prices_in_another_currency_is_refused(tmp_path: Path, column: str) -> None:
    with pytest.raises(InvalidInput, match="US dollars"):
        opened(tmp_path, table((*OURS_COLUMNS, column), [[*row, "1"] for row in OURS_ROWS]))


@pytest.mark.parametrize("column", ["currency", "Currency", "currencyCode", "price_currency"])
def test_a_currency_column_has_to_say_dollars(tmp_path: Path, column: str) -> None:
    columns = (*OURS_COLUMNS, column)
    offers, _ = read(tmp_path, table(columns, [[*row, "usd"] for row in OURS_ROWS]))
    assert len(offers) == len(OURS_ROWS)
    with pytest.raises(InvalidInput, match="line 4: a price in 'EUR'"):
        read(tmp_path, table(columns, [[*row, "EUR" if n == 2 else "USD"] for n, row in enumerate(OURS_ROWS)]))


def test_prices_are_exact_whatever_a_data_frame_made_of_them(tmp_path: Path) -> None:
    chance = random.Random(7)
    prices = [Decimal(chance.randint(1_000, 10**9)) / 10**6 for _ in range(300)]
    rows = [[f"m{n}", "L4", "1.0", "4", "16", "", repr(float(p)), "", "r", ""] for n, p in enumerate(prices)]
    offers, _ = read(tmp_path, table(SKYPILOT_COLUMNS, rows), "aws")
    assert [o.price for o in offers] == [Money.usd(p) for p in prices]
