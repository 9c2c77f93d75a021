"""`gpubroker jobs queue`: who waits for a machine, in turn."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

ONE = "name: {name}\nteam: {team}\npriority: {priority}\nresources: {{cpus: 1}}\nrun: sleep 60\nwork: 2h\n"


def test_nobody_waits(gpubroker: Any) -> None:
    assert gpubroker("jobs", "queue").out.startswith("nobody waits")
    assert gpubroker("jobs", "queue", "--json").json["waiting"] == []


def test_who_waits_for_this_machine(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    for name, team, priority in (("first", "a", "low"), ("second", "a", "normal"), ("third", "b", "high")):
        text = ONE.format(name=name, team=team, priority=priority)
        assert gpubroker("submit", write(f"{name}.yaml", text), "--yes", "--detach").code == 0
    document = gpubroker("jobs", "queue", "--json").json
    assert [one["name"] for one in document["waiting"]] == ["third", "second"]
    assert document["running"] == 1
    third, second = document["waiting"]
    assert third["limited"]
    assert document["as_of"] < third["start"] < third["finish"] <= second["start"]
    assert Decimal(third["expected_cost"]) == 0
    assert (third["turn"], third["late"]) == (1, False)
    shown = gpubroker("jobs", "queue").out
    assert "waits for a free machine" in shown
    assert "2 waiting, 1 running" in shown
