"""Held money on the command line: of which budget and period it is, and which limit decides it."""

import re
import shlex
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

POLICY = """\
version: 1
policy: test
budgets:
  - {name: by-day, amount: $500, period: day, counts: [sandbox], timezone: Asia/Kolkata}
  - {name: by-quarter, amount: $1500, period: quarter, counts: [sandbox]}
  - {name: real, amount: $500, period: month}
"""
JOB = """\
name: trial
resources: {accelerators: "L4:1"}
constraints: {providers: [sandbox]}
run: echo hello
max_duration: 60h
"""


@pytest.fixture
def in_force(gpubroker: Any, write: Any) -> None:
    assert gpubroker("policy", "apply", write("policy.yaml", POLICY)).code == 0


def total(shares: list[dict[str, Any]]) -> Decimal:
    return sum((Decimal(one["held"]) for one in shares), Decimal(0))


def test_plan_says_what_is_held_for_which_period_and_why(gpubroker: Any, write: Any, in_force: None) -> None:
    job = write("job.yaml", JOB)
    document = gpubroker("plan", job, "--json").json
    (terms,) = document["hold_terms"]
    assert terms["held"] == document["hold"]["sandbox"]
    assert terms["limited_by"] == "max_duration"
    shares = document["budget_shares"]
    assert {one["budget"] for one in shares} == {"by-day", "by-quarter"}, "no budget that does not count it"
    days = [one for one in shares if one["budget"] == "by-day"]
    assert len(days) in (3, 4)
    assert days[0]["from"] == terms["from"]
    assert days[-1]["until"] == terms["until"]
    assert all(before["until"] == after["from"] == after["period_start"] for before, after in pairwise(days))
    for name in ("by-day", "by-quarter"):
        assert total([one for one in shares if one["budget"] == name]) == Decimal(terms["held"])
    text = gpubroker("plan", job).out
    assert "is held at submission, for up to 2d 12h from now at up to $0.867/h" in text
    assert "limited by max_duration (60h plus the time to stop)" in text
    assert f"of budget by-day for {days[0]['period']}, $" in text
    assert "(Asia/Kolkata)" in text
    cheap = gpubroker("plan", write("cheap.yaml", JOB + "max_cost: $3\n")).out
    assert "limited by max_cost ($3.00), before max_duration (60h)" in cheap
    silent = gpubroker("plan", write("silent.yaml", JOB.replace("max_duration: 60h\n", ""))).out
    assert "limited by the default max_duration (24h plus the time to stop)" in silent


def test_many_periods_are_told_in_short(gpubroker: Any, write: Any, in_force: None) -> None:
    job = write("job.yaml", JOB.replace("60h", "20d"))
    text = gpubroker("plan", job).out
    assert " more periods until 20" in text
    assert len(gpubroker("plan", job, "--json").json["budget_shares"]) > 20


def test_a_plan_that_is_refused_holds_nothing(gpubroker: Any, write: Any, in_force: None) -> None:
    document = gpubroker("plan", write("job.yaml", JOB.replace("60h", "3000d")), "--json").json
    assert document["exit_code"] == 3
    assert document["hold_terms"] == document["budget_shares"] == []


def test_submit_and_the_job_and_the_budget_say_the_same(gpubroker: Any, write: Any, in_force: None) -> None:
    done = gpubroker("submit", write("job.yaml", JOB), "--yes", "--detach", "--json")
    assert "Held now: $" in done.err
    assert "of budget by-quarter for Q" in done.err
    job = done.json
    shares = job["budget_shares"]
    held = Decimal(job["held"]["sandbox"])
    for name in ("by-day", "by-quarter"):
        mine = [one for one in shares if one["budget"] == name]
        assert total(mine) == held
        shown = gpubroker("budget", name, "--json").json
        assert {one["job"] for one in shown["held_by_job"]} == {job["id"]}
        assert total(shown["held_by_job"]) == held
        assert total([one for one in shown["held_by_job"] if one["period_start"] == shown["period_start"]]) == Decimal(
            shown["held"]
        )
    assert "of budget by-day for " in gpubroker("status", "trial").out
    text = gpubroker("budget", "by-day").out
    assert text.count(job["id"]) == len([one for one in shares if one["budget"] == "by-day"])
    assert "held money of budget by-day by job and period" in text
    assert "by job and period" not in gpubroker("budget", "real").out
    assert gpubroker("budget", "real", "--json").json["held_by_job"] == []


def test_a_refused_extension_prints_a_command_that_passes(gpubroker: Any, write: Any) -> None:
    daily = "budgets: [{name: by-day, amount: $2, period: day, counts: [sandbox]}]\n"
    assert gpubroker("policy", "apply", "--yes", write("policy.yaml", f"version: 1\npolicy: test\n{daily}")).code == 0
    job = write("job.yaml", JOB.replace("60h", "20h") + "max_cost: $1\n")
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    more = ("jobs", "extend", "trial", "--max-cost", "$500", "--max-duration", "2000h")
    done, document = gpubroker(*more), gpubroker(*more, "--json").json
    assert done.code == 3
    first = document["error"]["alternatives"][0]
    assert first["instruction"] in done.err
    program, *words = shlex.split(first["instruction"])
    assert program == "gpubroker"
    passed = gpubroker(*words)
    assert passed.code == 0
    assert "Held now: $" in passed.out


def test_the_table_fits_a_narrow_terminal(
    gpubroker: Any, write: Any, in_force: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpubroker("submit", write("job.yaml", JOB.replace("60h", "30d")), "--yes", "--detach")
    monkeypatch.setenv("COLUMNS", "80")
    text = gpubroker("budget", "by-day").out
    assert " more rows; use --json to list all" in text
    table = text.partition("by job and period\n")[2]
    assert table
    assert max(map(len, table.splitlines())) <= 80


def test_with_known_work_the_hold_is_enough_for_a_stated_share_of_runs(gpubroker: Any, write: Any) -> None:
    work = JOB.replace("max_duration: 60h\n", "work: 20h on L4:1\ncheckpoint: {every: 10m}\n")
    job = write("job.yaml", work)

    def held(quantile: str) -> tuple[Decimal, dict[str, Any]]:
        policy = f"{POLICY}defaults: {{{f'hold_quantile: {quantile}' if quantile else ''}}}\n"
        assert gpubroker("policy", "apply", write("policy.yaml", policy), "--yes").code == 0
        (terms,) = gpubroker("plan", job, "--json").json["hold_terms"]
        return Decimal(terms["held"]), terms

    usual, terms = held("")
    assert (terms["limited_by"], terms["quantile"]) == ("expected", 95.0)
    text = " ".join(gpubroker("plan", job).out.split())
    assert "enough for 95 % of runs of this `work:` (the policy's `hold_quantile`); more is held while it runs" in text
    for limit, covered in (("", 95.0), ("max_cost: $3\n", None)):
        sent = gpubroker("submit", write("one.yaml", work + limit), "--yes", "--detach", "--json").json
        assert gpubroker("status", sent["id"], "--json").json["hold_quantile"] == covered
    whole, terms = held("100%")
    assert (terms["limited_by"], terms["quantile"]) == ("max_duration", None)
    assert held("50%")[0] < usual < whole
    refused = gpubroker("policy", "check", write("low.yaml", POLICY + "defaults: {hold_quantile: 10%}\n"))
    assert refused.code == 2
    assert "expected 50% to 100%" in refused.err + refused.out


def test_a_refusal_says_which_figure_to_change(gpubroker: Any, write: Any) -> None:
    small = POLICY.replace("amount: $500, period: day", "amount: $5, period: day")
    assert gpubroker("policy", "apply", write("policy.yaml", small), "--yes").code == 0
    work = JOB.replace("max_duration: 60h\n", "work: 20h on L4:1\ncheckpoint: {every: 10m}\n")
    refused = gpubroker("submit", write("job.yaml", work), "--yes")
    assert refused.code == 3
    assert "the hold follows from `work:`; reduce the work or set max_cost" in refused.err
    assert re.search(r"max_cost: \$\d+\.\d+", refused.out), refused.out
