"""`python -m tests.lab.simulate`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from tests.lab.simulate import main

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
Simulate = Callable[..., str]


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run the program with these options; returns what it printed."""

    def run(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A workload and policies."""
    workload, policy = tmp_path / "w.yaml", tmp_path / "p.yaml"
    workload.write_text(WORKLOAD)
    policy.write_text(POLICY)
    return workload, policy


def test_the_example_runs(simulate: Simulate) -> None:
    shown = simulate("--example", "--days", "1", "--jobs", "150")
    assert "research cluster: 150 jobs in 1 day" in shown
    assert "ledger  balanced" in shown


def test_runs_are_compared(simulate: Simulate, files: tuple[Path, Path], tmp_path: Path) -> None:
    workload, policy = files
    text = simulate(workload, "--policy", policy, "--days", "1", "--json")
    first = json.loads(text)
    assert first["policies"] == [str(policy)]
    assert first["total"]["refused"] == {}
    assert first["budgets"][0]["amount"] == "1500.00"
    before = tmp_path / "before.json"
    before.write_text(text)
    changed = ("--capacity", "A100:1=1", "--demand", "nlp=2", "--against", before)
    assert "difference" in simulate(workload, "--policy", policy, "--days", "1", *changed)
    again = json.loads(simulate(workload, "--policy", policy, "--days", "1", "--json"))
    assert again["digest"] == first["digest"]


def test_jobs_that_wait_into_the_next_day_do_not_keep_one_another_from_starting(
    simulate: Simulate, files: tuple[Path, Path]
) -> None:
    workload, policy = files
    market = '{machine: "A100:1", provider: aws, region: us-east-1, capacity: on-demand, price: $2, machines: 1}'
    workload.write_text(f"market: [{market}]\nteams:{WORKLOAD.partition('teams:')[2]}")
    policy.write_text(POLICY.replace("$1500", "$80"))
    shown = " ".join(simulate(workload, "--policy", policy, "--days", "3", "--jobs", "400").split())
    assert "held more than the amount: " in shown
    assert "ended after 3d 16h" in shown, "no day passes with jobs in line and none at work"


def test_a_defect_of_a_file_or_an_option_is_told_with_its_place(files: tuple[Path, Path], tmp_path: Path) -> None:
    workload, policy = files
    typo = tmp_path / "typo.yaml"
    typo.write_text(WORKLOAD.replace("arrivals", "arivals"))
    for options, said in (
        ([typo], "did you mean 'arrivals'"),
        ([], "expected one of"),
        ([workload, "--example"], "expected one of"),
        (["--last", "30d"], "none was submitted"),
        (["--last", "1m"], "expected an hour or more"),
        ([workload, "--days", "0"], "1 or more"),
        ([workload, "--demand", "nlp"], "expected NAME=NUMBER"),
        ([workload, "--capacity", "A100:1=-1"], "expected NAME=NUMBER"),
        ([workload, "--policy", policy, "--against", workload], "cannot be read"),
        ([tmp_path / "none.yaml"], "cannot be read"),
    ):
        with pytest.raises(InvalidInput) as caught:
            main([str(option) for option in options])
        assert said in f"{caught.value} {caught.value.problems}", options
