"""`gpubroker policy findings`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.conftest import Gpubroker


def test_idle_reserved_gpus_are_told_with_their_arithmetic(gpubroker: Gpubroker) -> None:
    held = ["reservation", "H100:8", "--provider", "aws", "--hourly", "16", "--from", "2026-01-01", "--term", "5y"]
    assert gpubroker("capacity", "add", *held).code == 0
    done = gpubroker("policy", "findings", "--since", "30d", "--json")
    assert done.code == 0
    (finding,) = done.json["findings"]
    assert (finding["kind"], finding["gpus"], finding["accelerator"]) == ("over_committed", 8, "H100")
    assert finding["saves_usd_per_month"] == "11680.00"  # 8 × 730 h × $2
    assert finding["arithmetic"]["held_usd"] == 2.0
    shown = gpubroker("policy", "findings")
    assert "over-committed by 8 H100: let them lapse when the term ends  $11,680.00 per month" in shown.out


def test_where_nothing_ran_and_nothing_is_held_nobody_can_judge(gpubroker: Gpubroker) -> None:
    done = gpubroker("policy", "findings", "--json")
    assert (done.code, done.json["findings"], done.json["enough_use"]) == (0, [], False)
    shown = gpubroker("policy", "findings").out
    assert "Not enough data to recommend owning, reserving or renting: no use with a comparable price" in shown
    assert "a week (168 h) of an accelerator's use" in shown
    assert "gpubroker capacity add" in shown
    assert "Nothing found" not in shown


def test_less_than_a_week_is_too_little_and_a_week_without_findings_is_not(gpubroker: Gpubroker) -> None:
    held = ["owned", "H100:8", "--price", "$20000", "--life", "4y", "--from"]
    now = datetime.now(UTC)
    added = gpubroker("capacity", "add", *held, f"{now - timedelta(hours=30):%Y-%m-%d}")
    assert added.code == 0, added.err
    shown = gpubroker("policy", "findings").out
    assert "Not enough data to recommend owning, reserving or renting: " in shown
    assert " h of H100 are recorded since " in shown
    assert gpubroker("policy", "findings", "--json").json["enough_use"] is False


def test_a_time_that_is_none_is_exit_2(gpubroker: Gpubroker) -> None:
    assert gpubroker("policy", "findings", "--since", "soon").code == 2
    assert gpubroker("policy", "findings", "--since", "9000-01-01").code == 2


def test_the_time_may_be_said_as_elsewhere(gpubroker: Gpubroker) -> None:
    assert gpubroker("policy", "findings", "--from", "30d").code == 0


def test_what_only_warns_is_noted_by_the_plan_and_listed_afterwards(
    gpubroker: Gpubroker, write: Callable[[str, str], Path], sandbox_job: Path
) -> None:
    rule = "{name: cheap, max_job_cost: $0.01, action: warn}"
    money = "{name: pretend, amount: $100, period: month, counts: [sandbox]}"
    file = write("p.yaml", f"version: 1\npolicy: t\nbudgets: [{money}]\nguardrails: [{rule}]\n")
    assert gpubroker("policy", "apply", file).code == 0
    assert "only warns" in gpubroker("policy", "show").out
    done = gpubroker("plan", sandbox_job)
    assert done.code == 0
    assert "rule cheap only warns, would deny: " in done.out
    assert f"({file}:4" in done.out
    submitted = gpubroker("submit", sandbox_job, "--yes", "--detach", "--json").json
    (found,) = gpubroker("policy", "findings", "--json").json["warned_rules"]
    assert (found["name"], found["refused"], found["stopped"]) == ("cheap", [submitted["id"]], [])
    shown = gpubroker("policy", "findings").out
    assert f"Rule cheap only warns: it would have refused 1 job ({submitted['id']}) since " in shown
    seen = gpubroker("policy", "apply", "--dry-run", write("p.yaml", file.read_text() + "# more\n")).out
    assert "Only warned by cheap" in seen
