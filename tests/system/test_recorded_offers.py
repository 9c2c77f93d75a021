"""Offers of every provider through the real SkyPilot: its validation and its optimizer, on a catalogue that has every
machine at the places that SkyPilot knows. Each is launchable just there and so, or no engine is named for it.

What this cannot show: that SkyPilot's published catalogue has each of these machines today.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import TryAnotherOffer
from broker.core.market.offers import CapacityType, Offer
from broker.engines.skypilot.task import CLOUDS, resources
from tests.engines.skypilot_bench import launch
from tests.fakes import skypilot_catalogue
from tests.system.recorded_offers import recorded

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (the extra `skypilot`)"),
]

# Where clouds have machines, as SkyPilot calls the places: regions, with their zones where it knows any, AWS's by ID.
PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "aws": {
        "us-east-1": ("use1-az6", "use1-az1"),
        "us-east-2": ("use2-az1",),
        "us-west-2": ("usw2-az1",),
        "eu-west-1": ("euw1-az1",),
        "eu-north-1": ("eun1-az1",),
    },
    "gcp": {
        "us-central1": ("us-central1-a", "us-central1-b"),
        "us-east1": ("us-east1-b",),
        "us-east4": ("us-east4-a",),
        "asia-northeast1": ("asia-northeast1-a",),
        "europe-west1": ("europe-west1-b",),
    },
    "azure": {"eastus": (), "westeurope": ()},
    "runpod": {"US": ("US-KS-2",), "CA": ("CA-MTL-1",)},
    "oci": {"us-ashburn-1": ("us-ashburn-1-AD-1",), "eu-frankfurt-1": ("eu-frankfurt-1-AD-1",)},
    "lambda": {"us-east-1": (), "us-west-3": ()},
    "nebius": {"eu-north1": (), "us-central1": ()},
}
# The zone names of the account, by ID.
ZONES = {"use1-az6": "us-east-1a", "use1-az1": "us-east-1b", "use2-az1": "us-east-2a", "usw2-az1": "us-west-2a",
         "euw1-az1": "eu-west-1a", "eun1-az1": "eu-north-1a"}  # fmt: skip
# Accelerators that SkyPilot calls otherwise.
OTHERWISE = {"a3-megagpu-8g": "H100-MEGA", "Standard_NC40ads_H100_v5": "H100", "Standard_NC80adis_H100_v5": "H100"}

# Prints, for each request on standard input, what SkyPilot would launch, or why it refuses.
PROGRAM = """
import json, sys
import sky
from sky import check, clouds, optimizer
known = [clouds.AWS(), clouds.GCP(), clouds.Azure(), clouds.RunPod(), clouds.OCI(), clouds.Lambda(), clouds.Nebius()]
check.get_cached_enabled_clouds_or_refresh = lambda *of, **more: known  # as if there were logins for all
answers = []
for wanted in json.load(sys.stdin):
    try:
        with sky.Dag() as dag:
            task = sky.Task.from_yaml_config({"name": "x", "run": "true", "resources": wanted})
        task.validate()
        optimizer.Optimizer.optimize(dag, quiet=True)
        best = task.best_resources
        answers.append(["accepted", str(best.cloud).lower(), best.region, best.zone, best.instance_type, best.use_spot])
    except (ValueError, sky.exceptions.ResourcesUnavailableError, sky.exceptions.ResourcesMismatchError) as error:
        answers.append(["refused", " ".join(str(error).split())[:300]])
json.dump(answers, sys.stdout)
"""


def seed(home: Path, offers: list[Offer]) -> None:
    """SkyPilot's catalogue below ``home``: every machine of those clouds, at all of the cloud's places."""
    for cloud, places in PLACES.items():
        machines = {(one.instance_type, one.accelerator, one.count): one for one in offers if one.provider == cloud}
        rows: dict[tuple[object, ...], None] = {}
        for region, zone in ((region, zone) for region, zones in places.items() for zone in zones or (None,)):
            for (name, _, _), one in machines.items():
                card = OTHERWISE.get(name, one.accelerator) or ""
                about = skypilot_catalogue.gpu_info(card, one.count)
                size = (one.cpus or 8, one.memory_gib or 64)
                where = (2.0, region, about, 1.0, *([zone] if zone else []))
                if cloud == "gcp" and card:  # its accelerators have rows of their own
                    rows[name, "", "", *size, 2.0, region, "", *where[3:]] = None
                    rows["", card, one.count, "", "", *where] = None
                else:
                    rows[name, card, one.count or "", *size, *where] = None
        columns = skypilot_catalogue.COLUMNS[: None if any(places.values()) else -1]
        if cloud == "azure":  # by which SkyPilot chooses the image
            columns, rows = (*columns, "Generation"), dict.fromkeys((*row, "V2") for row in rows)
        skypilot_catalogue.write_file(home, f"{cloud}/vms.csv", columns, list(rows))
    skypilot_catalogue.write_common(home, {name: id for id, name in ZONES.items()})


def asked(home: Path, requests: list[dict[str, Any]]) -> list[list[Any]]:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(requests), env=environment, capture_output=True, text=True,
        check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def request(offer: Offer) -> dict[str, Any]:
    """What the engine would ask SkyPilot for. Raises `TryAnotherOffer`."""
    return resources(launch(offer), CLOUDS, lambda region: ZONES)


def test_every_offer_with_this_engine_is_launched_where_and_as_it_is_offered(tmp_path: Path) -> None:
    offers = recorded()
    assert len({(one.provider, one.pool, one.capacity_type) for one in offers}) >= 300
    seed(tmp_path, offers)
    table: Counter[tuple[str, str, str]] = Counter()
    wrong: list[str] = []
    requests: list[tuple[Offer, dict[str, Any]]] = []
    for one in offers:
        if one.engine is None:
            table[one.provider, "no", "needs a commitment" if one.term_months else "no engine"] += 1
            continue
        try:
            requests.append((one, request(one)))
        except TryAnotherOffer as error:
            table[one.provider, "no", f"NOT MARKED: {error.message}"] += 1
            wrong.append(f"{one.provider} {one.region} {one.instance_type} ({one.source}): {error.message}")
    for (one, wanted), answer in zip(requests, asked(tmp_path, [wanted for _, wanted in requests]), strict=True):
        what = f"{one.provider} {one.region} {one.instance_type} ({one.source})"
        if answer[0] == "refused":
            table[one.provider, "no", f"NOT MARKED: {answer[1][:60]}"] += 1
            wrong.append(f"{what}: {answer[1]}")
            continue
        table[one.provider, "yes", ""] += 1
        _, cloud, region, zone, machine, spot = answer
        asked_region, asked_zone = [*wanted["infra"].split("/")[1:], None, None][:2]
        assert (cloud, machine, spot) == (one.provider, one.instance_type, one.capacity_type is CapacityType.SPOT), what
        assert asked_region in (None, region), what
        assert asked_zone in (None, zone), what
    for (provider, launchable, why), number in sorted(table.items()):
        print(f"{provider:12} {launchable:3} {number:4}  {why}")
    assert not wrong, "\n".join(wrong)
