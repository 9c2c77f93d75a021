"""Offers of every provider as its own adapter reads them: the price book, and each adapter against its fake, which is
given every machine that the adapter's own tables know. More than 300 different ones, all without a network."""

import tomllib
from collections.abc import Iterator
from decimal import Decimal
from importlib.resources import files
from typing import Any

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from providers.aws.provider import Aws
from providers.aws.settings import AwsSettings
from providers.azure.provider import Azure
from providers.azure.settings import AzureSettings
from providers.gcp.provider import Gcp
from providers.gcp.settings import GcpSettings
from providers.gpuhunt_tail import Gpuhunt, GpuhuntSettings
from providers.lambda_cloud import LambdaCloud, LambdaCloudSettings
from providers.oci import Oci, OciSettings
from providers.pricebook import Pricebook
from providers.runpod import Runpod, RunpodSettings
from providers.vast import Vast, VastSettings
from providers.verda import Verda, VerdaSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.aws_files import advisor, on_demand, product, serve_files
from tests.fakes.azure_retail import FakeRetailPrices, RetailItem
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import IOWA, machine_type, parts, put_machines, small_market
from tests.fakes.lambda_cloud import KEY, Item, LambdaInstanceType, LambdaMarket, Region, Specs
from tests.fakes.longtail import LOGINS, LongTail
from tests.fakes.oci import OciMarket, gpu_shape
from tests.fakes.oci import product as oci_product
from tests.fakes.runpod import GpuType, LowestPrice, RunpodMarket
from tests.fakes.server import FakeServer
from tests.fakes.vast import VastListing, VastMarket
from tests.fakes.verda import CLIENT_ID, CLIENT_SECRET, VerdaInstanceType, VerdaMarket

Rows = Iterator[Offer | SkippedRow]
_CLOCK = ManualClock(NOW)
_QUICK: dict[str, Any] = {"attempts": 1, "timeout_seconds": 30}


def recorded() -> list[Offer]:
    """All of them, each once."""
    found: dict[tuple[Any, ...], Offer] = {}
    for read in (_pricebook, _aws, _azure, _gcp, _runpod, _oci, _lambda_cloud, _vast, _verda, _gpuhunt):
        for row in read():
            if isinstance(row, Offer):
                found[row.pool, row.capacity_type, row.term_months, row.engine] = row
    return list(found.values())


def _pricebook() -> Rows:
    yield from Pricebook(clock=_CLOCK).offers(OfferQuery())


def _aws() -> Rows:
    """Every machine of the adapter's table whose CPUs are known, in two regions, on demand and as spot."""
    families = tomllib.loads(files("providers").joinpath("aws/machines.toml").read_text())
    machines = {
        f"{family}.{size}": parts
        for family, about in families.items()
        for size, parts in about["sizes"].items()
        if size and len(parts) > 1
    }
    with serve_files() as published:
        regions = ("us-east-1", "eu-west-1")
        for region in regions:
            rows = [product(name, region, GPU=str(parts[0]), vCPU=str(parts[1])) for name, parts in machines.items()]
            published.put_list(region, [on_demand(row, "12.5") for row in rows])
        published.put_advisor(advisor({region: dict.fromkeys(machines, (55, 1)) for region in regions}))
        urls = {"price_list_url": published.url, "spot_advisor_url": published.url}
        yield from Aws(clock=_CLOCK, settings=AwsSettings(regions=regions, **urls, **_QUICK)).offers(OfferQuery())


def _azure() -> Rows:
    machines = tomllib.loads(files("providers").joinpath("azure/machines.toml").read_text())["machines"]
    meters = []
    for name in machines:
        short = name.removeprefix("Standard_").replace("_", " ")
        for region in ("eastus", "westeurope"):
            for called, price in ((short, "9.5"), (f"{short} Spot", "3.25")):
                product_name = f"Virtual Machines {short} Series"
                about = {"armSkuName": name, "armRegionName": region, "productName": product_name}
                meters.append(RetailItem(**about, meterName=called, skuName=called, retailPrice=Decimal(price)))
    with FakeServer(FakeRetailPrices(*meters)) as server:
        yield from Azure(clock=_CLOCK, settings=AzureSettings(retail_prices_url=server.url, **_QUICK)).offers(
            OfferQuery()
        )


def _gcp() -> Rows:
    cloud = small_market(GcpCloud())
    zone = f"{IOWA}-a"
    put_machines(cloud, zone, machine_type("a3-megagpu-8g", zone, 208, "1872", "nvidia-h100-mega-80gb", 8, ssds=16))
    for how in ("", "spot"):
        cloud.skus += parts("A3Plus", "Nvidia H100 80GB Plus GPU", "0.0293", "0.00255", "9.79", how=how)
    settings = {"project": "team-ml", "anonymous": True}
    with FakeServer(cloud) as server:
        chosen = GcpSettings(compute_url=server.url, billing_url=server.url, **settings, **_QUICK)
        yield from Gcp(clock=_CLOCK, settings=chosen).offers(OfferQuery())


def _runpod() -> Rows:
    told = {
        "NVIDIA H100 80GB HBM3": ("H100 SXM", 80), "NVIDIA H100 PCIe": ("H100 PCIe", 80),
        "NVIDIA H100 NVL": ("H100 NVL", 94), "NVIDIA H200": ("H200 SXM", 141), "NVIDIA B200": ("B200", 180),
        "NVIDIA A100-SXM4-80GB": ("A100 SXM", 80), "NVIDIA A100 80GB PCIe": ("A100 PCIe", 80),
        "NVIDIA L40S": ("L40S", 48), "NVIDIA L4": ("L4", 24), "NVIDIA GeForce RTX 4090": ("RTX 4090", 24),
        "NVIDIA RTX A6000": ("RTX A6000", 48),
    }  # fmt: skip
    price = Decimal("1.99")
    both = LowestPrice(minimumBidPrice=price, uninterruptablePrice=price, stockStatus="High")
    kinds = [
        GpuType(
            id=id, displayName=name, memoryInGb=gib, maxGpuCount=8, maxGpuCountSecureCloud=8,
            maxGpuCountCommunityCloud=2, secureCloud=True, communityCloud=True, securePrice=price, communityPrice=price,
            secureSpotPrice=price, in_secure=both, in_community=both,
        )
        for id, (name, gib) in told.items()
    ]  # fmt: skip
    with FakeServer(RunpodMarket(*kinds)) as server:
        yield from Runpod(clock=_CLOCK, settings=RunpodSettings(base_url=server.url)).offers(OfferQuery())


def _oci() -> Rows:
    shapes = [
        gpu_shape("BM.GPU.H100.8", 8, 640, "B1", 112, 2048), gpu_shape("BM.GPU4.8", 8, 320, "B1", 64, 2048),
        gpu_shape("BM.GPU.A100-v2.8", 8, 640, "B1", 128, 2048), gpu_shape("VM.GPU.A10.2", 2, 48, "B1", 30, 480),
        gpu_shape("BM.GPU.MI300X.8", 8, 1536, "B1", 112, 2048), gpu_shape("VM.GPU.A10.1", 1, 24, "B1", 15, 240),
        gpu_shape("VM.GPU3.1", 1, 16, "B1", 6, 90, preemptible=True),
    ]  # fmt: skip
    with FakeServer(OciMarket(shapes, [oci_product("B1", 4)])) as server:
        yield from Oci(clock=_CLOCK, settings=OciSettings(base_url=server.url)).offers(OfferQuery())


def _lambda_cloud() -> Rows:
    told = {
        "gpu_8x_h100_sxm5": ("H100 (80 GB SXM5)", 8), "gpu_1x_h100_pcie": ("H100 (80 GB PCIe)", 1),
        "gpu_1x_a10": ("A10 (24 GB PCIe)", 1), "gpu_8x_a100_80gb_sxm4": ("A100 (80 GB SXM4)", 8),
        "gpu_1x_gh200": ("GH200 (96 GB)", 1),
    }  # fmt: skip
    items = []
    for number, (name, (card, count)) in enumerate(told.items()):
        kind = LambdaInstanceType(
            name=name, gpu_description=card, price_cents_per_hour=300, specs=Specs(vcpus=26, memory_gib=225, gpus=count)
        )
        regions = [Region(name=region) for region in ("us-east-1", "us-west-3")]
        items.append(Item(instance_type=kind, regions_with_capacity_available=regions if number else []))
    with FakeServer(LambdaMarket(*items)) as server:
        chosen = LambdaCloudSettings(base_url=server.url, api_key=KEY)
        yield from LambdaCloud(clock=_CLOCK, settings=chosen, environment={}).offers(OfferQuery())


def _vast() -> Rows:
    listings = [VastListing(id=number, geolocation=place) for number, place in enumerate(("Norway", "Maryland, US"))]
    with FakeServer(VastMarket(*listings)) as server:
        yield from Vast(clock=_CLOCK, settings=VastSettings(base_url=server.url), environment={}).offers(OfferQuery())


def _verda() -> Rows:
    one = VerdaInstanceType(
        instance_type="1H100.80S.30V", price_per_hour="3.95", spot_price="1.70", model="H100", name="H100 SXM5 80GB"
    )
    market = VerdaMarket(one, stock={"FIN-01": ["1H100.80S.30V"], "FIN-02": ["1H100.80S.30V"]})
    with FakeServer(market) as server:
        chosen = VerdaSettings(base_url=server.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, **_QUICK)
        yield from Verda(clock=_CLOCK, settings=chosen, environment={}).offers(OfferQuery())


def _gpuhunt() -> Rows:
    with FakeServer(LongTail()) as server:
        chosen = GpuhuntSettings(base_url=server.url, clouds=("crusoe", "seeweb", "lium"))
        yield from Gpuhunt(clock=_CLOCK, settings=chosen, environment=dict(LOGINS)).offers(OfferQuery())
