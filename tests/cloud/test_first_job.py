"""A newcomer's way on AWS, from a login to the bill: the commands of docs/start/aws.md, each in its own process."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cloud.desk import CloudDesk
from tests.cloud.lab import CARD_PRICE, GPU_MACHINE, REGION, CloudLab
from tests.program import start
from tests.skypilot_desk import JOB
from tests.waiting import LONGEST

pytestmark = [pytest.mark.system, pytest.mark.cloud, pytest.mark.timeout(1800)]
_HELLO = f"""\
name: {JOB}
resources: {{infra: aws, accelerators: "T4:1"}}
run: nvidia-smi | tee card.txt
outputs: [card.txt]
max_duration: 15m
max_cost: $1
"""


@pytest.mark.cloud_first
def test_from_setup_to_the_bill(lab: CloudLab, desk: Callable[..., CloudDesk]) -> None:
    walk = desk()
    walk.folder.mkdir()
    runs = {name: value for name, value in lab.environment.items() if name != "GPUBROKER_RUNS"}
    walk.environment = {**runs, "XDG_CONFIG_HOME": str(walk.folder / "config")}

    planned = walk.gpubroker("setup", "aws", "--dry-run", "--create-bucket", "first-runs", "--budget", "$20")
    assert "would make the bucket first-runs" in planned
    assert "first-runs" not in [one["Name"] for one in lab.s3.list_buckets()["Buckets"]]
    ready = walk.gpubroker("setup", "aws", "--create-bucket", "first-runs", "--budget", "$20", timeout=LONGEST)
    assert "✓ engine skypilot is ready" in ready
    assert "a trial job on T4:1 in us-east-1 costs at most $1.00: `gpubroker setup aws --run --yes` submits it" in ready

    (walk.folder / "hello.yaml").write_text(_HELLO)
    best = json.loads(walk.gpubroker("plan", "hello.yaml", "--json"))["placements"][0]["offer"]
    assert (best["instance_type"], best["region"], best["capacity_type"]) == (GPU_MACHINE, REGION, "on_demand")
    submitted = start("submit", "hello.yaml", "--yes", home=walk.home, **walk.environment)
    walk.while_it_gets_on(lambda: submitted.poll() is not None, "the job ends")
    followed, trouble = submitted.communicate()
    assert submitted.returncode == 0, followed + trouble
    assert "interrupted" not in followed
    assert "Tesla T4" in walk.gpubroker("logs", JOB)
    walk.gpubroker("jobs", "get", JOB, "--to", "results")
    assert "Tesla T4" in (walk.folder / "results" / "card.txt").read_text()
    assert "saved $" not in walk.gpubroker("status", JOB), "it ran on demand"

    (machine,) = walk.instances()
    began, ended = lab.life(machine)
    charged = _export(walk.folder / "focus.csv", walk.events("launch_requested")[0]["key"], began, ended)
    metered = _spent(walk)
    assert Decimal(0) < metered < Decimal("0.50"), "cents"
    assert "difference posted to the ledger" in walk.gpubroker("report", "charges", "focus.csv")
    billed = json.loads(walk.gpubroker("report", "billed", "--json"))
    (row,) = billed["rows"]
    assert (row["group"], row["attempts"], row["compared"]) == ("aws", 1, 1)
    assert (Decimal(row["metered"]), Decimal(row["billed"])) == (metered, charged)
    assert Decimal(billed["for_others"]["aws"]) == Decimal("0.05")
    assert _spent(walk) == charged
    assert not lab.alive()


def _spent(walk: CloudDesk) -> Decimal:
    report: dict[str, Any] = json.loads(walk.gpubroker("report", "spend", "--json"))["total"]
    assert Decimal(report["held"]) == 0
    return Decimal(report["cash"])


def _export(file: Path, key: str, began: float, ended: float) -> Decimal:
    """Write what AWS charges, by whole hours, for a machine with that tag and for a bucket; returns the former, USD."""
    cost = round(Decimal(CARD_PRICE) * int(ended - began) / 3600, 6)
    since, until = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:00:00Z}" for at in (began, ended + 3600))
    period = {"BillingCurrency": "USD", "ChargePeriodStart": since, "ChargePeriodEnd": until, "ProviderName": "AWS"}
    machine = {"BilledCost": str(cost), "ResourceId": "i-1", "Tags": json.dumps({"user:gpubroker": key})}
    with file.open("w", newline="", encoding="utf-8") as written:
        table = csv.DictWriter(written, [*period, *machine])
        table.writeheader()
        table.writerow({**period, **machine})
        table.writerow({**period, "BilledCost": "0.05", "ResourceId": "first-runs", "Tags": "{}"})
    return cost
