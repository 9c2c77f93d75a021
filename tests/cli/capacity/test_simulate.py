"""`gpubroker simulate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Gpubroker

WORKLOAD = """\
market:
  - {machine: "A100:1", capacity: owned, machines: 3, cost: $2}
  - {machine: "A100:1", provider: aws, region: us-east-1, capacity: on-demand, price: $4}
teams:
  nlp:
    jobs: [{name: train, arrivals: 60, duration: 1h, job: {resources: {accelerators: "A100:1"}, max_duration: 3h}}]
"""
POLICY = """\
version: 1
policy: small
teams: {nlp: {members: [ann]}}
budgets: [{name: day, amount: $1500, period: day}]
"""


def test_the_example_runs(gpubroker: Gpubroker) -> None:
    done = gpubroker("simulate", "--example", "--days", "1", "--jobs", "150", "--chart")
    assert done.code == 0
    assert "research cluster: 150 jobs in 1 day" in done.out
    assert "ledger  balanced" in done.out
    assert "jobs that wait" in done.out


def test_runs_are_compared(gpubroker: Gpubroker, write: Callable[[str, str], Path]) -> None:
    workload, policy = write("w.yaml", WORKLOAD), write("p.yaml", POLICY)
    first = gpubroker("simulate", workload, "--policy", policy, "--days", "1", "--json")
    assert first.code == 0
    assert first.json["policies"] == [str(policy)]
    assert first.json["total"]["refused"] == {}
    assert first.json["budgets"][0]["amount"] == "1500.00"
    before = write("before.json", first.out)
    changed = ("--capacity", "A100:1=1", "--demand", "nlp=2", "--against", before)
    second = gpubroker("simulate", workload, "--policy", policy, "--days", "1", *changed)
    assert second.code == 0
    assert "difference" in second.out
    again = gpubroker("simulate", workload, "--policy", policy, "--days", "1", "--json")
    assert again.json["digest"] == first.json["digest"]


def test_jobs_that_wait_into_the_next_day_do_not_keep_one_another_from_starting(
    gpubroker: Gpubroker, write: Callable[[str, str], Path]
) -> None:
    market = '{machine: "A100:1", provider: aws, region: us-east-1, capacity: on-demand, price: $2, machines: 1}'
    workload = write("w.yaml", f"market: [{market}]\nteams:{WORKLOAD.partition('teams:')[2]}")
    policy = write("p.yaml", POLICY.replace("$1500", "$80"))
    found = gpubroker("simulate", workload, "--policy", policy, "--days", "3", "--jobs", "400")
    assert "held more than the amount: " in found.out
    assert "ended after 3d 16h" in found.out, "no day passes with jobs in line and none at work"


def test_a_defect_of_a_file_or_an_option_is_told_with_its_place(
    gpubroker: Gpubroker, write: Callable[[str, str], Path]
) -> None:
    workload = write("w.yaml", WORKLOAD.replace("arrivals", "arivals"))
    wrong = gpubroker("simulate", workload, "--json")
    assert wrong.code == 2
    assert "did you mean 'arrivals'" in json.dumps(wrong.json)
    assert wrong.json["error"]["problems"][0]["line"] == 6
    good = write("w.yaml", WORKLOAD)
    for options, said in (
        ((), "WORKLOAD.yaml"),
        ((good, "--example"), "expected one of"),
        (("--last", "30d"), "none was submitted"),
        (("--last", "1m"), "expected an hour or more"),
        ((good, "--demand", "nlp"), "expected NAME=NUMBER"),
        ((good, "--capacity", "A100:1=-1"), "expected NAME=NUMBER"),
        ((good, "--against", good), "is not a report"),
        ((good.with_name("none.yaml"),), "cannot be read"),
    ):
        refused = gpubroker("simulate", *options)
        assert refused.code == 2, options
        assert said in refused.err
