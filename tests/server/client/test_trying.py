"""Policies tried, months closed and jobs resumed through a team server, without access to its store."""

from pathlib import Path

import pytest

from broker.app.access.callers import local_caller
from broker.app.policy.policies import read_files
from broker.app.use_cases.policies import check_policy
from broker.cli.render.errors import error_text
from broker.core.errors import InvalidInput
from tests.actors import ROOT
from tests.cli.documents import check
from tests.focus_ledger import own_idle_machine
from tests.server.client.conftest import Laptop, TeamService

JOB = """\
name: try
team: nlp
resources: {accelerators: "L4:1"}
constraints: {providers: [sandbox]}
run: echo hello
max_duration: 1h
"""
STRICT = """\
version: 1
policy: strict
guardrails:
  - {name: nothing, max_price_per_gpu_hour: "$0.001", counts: [sandbox]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    (tmp_path / "strict.yaml").write_text(STRICT.replace(", counts: [sandbox]", ""))
    return str(tmp_path / "strict.yaml")


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text(JOB)
    return str(tmp_path / "job.yaml")


def test_mistakes_in_files_are_shown_as_without_a_server(
    service: TeamService, laptop: Laptop, policy: str, tmp_path: Path
) -> None:
    done = laptop("policy", "check", policy, "--json", by="adam")
    check("policy-check", done.json)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(STRICT.replace("max_price", "max_prize"))
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    for command in (
        ("check",),
        ("apply", "--dry-run"),
    ):
        for files in ([wrong], [empty], [wrong, empty]):
            with pytest.raises(InvalidInput) as here:
                check_policy(local_caller(service.world.broker, ROOT), read_files(files))
            refused = laptop("policy", *command, *map(str, files), by="adam")
            assert (refused.code, refused.err) == (2, f"{error_text(here.value)}\n")
            assert "unknown key" in refused.err or files == [empty]
    document = laptop("policy", "check", str(wrong), "--json", by="adam").json["error"]
    assert (document["kind"], document["where"]) == ("invalid_input", str(wrong))
    assert [one["unknown_key"] for one in document["problems"]] == [True, True]
    assert laptop("policy", "check", policy, by="mia").code == 3


def test_a_job_is_explained_and_others_figures_are_left_out(laptop: Laptop, job: str, policy: str) -> None:
    mine, whole = (
        laptop("policy", "explain", job, "--json", by="mia"),
        laptop("policy", "explain", job, "--json", by="adam"),
    )
    assert mine.json["answer"] == "allow"
    assert mine.json["verdicts"] == whole.json["verdicts"]
    assert (mine.json["inputs"], bool(whole.json["inputs"])) == ({}, True)
    assert (mine.json["facts"], whole.json["facts"]["user"]) == (None, "adam")
    shown = [laptop("policy", "explain", job, by=by).out for by in ("mia", "adam")]
    assert ["budget both from" in one for one in shown] == [False, True]
    assert all("The policy allows it." in one for one in shown)
    check("policy-explain", whole.json)
    what_if = laptop("policy", "explain", job, "--policy", policy, "--json", by="adam")
    assert what_if.json["answer"] == "deny"
    assert laptop("policy", "explain", job, "--policy", policy, by="mia").code == 3
    recorded = laptop("policy", "explain", "mine", "--json", by="mia").json["decisions"]
    assert [(one["answer"], one["seen"]) for one in recorded] == [("allow", {})]
    assert laptop("policy", "explain", "foreign", by="mia").code == 2


def test_the_past_is_judged_and_use_is_found(laptop: Laptop, policy: str) -> None:
    assert (
        laptop("policy", "apply", "--dry-run", policy, "--json", by="adam").json["past"]["decisions"]["decisions"] >= 3
    )
    check("policy-findings", laptop("policy", "findings", "--json", by="fay").json)
    assert laptop("policy", "findings", by="mia").code == 3


def test_a_month_is_fetched_as_focus_and_frozen_once(laptop: Laptop, tmp_path: Path) -> None:
    out = tmp_path / "october.csv"
    done = laptop("report", "focus", "--month", "2026-10", "--out", str(out), "--json", by="fay")
    check("report-focus", done.json)
    assert out.read_text().startswith("AvailabilityZone,") or "BilledCost" in out.read_text().splitlines()[0]
    assert laptop("report", "focus", "--month", "2026-10", "--out", str(out)).code == 2, "it is there already"
    assert laptop("report", "focus", "--month", "2026-10", "--out", str(tmp_path / "a.csv"), by="mia").code == 3
    assert laptop("report", "showback", "--month", "2026-09", "--freeze", by="fay").code == 3
    frozen = laptop("report", "showback", "--month", "2026-09", "--freeze", "--json", by="adam")
    check("report-showback-frozen", frozen.json)
    assert frozen.json["frozen_by"] == "adam"
    assert laptop("report", "showback", "--month", "2026-09", "--freeze").code == 2, "for good"


def test_finance_answers_advice_and_the_next_review_says_so(laptop: Laptop, service: TeamService) -> None:
    own_idle_machine(service.world.broker.store)
    month = ("report", "review", "--month", "2026-09")
    (advice,) = [one["id"] for one in laptop(*month, "--json", by="fay").json["advice"] if one["kind"] == "idle"]
    assert laptop(*month, "--answer", f"{advice}=done", by="apple").code == 3
    assert "did you mean 'done'" in laptop(*month, "--answer", f"{advice}=dune", by="fay").err
    answered = laptop(*month, "--answer", f"{advice}=done", "--reason", "sold", "--json", by="fay")
    check("report-review", answered.json)
    assert f"{advice}, done by fay: sold" in laptop(*month, by="fay").out
    (brought,) = laptop("report", "review", "--month", "2026-10", "--json", by="fay").json["followed"]
    assert (brought["answer"]["verdict"], brought["then"], brought["now"]) == ("done", "3600.00", "3600.00")


def test_a_job_that_runs_is_not_resumed(laptop: Laptop, service: TeamService) -> None:
    refused = laptop("jobs", "resume", "mine", "--yes", by="mia")
    assert (refused.code, "has not ended" in refused.err) == (3, True), refused.err
    assert laptop("jobs", "resume", "mine", "--yes", by="vic").code == 3
    assert laptop("jobs", "resume", "foreign", "--yes", by="mia").code == 2


def test_a_budget_is_shown_and_a_strangers_grant_stays(laptop: Laptop) -> None:
    (name,) = [one["id"] for one in laptop("budget", "--json", by="mia").json["budgets"]]
    shown = laptop("budget", name, "--chart", "--json")
    check("budget-details", shown.json)
    assert (shown.json["id"], shown.json["days"][0]["total"]) == (name, "0.00")
    assert "launches beyond the limit" in laptop("budget", name).out
    assert laptop("budget", "nonsense").code == 2
    assert laptop("approvals", "revoke", "7", by="apple").code == 2
