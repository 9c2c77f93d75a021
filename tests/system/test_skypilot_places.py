"""Where offers are launched, judged by the real SkyPilot: its own validation, on a catalogue of one machine per cloud.

The double that the quick tests use is asked the same, so that it accepts what the real one accepts.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.core.market.offers import CapacityType
from broker.engines.skypilot.task import CLOUDS, resources
from tests.engines.skypilot_bench import launch, offer
from tests.fakes import skypilot_catalogue

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (the extra `skypilot`)"),
]

# Prints, for each request on standard input, the accelerators that SkyPilot would launch with, or why it refuses.
PROGRAM = """
import json, sys
import sky
answers = []
for wanted in json.load(sys.stdin):
    try:
        task = sky.Task.from_yaml_config({"name": "x", "run": "true", "resources": wanted})
        task.validate()
        (found,) = task.resources
        answers.append(["accepted", found.accelerators or {}])
    except ValueError as error:
        answers.append(["refused", str(error).splitlines()[0]])
json.dump(answers, sys.stdout)
"""


def asked(home: Path, requests: list[dict[str, Any]]) -> list[list[Any]]:
    skypilot_catalogue.write(home)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(requests),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def wanted(provider: str, region: str, zone: str | None, machine: str, card: str, count: int) -> dict[str, Any]:
    made = offer(
        provider,
        region=region,
        zone=zone,
        instance_type=machine,
        accelerator=card,
        count=count,
        capacity_type=CapacityType.SPOT,
    )
    return resources(launch(made), CLOUDS, lambda region: {"use1-az6": "us-east-1a"})


# Offers as providers list them, and the accelerators that a launch must come with.
OFFERS: list[tuple[tuple[str, str, str | None, str, str, int], dict[str, int]]] = [
    (("aws", "us-east-1", "use1-az6", "p5.48xlarge", "H100", 8), {"H100": 8}),
    (("aws", "us-east-1", None, "p5.48xlarge", "H100", 8), {"H100": 8}),
    (("gcp", "us-central1", "us-central1-a", "a3-megagpu-8g", "H100", 8), {"H100-MEGA": 8}),
    (("gcp", "us-central1", "us-central1-a", "n1-standard-8", "T4", 1), {"T4": 1}),
    (("azure", "eastus", "1", "Standard_NC40ads_H100_v5", "H100-NVL", 1), {"H100": 1}),
    (("runpod", "secure", None, "1x_A100-80GB_SECURE", "A100-80GB", 1), {"A100-80GB": 1}),
    (("oci", "global", None, "VM.GPU.A10.1", "A10", 1), {"A10": 1}),
]
# What must be refused: the offers' own names of places, sent as they stand, and what nobody has.
REFUSED = [
    {"infra": "aws/us-east-1/use1-az6", "instance_type": "p5.48xlarge"},
    {"infra": "runpod/secure", "instance_type": "1x_A100-80GB_SECURE"},
    {"infra": "oci/global", "instance_type": "VM.GPU.A10.1"},
    {"infra": "aws/us-east-1", "instance_type": "p9.none"},
    {"infra": "gcp/mars-1", "instance_type": "n1-standard-8"},
]


def test_skypilot_accepts_what_is_asked_for_each_offer_with_its_own_accelerators(tmp_path: Path) -> None:
    answers = asked(tmp_path, [wanted(*listed) for listed, _ in OFFERS])
    assert answers == [["accepted", cards] for _, cards in OFFERS]


def test_the_double_refuses_what_skypilot_refuses_and_nothing_else(tmp_path: Path) -> None:
    requests = [*REFUSED, *(wanted(*listed) for listed, _ in OFFERS)]
    for request, (answer, why) in zip(requests, asked(tmp_path, requests), strict=True):
        refused = ""
        try:
            skypilot_catalogue.check(request)
        except ValueError as error:
            refused = str(error)
        assert bool(refused) == (answer == "refused"), (request, why, refused)
        if refused:
            assert str(why).startswith(refused.partition(" for cloud")[0]), (why, refused)
    assert all(answer == "refused" for answer, _ in asked(tmp_path, REFUSED))
