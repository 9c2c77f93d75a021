"""Small workloads for tests, written as people write them."""

from collections.abc import Mapping
from typing import Any

import cli
from broker.core.documents import print_document
from broker.core.ports import PolicySet
from tests.lab.simulate import WhatIf, played
from tests.lab.simulation.figures import SimulationResult
from tests.lab.simulation.workload_file import parse_workload

OWNED: dict[str, Any] = {"machine": "A100:1", "capacity": "owned", "machines": 4, "cost": "$2"}
ON_DEMAND: dict[str, Any] = {
    "machine": "A100:1",
    "provider": "aws",
    "region": "us-east-1",
    "capacity": "on-demand",
    "price": "$4",
}
SPOT: dict[str, Any] = {**ON_DEMAND, "capacity": "spot", "price": "$1", "lost_every": "2h"}
RICH = "version: 1\npolicy: rich\nbudgets: [{name: all, amount: '$10,000,000', period: month}]\n"


def jobs_of(team: str = "nlp", **more: Any) -> dict[str, Any]:
    one = {
        "name": "train",
        "arrivals": 24,
        "duration": "1h",
        "job": {"resources": {"accelerators": "A100:1"}, "max_duration": "12h"},
        **more,
    }
    return {team: {"user": "ann", "jobs": [one]}}


def policy_of(text: str = RICH) -> PolicySet:
    return cli.registries().load_policies({"policy.yaml": text})


def play(
    market: list[dict[str, Any]],
    teams: Mapping[str, Any],
    policy: str = RICH,
    *,
    days: int = 2,
    seed: int = 1,
    jobs: int | None = None,
    capacity: Mapping[str, int] | None = None,
    demand: Mapping[str, float] | None = None,
) -> SimulationResult:
    """Play a workload; its ledger balances."""
    workload = parse_workload(print_document({"market": market, "teams": dict(teams)}), file="workload.yaml")
    found = played(workload, policy_of(policy), WhatIf(days, seed, jobs, capacity, demand))
    assert found.faults == []
    return found
