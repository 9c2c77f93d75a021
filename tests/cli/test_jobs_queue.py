"""`gpubroker jobs queue`: who waits for a machine, in turn."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker.app.jobs.queue_documents import QueueResult, WaitingJob
from broker.cli.jobs.queue_view import queue_table
from broker.core.job.jobs import Priority
from broker.core.values.money import Money
from tests.this_machine import CPUS

# Each takes all of this machine.
MACHINE = f"resources: {{{{cpus: {CPUS}}}}}\n"
ONE = "name: {name}\nteam: {team}\npriority: {priority}\n" + MACHINE + "run: sleep 60\nwork: 2h\n"


def at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


def test_nobody_waits(gpubroker: Any) -> None:
    assert gpubroker("jobs", "queue").out.startswith("no job is waiting")
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
    assert "2 jobs planned together: $0.00 in total; no money is held" in done.out
    assert gpubroker("jobs", "queue", "--json").json["waiting"] == [], "nothing was submitted"


def test_when_a_job_of_unknown_length_ends_is_not_made_up(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    files = [write(f"{name}.yaml", ONE.format(name=name, team="a", priority="low")) for name in ("one", "two")]
    for file in files:
        file.write_text(file.read_text().replace("work: 2h", "max_duration: 1h"))
    first, second = gpubroker("plan", *files, "--json").json["waiting"]
    assert first["start"] < second["start"]
    assert first["finish"] is second["finish"] is None
    assert "together: $0.00 per hour for 2 jobs of unknown length" in gpubroker("plan", *files).out


def test_what_jobs_of_unknown_length_cost_is_told_by_the_hour(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    """As in the plan of each alone, and apart from what the others cost in all."""
    sandbox_job.write_text(sandbox_job.read_text() + "value_of_time: $9\n")
    open_ended = write("open.yaml", sandbox_job.read_text().replace("work: 2h\n", "").replace("trial", "open"))
    by_name = {one["name"]: one for one in gpubroker("plan", sandbox_job, open_ended, "--json").json["waiting"]}
    for file, name in ((sandbox_job, "trial"), (open_ended, "open")):
        best = gpubroker("plan", file, "--json").json["placements"][0]
        assert float(by_name[name]["expected_cost"]) == pytest.approx(float(best["expected_cost"]), rel=1e-3)
        assert by_name[name]["offer"].startswith(f"sandbox/{best['offer']['zone']}/{best['offer']['instance_type']}/")
    shown = gpubroker("plan", sandbox_job, open_ended).out
    assert " /h" in shown
    assert "per hour for 1 job of unknown length" in shown
    assert " in total and $" in shown


def test_of_several_jobs_one_that_would_be_late_exits_4(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    text = ONE + "deadline: 3h\n"
    files = [write(f"{name}.yaml", text.format(name=name, team="a", priority="normal")) for name in ("one", "two")]
    done = gpubroker("plan", *files)
    assert done.code == 4
    assert "late" in done.out


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_cut_off_where_the_terminal_is_narrow(width: int) -> None:
    job, place, pool = "j" * 50, "k" * 30, "gcp/{}/a3/mega/H100:8/on_demand@test"
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    one = WaitingJob(
        turn=1, id=job, name=job, team="t", priority=Priority.NORMAL, nodes=1, submitted_at=now, deadline=None,
        offer=pool.format(place), limited=True, start=now + timedelta(hours=1), finish=now + timedelta(hours=3),
        expected_cost=Money.usd("9.50"), late=True, waiting_because="", wait_reason=None, planned=True,
        out_of_reach=[], reached=None, preemption=None,
    )  # fmt: skip
    found = QueueResult(as_of=now, running=0, waiting=[one], machines=[], later=[])
    console = Console(width=width, record=True, file=StringIO())
    for part in queue_table(console, found):
        console.print(part)
    shown = console.export_text()
    assert (shown.count("j") - shown.count("job"), shown.count("k")) == (50, 30)
    for word in ("H100:8", "on-demand", "1h 00m", "late", "free"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= width


def test_what_is_about_one_job_is_not_asked_of_several(gpubroker: Any, write: Callable[[str, str], Path]) -> None:
    files = [write(f"{name}.yaml", ONE.format(name=name, team="a", priority="low")) for name in ("one", "two")]
    done = gpubroker("plan", *files, "--explain")
    assert done.code == 2
    assert "--explain: applies to a single job" in done.err
