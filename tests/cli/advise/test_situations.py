"""Every command of the twelve situations runs, and the answers say what the page says of them."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.counts import part

PAGE = (Path(__file__).parents[3] / "docs/situations.md").read_text("utf-8")
COMMANDS = [line for block in re.findall(r"```\n(.*?)```", PAGE, re.S) for line in block.strip().splitlines()]
NEEDS_HISTORY = "--from-history"


def test_there_are_twelve() -> None:
    assert PAGE.count("\n## ") == 12


@pytest.mark.parametrize("line", [line for line in COMMANDS if NEEDS_HISTORY not in line][part(3) :: 3])
def test_its_command_runs(gpubroker: Any, tmp_path: Path, line: str) -> None:
    season = tmp_path / "season.csv"
    season.write_text("".join(f"{24 if day >= 300 else 8}\n" * 24 for day in range(365)))
    done = gpubroker(*shlex.split(line.replace("season.csv", str(season)))[1:])
    assert done.code == 0, done.err


def said(gpubroker: Any, line: str) -> str:
    done = gpubroker(*line.split())
    assert done.code == 0
    return " ".join(done.out.split())


def test_night_work_is_not_reserved(gpubroker: Any) -> None:
    line = "advise buy-or-rent --gpu A100 --gpus 8 --hours-per-day 8 --years 1"
    ways = gpubroker(*line.split(), "--json").json["comparison"]["ways"]
    assert [way["way"] for way in ways if way["way"] != "spot"] == ["on_demand", "reserved", "owned"]


def test_a_gang_is_told_to_reserve(gpubroker: Any) -> None:
    line = "advise deploy pretrain 70B --tokens 1.4T --deadline 8w"
    assert "gpubroker capacity propose B200:8" in said(gpubroker, line)


def test_two_thirds_of_the_time_are_prompts(gpubroker: Any) -> None:
    line = next(line for line in COMMANDS if "advise serve" in line).removeprefix("gpubroker ")
    best = gpubroker(*line.split(), "--json").json["options"][0]
    assert 0.55 < best["prefill_share"] < 0.75
    assert best["meets_latency"]
