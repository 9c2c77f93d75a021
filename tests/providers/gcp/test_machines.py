"""Which machines there are, with which cards and in which terms, and those that are passed over."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from broker.core.market.offers import Availability, CapacityType, Interconnect
from broker.core.values.money import Money
from providers.gcp.provider import Gcp
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import IOWA, accelerator_type, machine_type, parts, put_machines, sku
from tests.providers.gcp.conftest import offers_of, reasons

Make = Callable[..., Gcp]
ZONE = f"{IOWA}-a"


def test_t4s_are_attached_to_n1_machines_as_far_as_google_allows(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, *(machine_type(f"n1-standard-{cpus}", ZONE, cpus, str(cpus * 3.75)) for cpus in (4, 96)))
    put_machines(cloud, ZONE, machine_type("n1-highcpu-16", ZONE, 16, "14.4"))
    cloud.accelerator_types[ZONE] = [accelerator_type("nvidia-tesla-t4", ZONE, 4)]
    cloud.skus += parts("N1 Predefined", "Nvidia Tesla T4 GPU", "0.031611", "0.004237", "0.35")
    found = offers_of(make())
    assert {(offer.instance_type, offer.count) for offer in found.values()} == {
        ("n1-standard-4", 1), ("n1-standard-4", 2), ("n1-standard-4", 4), ("n1-standard-96", 4),
    }  # fmt: skip
    assert found[f"gcp/{ZONE}/n1-standard-4/T4:2/on_demand"].price == Money.usd("0.889999")
    assert "gcp/us-central1-a/n1-highcpu-16/T4:1/on_demand" in offers_of(make(n1_hosts="n1-highcpu-*"))


@pytest.mark.parametrize(("card", "text", "most", "counts"), [
    ("nvidia-tesla-v100", "Nvidia Tesla V100 GPU", 8, {1, 2, 4, 8}),
    ("nvidia-tesla-v100", "Nvidia Tesla V100 GPU", 4, {1, 2, 4}),
    ("nvidia-tesla-p100", "Nvidia Tesla P100 GPU", 4, {1, 2, 4}),
    ("nvidia-tesla-p4", "Nvidia Tesla P4 GPU", 4, {1, 2, 4}),
    ("nvidia-tesla-t4-vws", "Nvidia Tesla T4 GPU", 4, set()),
    ("nvidia-l4", "Nvidia L4 GPU", 8, set()),
])  # fmt: skip
def test_which_gpus_are_attached(
    make: Make, cloud: GcpCloud, card: str, text: str, most: int, counts: set[int]
) -> None:
    put_machines(cloud, ZONE, machine_type("n1-standard-8", ZONE, 8, "30"))
    cloud.accelerator_types[ZONE] = [accelerator_type(card, ZONE, most)]
    cloud.skus += parts("N1 Predefined", text, "0.031611", "0.004237", "0.35", how="spot")
    assert {offer.count for offer in offers_of(make()).values()} == counts


def test_n1_commitments_name_no_family(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("n1-standard-8", ZONE, 8, "30"))
    cloud.accelerator_types[ZONE] = [accelerator_type("nvidia-tesla-t4", ZONE, 4)]
    cloud.skus += parts("N1 Predefined", "Nvidia Tesla T4 GPU", "0.019915", "0.002669", "0.22", how="1")
    assert cloud.skus[0]["description"] == "Commitment v1: Cpu in Americas for 1 Year"
    found = offers_of(make())[f"gcp/{IOWA}/n1-standard-8/T4:1/reserved/12m"]
    assert found.price == Money.usd("0.45939")


def test_fractions_of_a_g4_card_are_priced_by_the_eighth_and_are_no_whole_card(make: Make, cloud: GcpCloud) -> None:
    """The API counts 1 for a machine with an eighth of a card; Google prices an eighth with its cores and memory."""
    card = "nvidia-rtx-pro-6000"
    told = "Graphics Optimized: 1/{} NVIDIA RTX PRO 6000 GPU, 6 vCPUs, 22GB RAM"
    put_machines(
        cloud,
        ZONE,
        machine_type("g4-standard-6", ZONE, 6, "22", card, 1, text=told.format(8)),
        machine_type("g4-standard-24", ZONE, 24, "90", card, 1),
        machine_type("g4-standard-12", ZONE, 12, "45", card, 1, text=told.format(8)),  # the two do not agree
        machine_type("g4-standard-10", ZONE, 10, "45", card, 1),
        machine_type("g4-standard-48", ZONE, 48, "180", card, 1),
    )
    cloud.skus += parts("G4", "RTX 6000 96GB", "0.04891", "0.00587", "1.09565")
    cloud.skus.append(sku("1/8 vGPU no lssd running in Iowa", "0.64688"))
    cloud.skus.append(
        sku("1/8 vGPU no lssd attached to Spot Preemptible VMs running in Iowa", "0.25", usage="Preemptible")
    )
    found = {(o.instance_type, o.machine, o.capacity_type.value): o for o in offers_of(make()).values()}
    assert {key: row.price for key, row in found.items()} == {
        ("g4-standard-6", "RTXPRO6000-1of8:1", "on_demand"): Money.usd("0.64688"),
        ("g4-standard-6", "RTXPRO6000-1of8:1", "spot"): Money.usd("0.25"),
        ("g4-standard-24", "RTXPRO6000-1of2:1", "on_demand"): Money.usd("2.58752"),
        ("g4-standard-24", "RTXPRO6000-1of2:1", "spot"): Money.usd("1"),
        ("g4-standard-48", "RTXPRO6000:1", "on_demand"): Money.usd("4.49993"),
    }
    assert {row.engine for key, row in found.items() if "1of" in key[1]} == {None}
    assert reasons(make(), "g4-standard-").count("fraction_of_an_accelerator") == 2


@pytest.mark.parametrize(
    ("name", "chip", "count", "words", "usd", "machine"),
    [
        ("ct5lp-hightpu-4t", "ct5lp", 4, "TpuV5e", "1.2", "tpu-v5litepod-4:1"),
        ("ct5p-hightpu-4t", "ct5p", 4, "TpuV5p", "4.2", "tpu-v5p-8:1"),
        ("ct6e-standard-8t", "ct6e", 8, "TpuV6e", "2.7", "tpu-v6e-8:1"),
        ("tpu7x-standard-4t", "tpu7x", 4, "TPU7x", "9", "tpu-v7x:4"),
    ],
)
def test_a_tpu_machine_costs_its_chips(
    make: Make, cloud: GcpCloud, name: str, chip: str, count: int, words: str, usd: str, machine: str
) -> None:
    put_machines(cloud, ZONE, machine_type(name, ZONE, 112, "192", chip, count))
    cloud.skus.append(sku(f"{words} running in Americas", usd, group="TPU"))
    cloud.skus.append(sku(f"{words} attached to Spot Preemptible VMs running in Americas", "0.5", group="TPU"))
    found = {offer.capacity_type.value: offer for offer in offers_of(make()).values()}
    assert {kind: row.price for kind, row in found.items()} == {
        "on_demand": Money.usd(str(Decimal(usd) * count)),
        "spot": Money.usd(str(Decimal("0.5") * count)),
    }
    assert {(row.machine, row.engine, row.interconnect) for row in found.values()} == {(machine, None, None)}


def test_a_tpu_machine_without_a_price_of_its_chip_is_counted(make: Make, cloud: GcpCloud) -> None:
    put_machines(cloud, ZONE, machine_type("ct6e-standard-4t", ZONE, 180, "720", "ct6e", 4))
    cloud.skus += parts("G2", "Nvidia L4 GPU", "0.025", "0.003", "0.56")
    assert "missing_parts" in reasons(make())


def test_what_is_not_sold_on_demand_says_so(make: Make, market: GcpCloud) -> None:
    found = offers_of(make())
    held = found[f"gcp/{ZONE}/a4-highgpu-8g/B200:8/on_demand"]
    assert held.availability is Availability.UNAVAILABLE
    assert "reservation" in held.unavailable_because
    assert found[f"gcp/{ZONE}/a4-highgpu-8g/B200:8/spot"].availability is Availability.UNKNOWN
    assert found[f"gcp/{ZONE}/a3-highgpu-8g/H100:8/on_demand"].availability is Availability.UNKNOWN


def test_how_cards_are_joined(make: Make, market: GcpCloud) -> None:
    links = {offer.machine: offer.interconnect for offer in offers_of(make()).values()}
    assert links["H100:8"] is links["A100:8"] is links["B200:8"] is Interconnect.NVLINK
    assert links["L4:8"] is links["T4:4"] is Interconnect.PCIE
    assert links["L4:1"] is links["T4:1"] is Interconnect.NONE


def test_a_commitment_is_for_a_region_and_told_once(make: Make, market: GcpCloud) -> None:
    committed = [offer for offer in offers_of(make()).values() if offer.term_months]
    assert all(offer.zone is None and offer.capacity_type is CapacityType.RESERVED for offer in committed)
    assert len({(offer.region, offer.instance_type, offer.machine, offer.term_months) for offer in committed}) == len(
        committed
    )


@pytest.mark.parametrize(("row", "reason"), [
    (machine_type("a9-hypergpu-8g", ZONE, 8, "80", "nvidia-x900", 8), "unknown_machine"),
    (machine_type("a3-highgpu-8g", ZONE, 8, "80", "nvidia-x900", 8), "unknown_accelerator"),
    (machine_type("a3-highgpu-8g", ZONE, 8, "80"), "unknown_accelerator"),
    (machine_type("a3-highgpu-8g", ZONE, 0, "80", "nvidia-h100-80gb", 8), "malformed_row"),
    (machine_type("a3-highgpu-8g", ZONE, 8, "0", "nvidia-h100-80gb", 8), "malformed_row"),
    (machine_type("a3-highgpu-8g", ZONE, 8, "80", "nvidia-h100-80gb", 0), "malformed_row"),
    (machine_type("ct4p-hightpu-4t", ZONE, 240, "407", "ct4p", 4), "tpu"),
])  # fmt: skip
def test_machines_that_make_no_sense_are_skipped(make: Make, l4: GcpCloud, row: dict[str, Any], reason: str) -> None:
    put_machines(l4, ZONE, row)
    assert reason in reasons(make())
    assert len(offers_of(make())) == 1


def test_an_obsolete_machine_is_left_out(make: Make, l4: GcpCloud) -> None:
    l4.machine_types[ZONE][0]["deprecated"] = {"state": "OBSOLETE"}
    assert offers_of(make()) == {}
