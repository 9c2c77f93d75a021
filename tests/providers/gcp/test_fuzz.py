"""Damaged answers of Google's APIs, over HTTP and through its own SDK: no crash, no price out of this world, and no
harm to what another row says. Seeded."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.core.market.offers import CapacityType, OfferQuery
from broker.core.values.clock import ManualClock
from providers.gcp.login import GcpLogin
from providers.gcp.provider import Gcp
from providers.gcp.settings import GcpSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import accelerator_type, machine_type, parts, put_machines, sku
from tests.fakes.mutate import (
    AdapterAnswer,
    DamagedBody,
    Hijacked,
    JsonAnswers,
    MutationTarget,
    answer_of,
    mutate,
)
from tests.fakes.server import FakeServer, HttpRequest

SEED = 20261121
_SYSTEM = pytest.mark.system
REGIONS = ("us-central1", "us-east4", "europe-west4", "asia-east1", "asia-south1")
SKUS = "/v1/services/6F81-5844-456A/skus"
MACHINES = "/compute/v1/projects/team-ml/aggregated/machineTypes"
ACCELERATORS = "/compute/v1/projects/team-ml/aggregated/acceleratorTypes"


def world() -> GcpCloud:
    """In each region a machine of parts, one of slices, one with TPU chips and one with a part of a card, whose prices
    are those of that region alone."""
    cloud = GcpCloud()
    for region in REGIONS:
        zone = f"{region}-a"
        put_machines(cloud, zone, machine_type("g2-standard-4", zone, 4, "16", "nvidia-l4", 1))
        put_machines(cloud, zone, machine_type("a4-highgpu-8g", zone, 224, "3968", "nvidia-b200", 8))
        put_machines(cloud, zone, machine_type("ct6e-standard-4t", zone, 180, "720", "ct6e", 4))
        eighth = "Graphics Optimized: 1/8 NVIDIA RTX PRO 6000 GPU, 6 vCPUs, 22GB RAM"
        put_machines(cloud, zone, machine_type("g4-standard-6", zone, 6, "22", "nvidia-rtx-pro-6000", 1, text=eighth))
        put_machines(cloud, zone, machine_type("n1-standard-8", zone, 8, "30"))
        cloud.accelerator_types[zone] = [accelerator_type("nvidia-tesla-t4", zone, 1)]
        cloud.skus += parts("G2", "Nvidia L4 GPU", "0.025", "0.003", "0.56", region)
        cloud.skus += parts("N1 Predefined", "Nvidia Tesla T4 GPU", "0.03", "0.004", "0.35", region, how="spot")
        cloud.skus.append(sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in X", "4.95", region))
        cloud.skus.append(sku("TpuV6e running in X", "2.7", region, group="TPU"))
        cloud.skus.append(sku("1/8 vGPU no lssd running in X", "0.64688", region))
    return cloud


_ABOUT = OfferQuery(capacity_types=(CapacityType.ON_DEMAND, CapacityType.SPOT))
_ODD: tuple[Any, ...] = (
    None, True, 0, 1, -1, "0", "-1", "7", "10000000", "9223372036854775807", 999_999_999, 10**15, 1.5, "1.5", "NaN",
    float("nan"), float("-inf"), "", "x" * 3000, [], {}, [None], "USD", "EUR", "h", "GiBy.mo", "Preemptible",
    "Commit1Yr", "Commit1Mo", "Nvidia L4 GPU running in X", "us-central1 ",
    "Nvidia L4 GPU attached to Spot Preemptible VMs",
)  # fmt: skip
_PRICE = ("pricingInfo", 0, "pricingExpression")
_MONEY = (*_PRICE, "tieredRates", 0, "unitPrice")
_PLACES: tuple[tuple[str | int, ...], ...] = (
    ("description",), ("category", "usageType"), ("serviceRegions",), ("serviceRegions", 0), ("pricingInfo",),
    ("pricingInfo", 0, "effectiveTime"), (*_PRICE, "usageUnit"), (*_PRICE, "tieredRates"), (*_MONEY, "currencyCode"),
    (*_MONEY, "units"), (*_MONEY, "units"), (*_MONEY, "nanos"), (*_MONEY, "nanos"), _MONEY,
)  # fmt: skip


def damage_where_it_counts(body: Any, chance: random.Random) -> DamagedBody:
    """Something odd in one of the fields of one SKU that make its price."""
    damaged = copy.deepcopy(body)
    row = chance.randrange(len(damaged["skus"]))
    place = chance.choice(_PLACES)
    *way, at = place
    inner = damaged["skus"][row]
    for step in way:
        inner = inner[step]
    inner[at] = chance.choice(_ODD)
    what = f"row {row}: {'.'.join(map(str, place))}.= {inner[at]!r:.40}"
    return DamagedBody(json.dumps(damaged).encode(), row, what)


class Asker:
    """Asks the hijacked world again and again, with one login."""

    def __init__(self, path: str, cloud: GcpCloud) -> None:
        self.hijacked = Hijacked(cloud, path)
        self.server = FakeServer(self.hijacked)
        url = self.server.url
        self.settings = GcpSettings(
            compute_url=url, billing_url=url, attempts=1, anonymous=True, project="team-ml", advice=False, quotas=False
        )
        self.login = GcpLogin.find(self.settings)

    def ask(self, body: bytes | None) -> AdapterAnswer:
        self.hijacked.body = body
        provider = Gcp(clock=ManualClock(NOW), settings=self.settings, login=self.login)
        return answer_of(provider.offers(_ABOUT))


def answer_at(cloud: GcpCloud, path: str) -> Any:
    """What the undamaged world says there, as JSON."""
    asked = HttpRequest("GET", path, {}, {})
    return json.loads(json.dumps(cloud(asked).body))


@contextmanager
def served(
    cloud: GcpCloud, path: str, rows: Callable[[Any], Any], region_of_row: Callable[[int], str]
) -> Iterator[MutationTarget]:
    """One of its answers to damage. The offers of a region belong together."""
    body, asker = answer_at(cloud, path), Asker(path, cloud)

    def damage(chance: random.Random) -> DamagedBody:
        priced = path == SKUS and chance.random() < 0.5
        return damage_where_it_counts(body, chance) if priced else mutate(body, rows, chance)

    with asker.server:
        whole = asker.ask(None)
        assert whole.error is None
        groups = {region: frozenset(o for o in whole.offers if o.region == region) for region in REGIONS}
        assert all(groups.values())
        yield MutationTarget(damage, asker.ask, groups, group=region_of_row, fair=_FAIR, prices=_PRICES)


# What makes it the SKU of something else, or no machine with accelerators; a zone that is empty.
_FAIR = (
    r"description\.= |usageType\.= |serviceRegions\.|category\.(resource|service)"
    r"|(machineTypes|acceleratorTypes)\.\d+\.deleted|name\.= 'n1-|items\.zones/[\w-]+\.deleted|nextPageToken"
)
# A price is the sum of a machine's parts, so their numbers are part of it.
_PRICES = r"guestCpus|memoryMb|pricing|description|usageType|serviceRegions|category|row \d+: (= |$)"


def answers() -> JsonAnswers:
    """The SKUs, for `tests.market.hostile`."""

    def make(url: str, clock: ManualClock) -> Gcp:
        settings = GcpSettings(
            compute_url=url, billing_url=url, attempts=1, anonymous=True, project="team-ml", advice=False, quotas=False
        )
        return Gcp(clock=clock, settings=settings, login=GcpLogin.find(settings))

    cloud = world()
    return JsonAnswers(make, cloud, SKUS, answer_at(cloud, SKUS), lambda body: body["skus"])


@contextmanager
def target(what: str) -> Iterator[MutationTarget]:
    """For `tests.market.test_damaged_answers`."""
    cloud = world()
    if what == "skus":
        with served(cloud, SKUS, lambda body: body["skus"], lambda row: REGIONS[row // 9]) as found:
            yield found
        return
    path = MACHINES if what == "machines" else ACCELERATORS
    zones = list(scoped(answer_at(cloud, path)))
    with served(cloud, path, scoped, lambda row: _region(zones[row])) as found:
        yield found


def _region(zone: str) -> str:
    return zone.removeprefix("zones/").removesuffix("-a")


def scoped(body: Any) -> dict[str, Any]:
    """The rows are the zones here: what is damaged is a machine, a list of them, or a zone."""
    items: dict[str, Any] = body["items"]
    return items


# The fuzz test must bite: parser bugs, planted, have to be found by it.
