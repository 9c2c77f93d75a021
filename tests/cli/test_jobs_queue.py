"""`gpubroker jobs queue`: who waits for a machine, in turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

ONE = "name: {name}\nteam: {team}\npriority: {priority}\nresources: {{cpus: 1}}\nrun: sleep 60\nwork: 2h\n"


def at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


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


def test_several_jobs_are_planned_together(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    files = [
        write(f"{name}.yaml", ONE.format(name=name, team="a", priority=priority))
        for name, priority in (("later", "low"), ("sooner", "high"))
    ]
    document = gpubroker("plan", *files, "--json").json
    assert [(one["name"], one["planned"]) for one in document["waiting"]] == [("sooner", True), ("later", True)]
    sooner, later = document["waiting"]
    assert sooner["finish"] <= later["start"], "one machine, one after the other"
    for one in (sooner, later):  # our own machine is up: nothing is added for its start
        assert at(one["finish"]) - at(one["start"]) - timedelta(hours=2) < timedelta(seconds=1)
    done = gpubroker("plan", *files)
    assert done.code == 0
    assert "2 jobs planned together: $0.00 in all; nothing is held" in done.out
    assert gpubroker("jobs", "queue", "--json").json["waiting"] == [], "nothing was submitted"


def test_when_a_job_of_unknown_length_ends_is_not_made_up(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    files = [write(f"{name}.yaml", ONE.format(name=name, team="a", priority="low")) for name in ("one", "two")]
    for file in files:
        file.write_text(file.read_text().replace("work: 2h", "max_duration: 1h"))
    first, second = gpubroker("plan", *files, "--json").json["waiting"]
    assert first["start"] < second["start"]
    assert first["finish"] is second["finish"] is None
    assert "together: $0.00 an hour for 2 jobs of unknown length; nothing is held" in gpubroker("plan", *files).out


def test_what_jobs_of_unknown_length_cost_is_told_by_the_hour(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    """As in the plan of each alone, and apart from what the others cost in all."""
    open_ended = write("open.yaml", sandbox_job.read_text().replace("work: 2h\n", "").replace("trial", "open"))
    by_name = {one["name"]: one for one in gpubroker("plan", sandbox_job, open_ended, "--json").json["waiting"]}
    for file, name in ((sandbox_job, "trial"), (open_ended, "open")):
        best = gpubroker("plan", file, "--json").json["placements"][0]
        assert float(by_name[name]["expected_cost"]) == pytest.approx(float(best["expected_cost"]), rel=1e-3)
        assert by_name[name]["offer"].startswith(best["offer"]["provider"])
    shown = gpubroker("plan", sandbox_job, open_ended).out
    assert " /h" in shown
    assert "an hour for 1 job of unknown length; nothing is held" in shown
    assert " in all and $" in shown


def test_of_several_jobs_one_that_would_be_late_exits_4(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    text = ONE + "deadline: 3h\n"
    files = [write(f"{name}.yaml", text.format(name=name, team="a", priority="normal")) for name in ("one", "two")]
    done = gpubroker("plan", *files)
    assert done.code == 4
    assert "late" in done.out


def test_what_is_about_one_job_is_not_asked_of_several(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    files = [write(f"{name}.yaml", ONE.format(name=name, team="a", priority="low")) for name in ("one", "two")]
    done = gpubroker("plan", *files, "--explain")
    assert done.code == 2
    assert "--explain is for one job" in done.err
