"""`gpubroker demo`, the real thing: its figures, its story, and what happens to it when its processes are killed."""

import json
import re
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.documents import check as check_document
from tests.counts import part
from tests.demo.recount import Recount
from tests.program import ROOT, counted, eventually, kill, processes, rows, run, start

VICTIMS = (("agent", 1), ("machine", 16), ("reconciler", 1))
# On its own it takes half a minute; other tests may want the same processors.
PATIENCE = 240.0
pytestmark = pytest.mark.timeout(2 * PATIENCE)


def store_of(home: Path) -> Path:
    (found,) = home.glob("demo/*/gpubroker.db")
    return found


def undisturbed(home: Path) -> bool:
    """The command runs, and nothing says that its machine is about to go."""
    ((kind,),) = rows(store_of(home), "SELECT kind FROM attempt_event ORDER BY seq DESC LIMIT 1")
    return kind in {"command_started", "checkpoint_saved"}


def kill_undisturbed(home: Path, victim: str) -> None:
    """Not while capacity is being taken away: whatever dies after a notice died of the interruption."""
    eventually(lambda: undisturbed(home) and kill(processes(home, victim)), f"there is a {victim} to kill", PATIENCE)


def check(home: Path, document: dict[str, Any] | None = None) -> Recount:
    """It ended right, and every figure it gives follows from its events and entries."""
    recount = Recount(store_of(home))
    figures = recount.figures()
    if document is not None:
        assert {name: document[name] for name in figures} == figures
    assert figures["job_state"] == "succeeded"
    assert figures["ledger_balanced"]
    assert figures["held"] == "0.00"
    *before, last = (one.cause for one in recount.tries)
    assert last == "completed"
    assert set(before) <= {
        "preempted",
        "moved",
        "killed_by_signal",
        "agent_died",
        "machine_lost",
        "launch_failed",
        "no_capacity",
    }
    assert figures["steps"] == 1000
    assert sum(recount.machine_cost(one) for one in recount.tries) == recount.account("spent")
    eventually(lambda: not processes(home), "every process of the demo is gone")
    return recount


@pytest.mark.system
def test_the_figures_follow_from_ledger_and_events(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run("demo", "--json", home=home, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # one document, and nothing beside it
    check_document("demo", document)
    assert document["job_state"] == "succeeded"
    assert (document["attempts"], document["interruptions"]) == (3, 2)
    assert document["resumed_from_step"] > 0
    assert float(document["savings"]) > 0
    assert Path(document["home"]) == store_of(home).parent
    check(home, document)
    market_plan_and_run, bill = told_in_the_readme()
    assert market_plan_and_run - {shape(line) for line in done.stderr.splitlines()} == set()
    assert bill, "the excerpt goes on to the bill"


@pytest.mark.system
def test_killing_the_training_and_the_reconciler_changes_the_story_and_it_ends_right(tmp_path: Path) -> None:
    """Another seed, told in words: a person's view of it."""
    home = tmp_path / "home"
    demo = start("demo", "--seed", "3", home=home)
    eventually(counted(home, "checkpoint_saved", 2), "a checkpoint is saved", PATIENCE)
    kill_undisturbed(home, "command")
    assert kill(processes(home, "reconciler"))
    out, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, err
    recount = check(home)
    figures = recount.figures()
    assert figures["failures"] == 1
    assert "was killed by a signal with exit status 137" in out or "exit status 137" in out
    assert figures["resumed_from_step"] > 0
    _, bill = told_in_the_readme()
    assert bill - {shape(line) for line in out.splitlines()} == set()
    assert shown(out) == {
        "cost": rounded(figures["cost"]),
        "on-demand": rounded(figures["on_demand_cost"]),
        "saved": rounded(figures["savings"].lstrip("-")),
        "percent": f"{abs(figures['savings_percent']):.1f}",
        "steps redone": str(figures["steps_redone"]),
        "attempts": str(figures["attempts"]),
    }


def told_in_the_readme() -> tuple[set[str], set[str]]:
    """The shapes of the lines of the README's excerpt: market, plan and run; and the bill. Left out is what says so."""
    (excerpt,) = re.findall(
        r"^```\n(gpubroker demo .*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    story, _, bill = excerpt.partition("== 4")
    lines = story.splitlines(), f"== 4{bill}".splitlines()
    first, second = ({shape(line) for line in part if line.strip(" .…")} for part in lines)
    return first, second


def shape(line: str) -> str:
    """A line without what differs from run to run: amounts, times, places, names, one or several."""
    line = re.sub(r"sandbox-(east|west|north|south)(-a)?", "PLACE", line)
    line = re.sub(r"tiny-language-model-\w+", "JOB", line)
    line = re.sub(r"submitted by \S+", "submitted by USER", line)
    line = re.sub(r"\b(spot|on-demand) at", "CAPACITY at", line)
    line = re.sub(r"^(saved|lost) ", "saved ", line)
    line = re.sub(r"\b(attempt|interruption|step|offer)s\b", r"\1", line)
    line = re.sub(r"\d[\d,.:-]*", "N", line)
    return re.sub(r"\s+", " ", re.sub(r"N[hms]( N[ms])?", "TIME", line)).strip()


def rounded(dollars: str) -> str:
    return str(Decimal(dollars).quantize(Decimal("0.0001"), rounding=ROUND_HALF_EVEN))


def shown(text: str) -> dict[str, str]:
    """The figures of the bill on the screen."""

    def one(pattern: str) -> str:
        found = re.search(pattern, text, re.MULTILINE)
        assert found is not None, f"no {pattern} in:\n{text}"
        return found[1].replace(",", "")

    return {
        "cost": one(r"^cost +\$([\d.]+)"),
        "on-demand": one(r"^on-demand +\$([\d.]+) for the same work"),
        "saved": one(r"^(?:saved|lost) +\$([\d.]+)"),
        "percent": one(r"^(?:saved|lost) .* ([\d.]+) %"),
        "steps redone": one(r"([\d,]+) of [\d,]+ steps repeated"),
        "attempts": one(r"after (\d+) attempts?"),
    }


@pytest.mark.system
@pytest.mark.parametrize(("victim", "saved"), [VICTIMS[part(3)]])  # each of them on every third day
def test_killing_any_process_of_a_demo(tmp_path: Path, victim: str, saved: int) -> None:
    home = tmp_path / "home"
    demo = start("demo", "--json", home=home)
    eventually(counted(home, "checkpoint_saved", saved), "so many checkpoints are saved", PATIENCE)
    kill_undisturbed(home, victim)
    out, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, err
    causes = {one.cause for one in check(home, json.loads(out)).tries}
    if victim == "reconciler":
        assert causes <= {"preempted", "no_capacity", "completed"}, "nobody noticed"
    else:
        assert causes & {"agent_died", "launch_failed"}, "the second when it had not even claimed its attempt"


@pytest.mark.system
def test_the_person_goes_away_with_the_screen(tmp_path: Path) -> None:
    """The command line killed at its most careless: the job goes on to its end."""
    home = tmp_path / "home"
    demo = start("demo", home=home)
    eventually(counted(home, "checkpoint_saved", 1), "a checkpoint is saved", PATIENCE)
    demo.kill()
    demo.communicate()
    eventually(counted(home, "job_closed"), "the job is closed", PATIENCE)
    check(home)
