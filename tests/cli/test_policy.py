"""`gpubroker policy`, `budget` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_check_says_what_the_files_say_and_changes_nothing(gpubroker: Any, write: Any) -> None:
    file = write("p.yaml", "version: 1\nbudgets: [{name: b, amount: $9, period: month}]\n")
    done = gpubroker("policy", "check", file)
    assert done.code == 0
    assert "The files are right" in done.out
    document = gpubroker("policy", "check", file, "--json").json
    assert document["valid"] is True
    assert [rule["name"] for rule in document["rules"]] == ["b"]
    assert document["defaults"]["grants_cash"] is True
    assert gpubroker("policy", "show", "--json").json == {"active": None}


def test_a_wrong_file_is_not_activated(gpubroker: Any, write: Any, policy: Path) -> None:
    bad = write("bad.yaml", "version: 1\nbudgets:\n  - {name: b, amount: 9, period: fortnight}\n")
    for command in ("check", "apply"):
        done = gpubroker("policy", command, bad)
        assert done.code == 2
        assert f"{bad}:3" in done.err
    assert gpubroker("policy", "show", "--json").json["active"]["number"] == 1


def test_versions_differences_and_history(gpubroker: Any, policy: Path) -> None:
    assert "Nothing changed" in gpubroker("policy", "apply", policy).out
    policy.write_text(policy.read_text().replace("$500", "$600"))
    done = gpubroker("policy", "apply", policy, "--note", "more", "--diff")
    assert "-  - {name: real, amount: $500, period: month}" in done.out
    assert "+  - {name: real, amount: $600, period: month}" in done.out
    assert "Rules: 1 changed." in done.out
    assert "Version 2 is in force" in done.out
    document = gpubroker("policy", "show", "--history", "--files", "--json").json
    assert [version["number"] for version in document["history"]] == [2, 1]
    assert document["active"]["note"] == "more"
    assert "$600" in document["active"]["files"][str(policy)]
    assert "version 2" in gpubroker("policy", "show").out
    assert "$600" in gpubroker("policy", "show", "--files").out
    assert "more" in gpubroker("policy", "show", "--history").out
    again = gpubroker("policy", "apply", policy, "--json").json
    assert again["changed"] is False


def test_explain_gives_every_rules_verdict(gpubroker: Any, sandbox_job: Path, policy: Path, write: Any) -> None:
    document = gpubroker("policy", "explain", sandbox_job, "--json").json
    answers = {verdict["name"]: verdict["answer"] for verdict in document["verdicts"]}
    assert answers == {
        "membership": "allow", "budget-required": "allow", "real": "allow", "pretend": "deny", "prices": "allow",
    }  # fmt: skip
    assert document["answer"] == "deny"
    assert "The policy denies it" in gpubroker("policy", "explain", sandbox_job).out
    rich = write("rich.yaml", "version: 1\nbudgets: [{name: more, amount: $90, period: month, counts: [sandbox]}]\n")
    assert gpubroker("policy", "explain", sandbox_job, "--policy", rich, "--json").json["answer"] == "allow"
    nothing = write("none.yaml", "run: echo\nresources: {accelerators: 'H100:8'}\n")
    assert gpubroker("policy", "explain", nothing).code == 4


def test_explain_shows_rules_that_turn_every_placement_down(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    tight = write("tight.yaml", "version: 1\nguardrails: [{name: tight, max_price_per_gpu_hour: $0.01}]\n")
    document = gpubroker("policy", "explain", sandbox_job, "--policy", tight, "--json").json
    (denial,) = [verdict for verdict in document["verdicts"] if verdict["answer"] == "deny"]
    assert denial["name"] == "tight"
    assert denial["source"] == f"{tight}:2"


def test_schema(gpubroker: Any) -> None:
    schema = gpubroker("policy", "schema").json
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "budgets" in schema["properties"]


def test_budgets(gpubroker: Any, policy: Path) -> None:
    listed = gpubroker("budget", "list", "--json").json["budgets"]
    assert [(b["id"], b["limit"], b["left"]) for b in listed] == [
        ("real", "500.00", "500.00"),
        ("pretend", "3.00", "3.00"),
    ]
    one = gpubroker("budget", "show", "pretend")
    assert "$3.00" in one.out
    assert "for everybody" in one.out
    assert "did you mean 'pretend'" in gpubroker("budget", "show", "pretnd").err
    assert "real" in gpubroker("budget", "list").out


def test_without_a_policy_there_is_no_budget(gpubroker: Any) -> None:
    assert "no budget is in force" in gpubroker("budget", "list").out
    assert "No policy is active" in gpubroker("policy", "show").out


def test_spend(gpubroker: Any, write: Any, policy: Path) -> None:
    assert "nothing was spent" in gpubroker("report", "spend").out
    file = write("job.yaml", "run: echo\nresources: {accelerators: 'L4:1'}\nconstraints: {providers: [sandbox]}\n"
                 "max_duration: 1h\nmax_cost: $2\nteam: nlp\n")  # fmt: skip
    assert gpubroker("submit", file, "--yes", "--detach").code == 0
    document = gpubroker("report", "spend", "--sandbox", "--by", "capacity-type", "--json").json
    (row,) = document["rows"]
    assert row["group"] == "spot"
    assert row["sandbox"] == "0.00"
    assert float(row["held"]) > 0
    assert document["total"]["held"] == row["held"]
    assert gpubroker("report", "spend", "--json").json["rows"] == []
    assert "nlp" in gpubroker("report", "spend", "--sandbox", "--since", "1d", "--until", "2199-01-01").out
