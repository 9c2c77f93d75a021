"""Prices composed from SKUs, exact to the micro-dollar, and the traps in Google's wording; each test is named after
one."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.gcp.provider import Gcp
from tests.contracts.provider_contract import NOW
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import IOWA, TOKYO, local_ssd, machine_type, parts, put_machines, sku
from tests.fakes.server import FakeServer
from tests.providers.gcp.conftest import gcp, offers_of, price_of, reasons, skipped_by

Make = Callable[..., Gcp]
ZONE = f"{IOWA}-a"


def test_a_machine_costs_its_cores_memory_and_gpus(make: Make, l4: GcpCloud) -> None:
    found = offers_of(make())[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"]
    assert found.price == Money.usd("0.706824")  # 4 × 0.024988 + 16 × 0.002927 + 0.56004
    assert (found.region, found.zone, found.cpus, found.memory_gib) == (IOWA, ZONE, 4.0, 16.0)
    assert found.source == "gcp-billing-catalogue"
    assert found.as_of == NOW
    assert found.engine == "skypilot"


def test_local_ssds_that_come_with_a_machine_are_paid_by_the_month(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("a3-highgpu-8g", ZONE, 208, "1872", "nvidia-h100-80gb", 8, ssds=16))
    cloud.skus += parts("A3", "Nvidia H100 80GB GPU", "0.02931", "0.00255", "9.79655057")
    assert reasons(make(), "local SSD, on demand") == ["missing_parts"]
    cloud.skus.append(local_ssd("0.08"))
    exact = Fraction("0.02931") * 208 + Fraction("0.00255") * 1872 + Fraction("9.79655057") * 8
    exact += Fraction("0.08") * 16 * 375 / 730
    assert price_of(make(), f"gcp/{ZONE}/a3-highgpu-8g/H100:8/on_demand") == Money(round(exact * 10**6))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_machine_whose_parts_are_not_all_found_is_refused(make: Make, l4: GcpCloud, missing: int) -> None:
    del l4.skus[missing]
    l4.skus.append(sku("Nvidia Tesla T4 GPU running in Americas", "0.35"))
    assert offers_of(make()) == {}
    kinds = [row for row in skipped_by(make()) if "on demand" in row.detail]
    assert [row.reason for row in kinds] == ["missing_parts"]
    assert ("cores of g2", "memory of g2", "GPUs of nvidia-l4")[missing] in kinds[0].detail


def test_spot_preemptible_sku_filed_under_on_demand_is_spot(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("a4-highgpu-8g", ZONE, 224, "3968", "nvidia-b200", 8, ssds=32))
    cloud.skus.append(sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "4.9542"))
    found = offers_of(make())
    assert found.keys() == {f"gcp/{ZONE}/a4-highgpu-8g/B200:8/spot"}
    assert found[f"gcp/{ZONE}/a4-highgpu-8g/B200:8/spot"].price == Money.usd("39.6336")


def test_a_plain_description_filed_under_preemptible_is_spot(make: Make, l4: GcpCloud) -> None:
    for row in l4.skus:
        row["category"]["usageType"] = "Preemptible"
    assert {offer.capacity_type for offer in offers_of(make()).values()} == {CapacityType.SPOT}


def test_a_commitment_filed_under_on_demand_is_a_commitment(make: Make, l4: GcpCloud) -> None:
    committed = parts("G2", "Nvidia L4 GPU", "0.01", "0.001", "0.25", how="1")
    for row in committed:
        row["category"]["usageType"] = "OnDemand"
    l4.skus += committed
    found = offers_of(make())
    assert found[f"gcp/{IOWA}/g2-standard-4/L4:1/reserved/12m"].price == Money.usd("0.306")
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].price == Money.usd("0.706824")


@pytest.mark.parametrize(("description", "usage"), [
    ("Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", "Commit3Yr"),
    ("Commitment v1: Nvidia L4 GPU running in Americas for 3 Years", "Preemptible"),
    ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "Commit1Yr"),
])  # fmt: skip
def test_description_and_usage_type_that_contradict_are_refused(
    make: Make, l4: GcpCloud, description: str, usage: str
) -> None:
    l4.skus.append(sku(description, "0.01", usage=usage))
    assert "contradictory_sku" in reasons(make())
    assert set(offers_of(make())) == {f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"}


@pytest.mark.parametrize("usage", ["Commit1Mo", "", "Flexible"])
def test_an_unknown_usage_type_is_refused(make: Make, l4: GcpCloud, usage: str) -> None:
    l4.skus[2]["category"]["usageType"] = usage
    assert "unknown_usage_type" in reasons(make(), "Nvidia L4 GPU")
    assert offers_of(make()) == {}


@pytest.mark.parametrize(("how", "description", "card", "machine", "canonical"), [
    ("", "H200 141GB GPU", "nvidia-h200-141gb", "a3-ultragpu-8g", "H200"),
    ("spot", "Nvidia H100 80GB Mega GPU", "nvidia-h100-mega-80gb", "a3-megagpu-8g", "H100"),
    ("1", "Nvidia H100 Mega 80GB GPU", "nvidia-h100-mega-80gb", "a3-megagpu-8g", "H100"),
    ("3", "Nvidia H100 80GB Plus GPU", "nvidia-h100-mega-80gb", "a3-megagpu-8g", "H100"),
    ("", "RTX 6000 96GB", "nvidia-rtx-pro-6000", "g4-standard-384", "RTXPRO6000"),
    ("spot", "Nvidia Tesla A100 80GB GPU", "nvidia-a100-80gb", "a2-ultragpu-8g", "A100-80GB"),
    ("1", "Nvidia Tesla A100 GPU", "nvidia-tesla-a100", "a2-highgpu-8g", "A100"),
    ("3", "NVIDIA  L4 gpu", "nvidia-l4", "g2-standard-96", "L4"),
])  # fmt: skip
def test_irregular_gpu_names(
    make: Make, cloud: GcpCloud, how: str, description: str, card: str, machine: str, canonical: str
) -> None:
    family = {"a3-ultragpu-8g": "A3Ultra", "a3-megagpu-8g": "A3Plus"}.get(machine, machine[:2].upper())
    put_machines(cloud, ZONE, machine_type(machine, ZONE, 96, "960", card, 8))
    cloud.skus += parts(family, description, "0.03", "0.003", "5.123456789", how=how)
    (found,) = offers_of(make()).values()
    assert (found.accelerator, found.count) == (canonical, 8)
    assert found.price == Money.usd("46.747654")  # 96 × 0.03 + 960 × 0.003 + 8 × 5.123456789, to the micro-dollar
    assert found.term_months == {"1": 12, "3": 36}.get(how)


@pytest.mark.parametrize("term", ["for 3 Year(s)", "for 3 Years", "for 3 Year", "for 36 Months", "For 3 year(s)"])
def test_irregular_terms(make: Make, cloud: GcpCloud, term: str) -> None:
    put_machines(cloud, ZONE, machine_type("a4-highgpu-8g", ZONE, 224, "3968", "nvidia-b200", 8))
    text = f"Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas {term}"
    cloud.skus.append(sku(text, "7.0884", usage="Commit3Yr"))
    found = offers_of(make())
    assert found.keys() == {f"gcp/{IOWA}/a4-highgpu-8g/B200:8/reserved/36m"}
    offer = found[f"gcp/{IOWA}/a4-highgpu-8g/B200:8/reserved/36m"]
    assert (offer.price, offer.engine, offer.zone) == (Money.usd("56.7072"), None, None)


def test_one_gpu_slice_is_the_whole_machine_by_the_gpu(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("a4-highgpu-8g", ZONE, 224, "3968", "nvidia-b200", 8, ssds=32))
    cloud.skus.append(sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "16.11"))
    found = offers_of(make())[f"gcp/{ZONE}/a4-highgpu-8g/B200:8/on_demand"]
    assert found.price == Money.usd("128.88")


SOMETHING_ELSE = [
    "Nvidia L4 GPU attached to Sole Tenancy VMs running in Americas",
    "Nvidia L4 GPU attached to DWS Defined Duration VMs running in Americas",
    "DWS Calendar Mode Nvidia L4 GPU running in Americas",
    "Reserved Nvidia L4 GPU in Americas",
    "Nvidia L4 Virtual Workstation GPU running in Americas",
    "Nvidia L40 GPU running in Americas",
    "G2 Custom Instance Core running in Americas",
    "G2 Sole Tenancy Instance Core running in Americas",
    "Custom Instance Core running in Americas",
    "1/8 vGPU no lssd running in Americas",
    "Commitment v1: Nvidia L4 GPU running in Americas for 5 Years",
    "Nvidia L4 GPU (2 gpu slice) running in Americas",
    "",
]  # fmt: skip


def test_prices_of_something_else_are_not_taken(make: Make, l4: GcpCloud) -> None:
    l4.skus[:0] = [sku(description, f"0.0001{at:02}") for at, description in enumerate(SOMETHING_ELSE)]
    l4.skus += l4.skus[: len(SOMETHING_ELSE)]
    assert price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand") == Money.usd("0.706824")


WAYS = {"with flex start": "flex-start", "in calendar mode": "calendar"}


@pytest.mark.parametrize(("how", "gpu", "core", "ram"), [
    ("with flex start", "Nvidia L4 GPU attached to DWS Defined Duration VMs running in Americas",
     "DWS Defined Duration G2 Core running in Americas", "DWS Defined Duration G2 Ram running in Americas"),
    ("with flex start", "DWS Flex Start Nvidia L4 GPU running in Americas",
     "DWS Flex Start G2 Core running in Americas", "DWS Flex Start G2 Ram running in Americas"),
    ("in calendar mode", "DWS Calendar Mode Nvidia L4 GPU running in Americas",
     "DWS Calendar Mode G2 Instance Core running in Americas", "DWS Calendar Mode G2 Instance Ram running in Americas"),
    ("in calendar mode", "Reserved Nvidia L4 GPU in Americas in Calendar Mode",
     "Reserved G2 Core in Americas in Calendar Mode", "Reserved G2 Ram in Americas in Calendar Mode"),
])  # fmt: skip
def test_machines_for_a_stated_time_are_pools_of_their_own(
    make: Make, l4: GcpCloud, how: str, gpu: str, core: str, ram: str
) -> None:
    l4.skus += [sku(gpu, "0.3"), sku(core, "0.01"), sku(ram, "0.001", unit="GiBy.h")]
    found = offers_of(make())
    ahead = found[f"gcp/{ZONE}/g2-standard-4+{WAYS[how]}/L4:1/on_demand"]
    launched = "skypilot" if how == "with flex start" else None
    assert (ahead.price, ahead.engine) == (Money.usd("0.356"), launched)  # 0.3 + 4 × 0.01 + 16 × 0.001
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].price == Money.usd("0.706824")
    l4.skus.pop()
    assert "missing_parts" in reasons(make(), f"g2-standard-4 with L4:1 {how}")


def test_a_reserved_sku_of_zero_is_no_price(make: Make, l4: GcpCloud) -> None:
    l4.skus.append(sku("Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", "0", usage="Commit1Yr"))
    assert "no_price" in reasons(make(), "a price of 0")


def test_units_is_an_int64_as_text_and_nanos_are_billionths(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("a4-highgpu-8g", ZONE, 224, "3968", "nvidia-b200", 1))
    row = sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "0")
    row["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"] = {
        "currencyCode": "USD",
        "units": "12",
        "nanos": 345678500,
    }
    cloud.skus.append(row)
    assert price_of(make(), f"gcp/{ZONE}/a4-highgpu-8g/B200:1/on_demand") == Money.usd("12.345678")  # half to even


@pytest.mark.parametrize("price", [
    {"currencyCode": "USD", "units": "-1", "nanos": 0},
    {"currencyCode": "USD", "units": "0", "nanos": -5},
    {"currencyCode": "USD", "units": "1", "nanos": 1_000_000_000},
    {"currencyCode": "USD", "units": "9223372036854775807", "nanos": 0},
    {"currencyCode": "EUR", "units": "1", "nanos": 0},
    {"units": "1", "nanos": 0},
    {},
])  # fmt: skip
def test_a_price_that_makes_no_sense_is_skipped(make: Make, l4: GcpCloud, price: dict[str, Any]) -> None:
    l4.skus[2]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"] = price
    assert offers_of(make()) == {}
    assert set(reasons(make(), "Nvidia L4 GPU")) & {"invalid_price", "absurd_price", "foreign_currency", "no_price"}


def test_a_foreign_currency_is_refused(make: Make, l4: GcpCloud) -> None:
    l4.skus[2] = sku("Nvidia L4 GPU running in Americas", "0.5", currency="EUR")
    assert "foreign_currency" in reasons(make())
    assert offers_of(make()) == {}


def test_tiered_rates_free_units_first(make: Make, l4: GcpCloud) -> None:
    """Free units are for an account and a month: a machine is priced at what follows."""
    l4.skus[2] = sku("Nvidia L4 GPU running in Americas", "", tiers=[(10, "0.56004"), (0, "0"), (1000, "0.5")])
    assert price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand") == Money.usd("0.706824")


def test_of_a_timeline_the_price_in_force_counts(make: Make, l4: GcpCloud) -> None:
    def info(day: str, usd: str) -> dict[str, Any]:
        found = sku("x", usd)["pricingInfo"][0]
        assert isinstance(found, dict)
        return {**found, "effectiveTime": f"2026-{day}T00:00:00Z"}

    l4.skus[2]["pricingInfo"] = [info("12-01", "9"), info("10-01", "7"), info("11-20", "0.56004")]
    assert price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand") == Money.usd("0.706824")


def test_no_pricing_info_is_no_price(make: Make, l4: GcpCloud) -> None:
    l4.skus[2]["pricingInfo"] = []
    assert "no_price" in reasons(make(), "Nvidia L4 GPU")


@pytest.mark.parametrize(("unit", "usd"), [("GiBy.h", "0.002927"), ("GBy.h", "0.00272597968578338623046875")])
def test_memory_is_per_gib_or_per_gb(make: Make, l4: GcpCloud, unit: str, usd: str) -> None:
    l4.skus[1] = sku("G2 Instance Ram running in Americas", usd[:11], unit=unit, group="RAM")
    price = price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand")
    assert price == Money.usd("0.706824")


@pytest.mark.parametrize(("index", "unit"), [(0, "mo"), (1, "GiBy.mo"), (2, "s"), (2, ""), (0, "GiBy.h")])
def test_another_unit_than_hours_is_refused(make: Make, l4: GcpCloud, index: int, unit: str) -> None:
    l4.skus[index]["pricingInfo"][0]["pricingExpression"]["usageUnit"] = unit
    assert "unknown_unit" in reasons(make())
    assert offers_of(make()) == {}


def test_each_region_has_its_own_prices(make: Make, l4: GcpCloud) -> None:
    zone = f"{TOKYO}-a"
    put_machines(l4, zone, machine_type("g2-standard-4", zone, 4, "16", "nvidia-l4", 1))
    assert f"gcp/{zone}/g2-standard-4/L4:1/on_demand" not in offers_of(make())
    l4.skus += parts("G2", "Nvidia L4 GPU", "0.03", "0.003", "0.7", TOKYO, "asia-east1")
    found = offers_of(make())
    assert found[f"gcp/{zone}/g2-standard-4/L4:1/on_demand"].price == Money.usd("0.868")
    assert found[f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand"].price == Money.usd("0.706824")


def test_a_sku_for_fewer_regions_is_the_exception(make: Make, l4: GcpCloud) -> None:
    everywhere = sku("Nvidia L4 GPU running in Americas", "0.9", IOWA, "us-east1", "us-west1")
    for rows in ([everywhere, *l4.skus], [*l4.skus, everywhere]):
        l4.skus = rows
        assert price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand") == Money.usd("0.706824")


def test_two_prices_of_one_part_are_no_price(make: Make, l4: GcpCloud) -> None:
    l4.skus.append(sku("Nvidia L4 GPU running in Iowa", "0.57"))
    assert reasons(make(), "on demand") == ["ambiguous_part"]
    assert offers_of(make()) == {}


def test_the_same_price_twice_does_no_harm(make: Make, l4: GcpCloud) -> None:
    l4.skus += l4.skus
    assert price_of(make(), f"gcp/{ZONE}/g2-standard-4/L4:1/on_demand") == Money.usd("0.706824")


nanos = st.integers(1, 20_000_000_000)


@given(core=nanos, ram=nanos, card=nanos, cpus=st.integers(1, 416), mib=st.integers(1, 2**22), cards=st.integers(1, 16))
def test_sums_are_exact_and_rounded_once(core: int, ram: int, card: int, cpus: int, mib: int, cards: int) -> None:
    from providers.gcp.accelerators import family_of
    from providers.gcp.machines import GcpMachine
    from providers.gcp.skus import PartPrice, PartPrices, PurchaseType, SkuKind, SkuPart
    from providers.rows import MAX_PRICE, MIN_PRICE, RowRejected

    family = family_of("a3-highgpu-8g")
    assert family is not None
    shape = GcpMachine(ZONE, "a3-highgpu-8g", family, "nvidia-h100-80gb", "H100", cards, cpus, Decimal(mib) / 1024)
    parts_of = ((SkuKind.CORE, "a3", core), (SkuKind.RAM, "a3", ram), (SkuKind.GPU, "nvidia-h100-80gb", card))
    catalogue = PartPrices(
        PartPrice(SkuPart(kind, of, PurchaseType.SPOT), Decimal(price) / 10**9, (IOWA,)) for kind, of, price in parts_of
    )
    exact = Fraction(core * cpus + card * cards, 10**9) + Fraction(ram * mib, 1024 * 10**9)
    if MIN_PRICE.micros <= exact * 10**6 <= MAX_PRICE.micros:
        assert catalogue.price(shape, PurchaseType.SPOT) == Money(round(exact * 10**6))
    else:
        with pytest.raises(RowRejected):
            catalogue.price(shape, PurchaseType.SPOT)


def test_prices_arrive_page_by_page(market: GcpCloud, server: FakeServer, clock: ManualClock) -> None:
    whole: dict[str, Offer] = offers_of(gcp(server.url, clock))
    market.page = 3
    assert offers_of(gcp(server.url, clock)) == whole
    assert sum(called == "cloudbilling.services.skus.list" for called, *_ in market.log) > 10
