"""The dry run of the real SkyPilot, on seeded catalogues: all that it does before it asks a cloud for a machine. And
offers that once could never be launched, as they were sent then and as they are now, with its answers.

`pytest -s tests/system/test_skypilot_dry_run.py` prints both.
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
from broker.core.market.offers import Offer
from tests.fakes import skypilot_catalogue
from tests.system.recorded_offers import recorded
from tests.system.test_recorded_offers import PLACES, request, seed
from tests.system.test_recorded_offers import asked as optimized
from tests.system.test_skypilot_places import wanted

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (the extra `skypilot`)"),
]

# Writes to a file, for each request on standard input, how SkyPilot's dry run of it ended.
PROGRAM = """
import json, sys
import sky
from sky import check, clouds, execution
known = [clouds.AWS(), clouds.GCP(), clouds.Azure(), clouds.RunPod(), clouds.OCI(), clouds.Lambda(), clouds.Nebius()]
check.get_cached_enabled_clouds_or_refresh = lambda *of, **more: known  # as if there were logins for all
answers = []
for number, wanted in enumerate(json.load(sys.stdin)):
    try:
        task = sky.Task.from_yaml_config({"name": "x", "run": "true", "resources": wanted})
        how = {"dryrun": True, "down": True, "stream_logs": False, "_quiet_optimizer": True}
        execution.launch(task, cluster_name=f"dry-{number}", **how)
        answers.append("accepted")
    except Exception as error:
        answers.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
with open(sys.argv[1], "w") as file:
    json.dump(answers, file)
"""
# For a dry run SkyPilot imports SDKs that the extra `skypilot` does not bring: these clouds are tried where theirs are.
_SDKS = {"oci": "oci", "azure": "azure.mgmt.network"}
# Nebius is asked for its project even then.
NOT_TRIED = frozenset({"nebius", *(cloud for cloud, sdk in _SDKS.items() if find_spec(sdk) is None)})
_MOST = 6  # kinds of machines of each provider: a dry run takes a second
# The machine images that SkyPilot looks up by name.
IMAGES = {
    "aws": ("custom-cpu-ubuntu", "custom-gpu-ubuntu", "custom-gpu-ubuntu-cuda13", "custom-gpu-ubuntu-arm64-cuda13",
            "custom-gpu-ubuntu-arm64", "custom-cpu-ubuntu-arm64"),
    "gcp": ("custom-cpu-ubuntu-2204", "custom-gpu-ubuntu-2204", "custom-gpu-ubuntu-2204-cuda13", "gpu-direct-cos"),
    "azure": ("custom-cpu-ubuntu-v2", "custom-gpu-ubuntu-v2", "custom-gpu-ubuntu-v2-grid", "gpu-ubuntu-2204"),
    "oci": ("cpu-ubuntu-2204", "gpu-ubuntu-2204"),
}  # fmt: skip
_EVERYWHERE = {"gcp", "azure"}  # whose images are of no region


def asked(home: Path, requests: list[dict[str, Any]]) -> list[str]:
    columns = ("Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate", "AppCatalogListingId", "ResourceVersion")
    for cloud, tags in IMAGES.items():
        regions = [""] if cloud in _EVERYWHERE else list(PLACES[cloud])
        name = "canonical:ubuntu:{}:latest" if cloud == "azure" else "image-{}"
        rows = [
            [f"skypilot:{tag}", region, "ubuntu", "22.04", name.format(tag), "20260101", "listing", "1"]
            for tag in tags
            for region in regions
        ]
        skypilot_catalogue.write_file(home, f"{cloud}/images.csv", columns, rows)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home / "answers.json")], input=json.dumps(requests), env=environment,
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[str] = json.loads((home / "answers.json").read_text())
    return answers


def test_the_dry_run_accepts_kinds_of_machines_of_the_clouds_that_can_be_tried_here(tmp_path: Path) -> None:
    offers = recorded()
    seed(tmp_path, offers)
    chosen: dict[tuple[str, str], Offer] = {}
    for one in offers:
        if one.engine is not None and one.provider not in NOT_TRIED:
            chosen.setdefault((one.provider, one.instance_type), one)
    number_of: Counter[str] = Counter()
    some = [one for one in chosen.values() if not number_of.update([one.provider]) and number_of[one.provider] <= _MOST]
    requests = [(one, request(one)) for one in some]
    table: Counter[tuple[str, str]] = Counter()
    for (one, _), answer in zip(requests, asked(tmp_path, [sent for _, sent in requests]), strict=True):
        table[one.provider, answer] += 1
    for (provider, answer), number in sorted(table.items()):
        print(f"{provider:12} {number:4}  {answer}")
    assert {answer for _, answer in table} == {"accepted"}


# What was sent for some offers before, which SkyPilot refuses; and the offers.
_ONCE: list[tuple[str, dict[str, Any], tuple[str, str, str | None, str, str, int]]] = [
    ("AWS spot, by zone ID", {"infra": "aws/us-east-1/use1-az6", "instance_type": "p5.48xlarge"},
     ("aws", "us-east-1", "use1-az6", "p5.48xlarge", "H100", 8)),
    ("RunPod secure", {"infra": "runpod/secure", "instance_type": "1x_A100-80GB_SECURE"},
     ("runpod", "secure", None, "1x_A100-80GB_SECURE", "A100-80GB", 1)),
    ("Oracle Cloud, one price for all regions", {"infra": "oci/global", "instance_type": "VM.GPU.A10.1"},
     ("oci", "global", None, "VM.GPU.A10.1", "A10", 1)),
    ("Google Cloud a3-mega as H100", {"infra": "gcp/us-central1", "instance_type": "a3-megagpu-8g",
                                      "accelerators": {"H100": 8}},
     ("gcp", "us-central1", "us-central1-a", "a3-megagpu-8g", "H100", 8)),
    ("Azure NC H100 v5 as H100-NVL", {"infra": "azure/eastus", "instance_type": "Standard_NC40ads_H100_v5",
                                      "accelerators": {"H100-NVL": 1}},
     ("azure", "eastus", None, "Standard_NC40ads_H100_v5", "H100-NVL", 1)),
]  # fmt: skip


def test_what_could_never_be_launched_is_launched_now(tmp_path: Path) -> None:
    now = [wanted(*listed) for _, _, listed in _ONCE]
    seed(tmp_path, recorded())
    answers = optimized(tmp_path, [*(then for _, then, _ in _ONCE), *now])
    for (name, then, _), sent, before, after in zip(_ONCE, now, answers, answers[len(_ONCE) :], strict=False):
        print(f"{name}\n  then {then}: {before}\n  now  {sent}: {after}")
        assert (before[0], after[0]) == ("refused", "accepted")
    with pytest.raises(TryAnotherOffer) as refused:
        wanted("vast", "NO", None, "1x_RTX4090", "RTX4090", 1)
    print(f"Vast.ai, an approved listing\n  now  {refused.value.message}: its offers name no engine")
    assert {one.engine for one in recorded() if one.provider == "vast"} == {None}
