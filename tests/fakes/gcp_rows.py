"""Rows in the form of Google's APIs, and a small market of them.

Descriptions have the wording of the public SKU list, and prices are near those of 2026; neither are real quotes.
"""

import hashlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tests.fakes.gcp_cloud import GcpCloud

Json = dict[str, Any]
IOWA, TOKYO = "us-central1", "asia-northeast1"
_URL = "https://www.googleapis.com/compute/v1/projects/team-ml"
_FILED = {"spot": "Preemptible", "1": "Commit1Yr", "3": "Commit3Yr"}


def money(usd: str, currency: str = "USD") -> Json:
    """An amount in Google's form: whole units as text, the rest in billionths."""
    amount = Decimal(usd)
    units = int(amount)
    return {"currencyCode": currency, "units": str(units), "nanos": int((amount - units) * 10**9)}


def sku(
    description: str,
    usd: str,
    *regions: str,
    usage: str = "OnDemand",
    unit: str = "h",
    group: str = "GPU",
    currency: str = "USD",
    tiers: list[tuple[float, str]] | None = None,
) -> Json:
    """One SKU. ``tiers``: (usage from which the price applies, price), instead of a single price."""
    number = hashlib.sha256(repr((description, regions, usage, unit)).encode()).hexdigest().upper()[:12]
    code = "-".join(number[at : at + 4] for at in (0, 4, 8))
    return {
        "name": f"services/6F81-5844-456A/skus/{code}",
        "skuId": code,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if group == "LocalSSD" else "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions or (IOWA,)),
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-20T10:00:00.123456Z",
                "summary": "",
                "currencyConversionRate": 1,
                "pricingExpression": {
                    "usageUnit": unit,
                    "usageUnitDescription": "hour",
                    "baseUnit": "s",
                    "baseUnitDescription": "second",
                    "baseUnitConversionFactor": 3600,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {"startUsageAmount": start, "unitPrice": money(price, currency)}
                        for start, price in tiers or [(0, usd)]
                    ],
                },
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions or (IOWA,))},
    }


def parts(family: str, gpu: str, core: str, ram: str, card: str, *regions: str, how: str = "") -> list[Json]:
    """The SKUs of a family's cores, memory and GPU. ``how``: empty for on-demand, ``spot``, ``1`` or ``3`` years."""
    usage = _FILED.get(how, "OnDemand")
    if how in ("1", "3"):
        years = f"for {how} Year" + ("s" if how == "3" else "")
        one = "" if family == "N1 Predefined" else f"{family} "
        texts = [f"Commitment v1: {one}Cpu in Americas {years}", f"Commitment v1: {one}Ram in Americas {years}",
                 f"Commitment v1: {gpu} running in Americas {years}"]  # fmt: skip
    elif how == "spot":
        texts = [f"Spot Preemptible {family} Instance Core running in Americas",
                 f"Spot Preemptible {family} Instance Ram running in Americas",
                 f"{gpu} attached to Spot Preemptible VMs running in Americas"]  # fmt: skip
    else:
        texts = [f"{family} Instance Core running in Americas", f"{family} Instance Ram running in Americas",
                 f"{gpu} running in Americas"]  # fmt: skip
    return [
        sku(texts[0], core, *regions, usage=usage, group="CPU"),
        sku(texts[1], ram, *regions, usage=usage, unit="GiBy.h", group="RAM"),
        sku(texts[2], card, *regions, usage=usage),
    ]


def local_ssd(usd: str, *regions: str, how: str = "") -> Json:
    """The SKU of local SSDs, per GiB and month."""
    text = {
        "": "SSD backed Local Storage",
        "spot": "SSD backed Local Storage attached to Spot Preemptible VMs",
        "1": "Commitment v1: Local SSD in Americas for 1 Year",
        "3": "Commitment v1: Local SSD in Americas for 3 Years",
    }[how]
    return sku(text, usd, *regions, usage=_FILED.get(how, "OnDemand"), unit="GiBy.mo", group="LocalSSD")


def machine_type(
    name: str, zone: str, cpus: int, gib: str, card: str | None = None, count: int = 0, ssds: int = 0, text: str = ""
) -> Json:
    row: Json = {
        "kind": "compute#machineType",
        "id": "801012",
        "name": name,
        "description": text or f"{cpus} vCPUs, {gib} GB RAM",
        "guestCpus": cpus,
        "memoryMb": int(Decimal(gib) * 1024),
        "zone": zone,
        "selfLink": f"{_URL}/zones/{zone}/machineTypes/{name}",
        "isSharedCpu": False,
        "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
        "architecture": "X86_64",
    }
    if card:
        row["accelerators"] = [{"guestAcceleratorType": card, "guestAcceleratorCount": count}]
    if ssds:
        row["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": ssds}
    return row


def accelerator_type(name: str, zone: str, most: int) -> Json:
    """One accelerator type of a zone. ``most``: the maximum number per machine."""
    return {
        "kind": "compute#acceleratorType",
        "id": "10008",
        "name": name,
        "description": name.upper(),
        "maximumCardsPerInstance": most,
        "zone": f"{_URL}/zones/{zone}",
        "selfLink": f"{_URL}/zones/{zone}/acceleratorTypes/{name}",
    }


def quota(metric: str, limit: float, usage: float = 0) -> Json:
    """One quota of a project or a region."""
    return {"metric": metric, "limit": limit, "usage": usage}


def region(name: str, *quotas: Json) -> Json:
    return {"kind": "compute#region", "name": name, "status": "UP", "quotas": list(quotas)}


def reservation(name: str, machine_type: str, count: int, used: int, **more: Any) -> Json:
    """A reservation of ``count`` machines. ``card``, ``cards``: GPUs attached to each."""
    properties: Json = {"machineType": machine_type}
    if card := more.pop("card", None):
        properties["guestAccelerators"] = [{"acceleratorType": card, "acceleratorCount": more.pop("cards")}]
    return {
        "kind": "compute#reservation",
        "name": name,
        "status": "READY",
        "creationTimestamp": "2026-11-01T08:00:00.000-08:00",
        "specificReservation": {"count": str(count), "inUseCount": str(used), "instanceProperties": properties},
        "specificReservationRequired": False,
        **more,
    }


def advice(scores: dict[str, float], uptime: str | None = None) -> Callable[[str, Json], Json]:
    """A function for `GcpCloud.advice`: obtainability by machine type, in zone ``-a`` of every region."""

    def told(region: str, body: Json) -> Json:
        (name,) = body["instanceFlexibilityPolicy"]["instanceSelections"]["machine"]["machineTypes"]
        assert body["instanceProperties"]["scheduling"]["provisioningModel"] == "SPOT"
        if name not in scores:
            raise LookupError(name)
        scored: Json = {"obtainability": scores[name]}
        if uptime:
            scored["estimatedUptime"] = uptime
        shard = {
            "zone": f"{_URL}/zones/{region}-a",
            "machineType": name,
            "instanceCount": 1,
            "provisioningModel": "SPOT",
        }
        return {"recommendations": [{"scores": scored, "shards": [shard]}]}

    return told


def put_machines(cloud: GcpCloud, zone: str, *rows: Json) -> None:
    cloud.machine_types.setdefault(zone, []).extend(rows)


def small_market(cloud: GcpCloud) -> GcpCloud:
    """Two zones of Iowa and one of Tokyo: L4, A100, H100 and B200 machines, T4s for N1, and CPU machines."""
    for zone in (f"{IOWA}-a", f"{IOWA}-b", f"{TOKYO}-a"):
        put_machines(
            cloud,
            zone,
            machine_type("g2-standard-4", zone, 4, "16", "nvidia-l4", 1),
            machine_type("g2-standard-96", zone, 96, "384", "nvidia-l4", 8),
            machine_type("n1-standard-8", zone, 8, "30"),
            machine_type("n1-highcpu-8", zone, 8, "7.2"),
            machine_type("e2-standard-4", zone, 4, "16"),
            machine_type("c3-standard-8", zone, 8, "32"),
        )
        cloud.accelerator_types[zone] = [
            accelerator_type("nvidia-tesla-t4", zone, 4),
            accelerator_type("nvidia-l4", zone, 8),
        ]
    put_machines(
        cloud,
        f"{IOWA}-a",
        machine_type("a2-highgpu-8g", f"{IOWA}-a", 96, "680", "nvidia-tesla-a100", 8),
        machine_type("a3-highgpu-8g", f"{IOWA}-a", 208, "1872", "nvidia-h100-80gb", 8, ssds=16),
        machine_type("a4-highgpu-8g", f"{IOWA}-a", 224, "3968", "nvidia-b200", 8, ssds=32),
    )
    for how, factor in (("", "1"), ("spot", "0.4"), ("1", "0.63"), ("3", "0.45")):
        times = Decimal(factor)

        def at(price: str, times: Decimal = times) -> str:
            return str(Decimal(price) * times)

        cloud.skus += parts("G2", "Nvidia L4 GPU", at("0.02499"), at("0.002925"), at("0.560004"), IOWA, TOKYO, how=how)
        cloud.skus += parts("A2", "Nvidia Tesla A100 GPU", at("0.031611"), at("0.004237"), at("2.933908"), how=how)
        cloud.skus += parts("A3", "Nvidia H100 80GB GPU", at("0.02931"), at("0.00255"), at("9.79655057"), how=how)
        cloud.skus += parts(
            "N1 Predefined", "Nvidia Tesla T4 GPU", at("0.031611"), at("0.004237"), at("0.35"), IOWA, TOKYO, how=how
        )
        cloud.skus.append(local_ssd(at("0.08"), IOWA, how=how))
    cloud.skus += [
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "16.11"),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "4.9542"),
        sku("Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 1 Year", "11.1159", usage="Commit1Yr"),
        sku("Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 3 Year(s)", "7.0884", usage="Commit3Yr"),
        sku("E2 Instance Core running in Americas", "0.02181159", group="CPU"),
        sku("Custom Instance Core running in Americas", "0.033174", group="CPU"),
        sku("Network Internet Egress from Americas to Americas", "0.12", unit="GiBy", group="PremiumInternetEgress"),
    ]
    return cloud
