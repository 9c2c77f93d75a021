"""`gpubroker policy`, `budget` and `report`."""

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker.app.policy.documents import CheckedPolicy
from broker.cli.policy.policy_view import rule_table
from broker.core.errors import StoreProblem
from policies.loader import load
from tests.program import ROOT


def test_check_says_what_the_files_say_and_changes_nothing(gpubroker: Any, write: Any) -> None:
    file = write("p.yaml", "version: 1\nbudgets: [{name: b, amount: $9, period: month}]\n")
    done = gpubroker("policy", "check", file)
    assert done.code == 0
    assert "The files are valid" in done.out
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


def test_names_that_people_use_for_providers_deny_those_providers(gpubroker: Any, write: Any) -> None:
    rule = "allowed_locations: {providers: {deny: [google, lambda_cloud]}, regions: {deny: [East US, us-eats-1]}}"
    head = "version: 1\nbudgets: [{name: b, amount: $90, period: day}]\n"
    file = write("p.yaml", f"{head}guardrails: [{{name: places, {rule}}}]\n")
    checked = gpubroker("policy", "check", file)
    assert "no known region matches 'us-eats-1'; did you mean 'us-east-1'?" in checked.err
    assert checked.err.count("no known") == 1, "the others match something"
    places = {"gcp": "x", "lambda": "x", "azure": "eastus", "aws": "us-east-1"}
    verdicts = {"aws": "allow"}
    cases = "".join(
        f"  - {{name: {provider}, expect: {verdicts.get(provider, 'deny')}, "
        f"offer: {{provider: {provider}, region: {region}, accelerator: H100, price: $2}}}}\n"
        for provider, region in places.items()
    )
    tested = gpubroker("policy", "test", write("p.test.yaml", f"policies: p.yaml\ncases:\n{cases}"))
    assert "4 cases passed." in tested.out


@pytest.mark.parametrize(
    ("what", "names", "told"),
    [
        ("regions", ["us-east-1", "us-central1", "eastus", "europe-west1", "us-west-2"], "no known region matches"),
        ("providers", ["lambda", "runpod", "azure", "nebius", "crusoe", "hyperstack"], "no provider is called"),
    ],
)
def test_every_misspelt_name_in_a_deny_rule_is_told(
    gpubroker: Any, write: Any, what: str, names: list[str], told: str
) -> None:
    """Such a rule denies nothing: a name of a provider is refused, of a region may be new."""
    made = random.Random(5)

    def misspelt(name: str) -> str:
        at = made.randrange(1, len(name) - 1)
        return made.choice([name[:at] + "q" + name[at:], name[:at] + "x" + name[at + 1 :], f"{name}z", f"z{name}"])

    wrong = sorted({misspelt(name) for name in names * 5})
    rule = f"allowed_locations: {{{what}: {{deny: [{', '.join(wrong)}]}}}}"
    head = "version: 1\nbudgets: [{name: b, amount: $90, period: day}]\n"
    done = gpubroker("policy", "check", write("p.yaml", f"{head}guardrails: [{{name: places, {rule}}}]\n"))
    assert done.code == (2 if what == "providers" else 0)
    assert [name for name in wrong if f"{told} {name!r}" not in done.err] == []


def test_a_first_policy_is_said_to_be_applied_once_it_is(
    gpubroker: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("p.yaml", "version: 1\nbudgets: [{name: b, amount: $9, period: month}]\n")

    def full(*_: object, **__: object) -> None:
        raise StoreProblem("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr("broker.app.policy.policies.activate", full)
        failed = gpubroker("policy", "apply", file)
    assert ("the disk is full" in failed.err, "applied" in failed.err) == (True, False), failed.err
    assert "applied without confirmation" in gpubroker("policy", "apply", file).err


def test_versions_differences_and_history(gpubroker: Any, policy: Path) -> None:
    assert "Nothing changed" in gpubroker("policy", "apply", policy).out
    policy.write_text(policy.read_text().replace("$500", "$600"))
    done = gpubroker("policy", "apply", "--yes", policy, "--reason", "more", "--diff")
    assert "-  - {name: real, amount: $500, period: month}" in done.out
    assert "+  - {name: real, amount: $600, period: month}" in done.out
    assert "Rules: 1 changed." in done.out
    assert "Version 2 is active" in done.out
    document = gpubroker("policy", "show", "--files", "--json").json
    assert [version["number"] for version in gpubroker("policy", "show", "--versions", "--json").json["versions"]] == [
        2,
        1,
    ]
    assert document["active"]["note"] == "more"
    assert "$600" in document["active"]["files"][str(policy)]
    assert "version 2" in gpubroker("policy", "show").out
    assert "$600" in gpubroker("policy", "show", "--files").out
    assert "more" in gpubroker("policy", "show", "--versions").out
    again = gpubroker("policy", "apply", policy, "--json").json
    assert again["changed"] is False


def test_what_is_in_force_is_replaced_after_a_yes_alone(gpubroker: Any, policy: Path) -> None:
    policy.write_text(policy.read_text().replace("$500", "$600"))
    refused = gpubroker("policy", "apply", policy)
    assert refused.code == 2
    assert "no terminal for the confirmation: Replace the active version 1?" in refused.err
    assert "--yes" in refused.err
    assert "real: $500.00 per month, all jobs, deny → $600.00 per month, all jobs, deny" in refused.out
    assert f"({policy}:" in refused.out
    done = gpubroker("policy", "apply", "--dry-run", policy)
    assert (done.code, "Nothing was changed." in done.out) == (0, True)
    assert gpubroker("policy", "show", "--json").json["active"]["number"] == 1
    assert gpubroker("policy", "apply", policy, "--yes", "--json").json["number"] == 2


def test_going_back_is_a_version_of_its_own(gpubroker: Any, policy: Path) -> None:
    assert gpubroker("policy", "rollback", "--yes").code == 2, "there is nothing to go back to"
    first = policy.read_text()
    policy.write_text(first.replace("$500", "$600"))
    gpubroker("policy", "apply", policy, "--yes", "--reason", "more room")
    assert gpubroker("policy", "rollback").code == 2, "nobody can be asked"
    seen = gpubroker("policy", "rollback", "--dry-run", "--json").json
    assert [one["after"]["amount"] for one in seen["budgets"]] == ["500.00"]
    done = gpubroker("policy", "rollback", "--yes", "--reason", "too much", "--json").json
    assert (done["number"], done["note"]) == (3, "rollback to version 1: too much")
    listed = gpubroker("policy", "show", "--versions", "--json").json["versions"]
    assert [(one["number"], one["note"]) for one in listed] == [
        (3, "rollback to version 1: too much"), (2, "more room"), (1, ""),
    ]  # fmt: skip
    assert all(one["by"] for one in listed)
    assert gpubroker("policy", "show", "--files", "--json").json["active"]["files"][str(policy)] == first
    unknown = gpubroker("policy", "rollback", "9", "--yes")
    assert (unknown.code, "there is no version 9; versions are 1 to 3" in unknown.err) == (2, True)
    assert "more room" in gpubroker("policy", "show", "--versions").out


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
    assert document["planned"] is False
    shown = gpubroker("policy", "explain", sandbox_job, "--policy", tight).out
    assert "The policy denies this placement." in shown
    assert "The plan has no placement left" in shown


def test_explain_says_what_the_plan_says(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    plain = "version: 1\nbudgets: [{name: b, amount: $100, period: month, counts: [sandbox]}]\nguardrails:\n"
    file = write("p.yaml", f"{plain}  - {{name: r, capacity_types: [on_demand]}}\n")
    document = gpubroker("policy", "explain", sandbox_job, "--policy", file, "--json").json
    assert (document["planned"], document["answer"]) == (True, "allow")
    assert gpubroker("plan", sandbox_job, "--policy", file, "--json").json["verdict"]["answer"] == "allow"
    assert "The policy allows it." in gpubroker("policy", "explain", sandbox_job, "--policy", file).out


def test_schema(gpubroker: Any) -> None:
    schema = gpubroker("schema", "policy-file").json
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "budgets" in schema["properties"]


def test_budgets(gpubroker: Any, policy: Path) -> None:
    listed = gpubroker("budget", "--json").json["budgets"]
    assert [(b["id"], b["limit"], b["left"]) for b in listed] == [
        ("real", "500.00", "500.00"),
        ("pretend", "3.00", "3.00"),
    ]
    one = gpubroker("budget", "pretend")
    assert "$3.00" in one.out
    assert "scope all jobs" in one.out
    assert "did you mean 'pretend'" in gpubroker("budget", "pretnd").err
    assert "real" in gpubroker("budget").out


def test_a_budget_is_told_in_full_and_drawn(gpubroker: Any, policy: Path) -> None:
    shown = gpubroker("budget", "pretend")
    assert "launches beyond the limit: denied; alerts at: 50%, 80%, 100%, forecast" in shown.out
    document = gpubroker("budget", "pretend", "--json").json
    assert document["forecast"]["committed"] == document["forecast"]["expected"] == "0.00"
    assert (document["action"], document["passed"], document["notices"]) == ("deny", {}, [])
    assert "Budget pretend" in gpubroker("budget", "pretend", "--chart").out


def test_without_a_policy_there_is_no_budget(gpubroker: Any) -> None:
    assert "no budget is active" in gpubroker("budget").out
    assert "No policy is active" in gpubroker("policy", "show").out


def test_spend(gpubroker: Any, write: Any, policy: Path) -> None:
    assert "nothing was spent" in gpubroker("report", "spend").out
    file = write("job.yaml", "run: echo\nresources: {accelerators: 'L4:1', use_spot: true}\n"
                 "constraints: {providers: [sandbox]}\n"
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


@pytest.mark.parametrize(
    ("terms", "checkpoint", "lands"),
    [("min_share: 50%, min_gpu_hours: 0", "10m", "spot"), ("min_share: 50%", "10m", "on_demand"),
     ("min_share: 50%, min_gpu_hours: 0", "", "on_demand")],
)  # fmt: skip
def test_a_share_of_spot_is_demanded_of_jobs_that_can_resume_from_a_minimum_on(
    gpubroker: Any, write: Any, terms: str, checkpoint: str, lands: str
) -> None:
    file = write("p.yaml", "version: 1\ncapacity: {order: [on_demand, spot]}\n"
                 "budgets: [{name: b, amount: $9, period: month, counts: [sandbox]}]\n"
                 f"guardrails: [{{name: lean, spot: {{{terms}}}}}]\n")  # fmt: skip
    assert "The files are valid" in gpubroker("policy", "check", file).out
    assert gpubroker("policy", "apply", file, "--yes").code == 0
    saves = f"checkpoint: {{every: {checkpoint}}}\n" if checkpoint else ""
    job = write("job.yaml", "run: echo\nresources: {accelerators: 'L4:1'}\nmax_duration: 1h\n"
                f"constraints: {{providers: [sandbox]}}\n{saves}")  # fmt: skip
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    (row,) = gpubroker("report", "spend", "--sandbox", "--by", "capacity-type", "--json").json["rows"]
    assert row["group"] == lands


# --- trying policies out --------------------------------------------------------------------------------------------

CASES = """\
cases:
  - {name: a small one fits, offer: {accelerator: L4, price: $1}, asks: $20, expect: allow}
  - {name: a big one does not, asks: $501, expect: deny, because: real}
"""


def test_cases_beside_a_policy(gpubroker: Any, policy: Path, write: Any) -> None:
    cases = write("policy.test.yaml", CASES)
    done = gpubroker("policy", "test", cases)
    assert done.code == 0
    assert "2 cases passed." in done.out
    assert gpubroker("policy", "test", cases.parent, "--json").json["passed"] == 2
    write("policy.test.yaml", CASES.replace("$501", "$499"))
    failed = gpubroker("policy", "test", cases)
    assert failed.code == 1
    assert "FAIL" in failed.out
    assert "expected deny, got allow: no rule objects" in failed.out
    document = gpubroker("policy", "test", cases, "--json")
    assert (document.code, document.json["failed"]) == (1, 1)
    assert document.json["cases"][1]["source"] == f"{cases}:3"


def test_the_cases_that_the_documents_show_pass(gpubroker: Any, write: Any) -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/policies.md").read_text("utf-8"), re.M | re.S)
    write("policy.yaml", shown[0])
    cases = next(body for body in shown if body.startswith("cases:"))
    assert "2 cases passed." in gpubroker("policy", "test", write("policy.test.yaml", cases)).out


def test_cases_are_found_by_the_name_of_their_policy_and_the_other_way_round(gpubroker: Any, policy: Path) -> None:
    own = policy.with_name("policy.test.yaml")
    absent = gpubroker("policy", "test", policy)
    assert absent.code == 2
    assert f"{own}: there is no such file; cases of a policy are in *.test.yaml\nhint: see" in absent.err
    own.write_text(CASES)
    assert "2 cases passed." in gpubroker("policy", "test", policy).out
    mistyped = gpubroker("policy", "test", policy.with_name("polcy.yaml"))
    assert "did you mean 'policy.test.yaml'?" in mistyped.err
    own.rename(policy.with_name("other.test.yaml"))
    orphans = gpubroker("policy", "test", policy.with_name("other.test.yaml"))
    assert "there is no policy file other.yaml to test\nhint: name the policy files" in orphans.err


def test_keys_of_cases_in_the_wrong_place_are_told_where_they_belong(gpubroker: Any, policy: Path, write: Any) -> None:
    case = "{name: c, max_duration: 10h, price: $4, job: {user: ann}, expects: allow, offer: {gpu: L4, spent: {}}}"
    wrong = gpubroker("policy", "test", write("policy.test.yaml", f"cases:\n  - {case}\n"))
    assert wrong.code == 2
    for told in (
        "max_duration: belongs under `job:`, not beside it",
        "price: belongs under `offer:`, not beside it",
        "job.user: belongs beside `job:`, not in it",
        "expects: unknown key; did you mean 'expect'?",
        "offer.gpu: unknown key; known here: accelerator, age, capacity_type, count,",
        "offer.spent: belongs beside `offer:`, not in it",
    ):
        assert re.search(rf"policy.test.yaml:2:\d+: cases\[0\].{re.escape(told)}", wrong.err), told


def test_a_cluster_named_like_a_country_is_in_the_eu_only_if_the_policy_lists_it(gpubroker: Any, write: Any) -> None:
    def failed(run_in: str) -> Any:
        head = "version: 1\nbudgets: [{name: b, amount: $90, period: day}]\n"
        write("p.yaml", f"{head}guardrails: [{{name: g, data_residency: {{data: eu, run_in: [{run_in}]}}}}]\n")
        cases = """policies: p.yaml
cases:
  - {name: listed, expect: allow, offer: {provider: slurm, region: it-cluster}, job: {data: {location: aws/eu-west-1}}}
  - {name: away, expect: deny, offer: {provider: aws, region: us-east-1}, job: {data: {location: slurm/us-cluster}}}
"""
        return gpubroker("policy", "test", write("p.test.yaml", cases), "--json").json["cases"]

    listed, away = failed("eu, slurm/it-cluster")
    assert (listed["passed"], away["passed"]) == (True, True)
    unlisted, _ = failed("eu")
    assert not unlisted["passed"]
    assert "list it: `run_in: [eu, slurm/it-cluster]`" in str(unlisted)


def test_files_of_cases_are_no_policies(gpubroker: Any, policy: Path, write: Any) -> None:
    cases = write("policy.test.yaml", CASES)
    document = gpubroker("policy", "check", cases.parent, "--json").json
    assert {rule["source"].partition(":")[0] for rule in document["rules"]} == {str(policy)}
    for command in ("check", "apply"):
        both = gpubroker("policy", command, policy, cases)
        assert both.code == 0
        assert f"note: ignored files of test cases: {cases}; to run them: gpubroker policy test {cases}" in both.err
        assert gpubroker("policy", command, policy, cases, "--json").json["left_out"] == [str(cases)]
        alone = gpubroker("policy", command, cases)
        assert alone.code == 2
        assert f"{cases}: contains test cases, not rules" in alone.err
        assert f"hint: to run them: `gpubroker policy test {cases}`" in alone.err
    assert gpubroker("policy", "check", policy, "--json").json["left_out"] == []
    wrong = gpubroker("policy", "test", write("x.test.yaml", "policies: policy.yaml\ncases: [{name: a, expect: no}]"))
    assert wrong.code == 2
    assert "x.test.yaml:2" in wrong.err


def test_explain_shows_what_the_rules_saw(gpubroker: Any, sandbox_job: Path, policy: Path) -> None:
    shown = gpubroker("policy", "explain", sandbox_job).out
    assert "Facts: user " in shown
    assert "budget pretend from" in shown
    document = gpubroker("policy", "explain", sandbox_job, "--json").json
    assert document["inputs"]["action"]["kind"] == "launch"
    assert document["inputs"]["facts"]["budgets"]["pretend"][0]["spent"] == "0.00"


def past(gpubroker: Any, policy: Path) -> dict[str, Any]:
    """The recorded decisions as these files judge them."""
    found: dict[str, Any] = gpubroker("policy", "apply", "--dry-run", policy, "--json").json["past"]["decisions"]
    return found


def test_a_submitted_job_is_explained_from_the_record_and_replayed(gpubroker: Any, write: Any, policy: Path) -> None:
    file = write("job.yaml", "name: tiny\nrun: echo\nresources: {accelerators: 'L4:1'}\n"
                 "constraints: {providers: [sandbox]}\nmax_duration: 1h\nmax_cost: $2\n")  # fmt: skip
    submitted = gpubroker("submit", file, "--yes", "--detach", "--json")
    assert submitted.code == 0, submitted.err
    explained = gpubroker("policy", "explain", "tiny")
    assert explained.code == 0
    assert "launch on sandbox/" in explained.out
    (decision,) = gpubroker("policy", "explain", "tiny", "--json").json["decisions"]
    assert {verdict["name"] for verdict in decision["verdicts"]} >= {"real", "pretend", "prices", "membership"}
    assert len(decision["facts_hash"]) == 64
    assert gpubroker("policy", "explain", "unheard-of").code == 2

    same = past(gpubroker, policy)
    assert (same["decisions"], same["same"], same["differences"]) == (1, 1, [])
    strict = write("strict.yaml", "version: 1\nbudgets: [{name: p, amount: $0.01, period: day, counts: [sandbox]}]\n")
    (difference,) = past(gpubroker, strict)["differences"]
    assert (difference["before"], difference["after"]) == ("allow", "deny")
    assert difference["objections"][0]["name"] == "p"
    shown = gpubroker("policy", "apply", "--dry-run", strict).out
    assert "1 decision judged again, 0 unchanged." in shown


def test_what_a_rule_says_stands_in_the_table_and_in_json(gpubroker: Any, write: Any) -> None:
    file = write(
        "p.yaml",
        "version: 1\nbudgets:\n  - {name: b, amount: $9, period: month, action: stop}\n"
        "  - {name: f, amount: $8, period: fixed, from: 2026-11-01, to: 2026-11-30}\nguardrails:\n"
        "  - {name: p, max_price_per_gpu_hour: {H100: $4, default: $3}}\n"
        "  - {name: c, max_job_cost: $5, action: ask, approvers: [olga, bob]}\n"
        "  - {name: l, reference_prices: forbidden}\n",
    )
    shown = " ".join(gpubroker("policy", "check", file).out.split())
    for said in (
        "budget: $9 per month; stops",
        "budget: $8 2026-11-01 to 2026-11-30",
        "max_price_per_gpu_hour: {H100: $4, default: $3}",
        "max_job_cost: $5; asks olga or bob",
        "reference_prices: forbidden",
    ):
        assert said in shown
    rules = {rule["name"]: rule for rule in gpubroker("policy", "check", file, "--json").json["rules"]}
    assert rules["c"]["approvers"] == ["olga", "bob"]
    assert rules["p"]["says"] == {"name": "p", "max_price_per_gpu_hour": {"H100": "$4", "default": "$3"}}


def test_explain_says_whom_the_policy_asks(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    text = "version: 1\nbudgets: [{name: s, amount: $900, period: month, counts: [sandbox]}]\nguardrails:\n"
    asks = write("asks.yaml", f"{text}  - {{name: c, max_job_cost: $0.01, action: ask, approvers: [olga]}}\n")
    assert "The policy asks olga first." in gpubroker("policy", "explain", sandbox_job, "--policy", asks).out


def test_a_file_that_is_not_there_is_said_with_the_one_that_was_meant(gpubroker: Any, policy: Path) -> None:
    done = gpubroker("policy", "check", policy.with_name(f"x{policy.name}"))
    assert done.code == 2
    assert "the file does not exist" in done.err
    assert f"did you mean '{policy.name}'?" in done.err


DEFAULTS = """\
version: 1
defaults:
  max_duration: 12h
capacity:
  order: [owned, spot]
  wait_for_paid: 2h
  exceptions:
    - {scope: {workload: inference}, order: [on_demand]}
budgets: [{name: b, amount: $9, period: month}]
priorities: {urgent: {preempts: true}}
"""


def test_each_default_is_shown_with_whose_it_is(gpubroker: Any, write: Any) -> None:
    file, other = write("p.yaml", DEFAULTS), write("q.yaml", "version: 1\ndefaults: {max_duration: 20h}\n")
    assert gpubroker("policy", "apply", file, other).code == 0
    for command in (("show",), ("check", file, other)):
        shown = gpubroker("policy", *command).out.splitlines()
        for said, where in (
            ("a job without max_duration is stopped after 12h 00m", f"{file}:3"),
            ("cash may be spent", f"{file}:9"),
            ("jobs wait up to 2h 00m for paid capacity before they rent", f"{file}:6"),
            ("capacity order: owned, spot", f"{file}:5"),
            ("capacity order for workload inference: on_demand", f"{file}:8"),
            (
                "jobs may take the places of lower priorities: urgent (of each job after 30m 00s, 3 times a day)",
                f"{file}:10",
            ),
        ):
            assert f"{said} ({where})" in shown
    document = gpubroker("policy", "show", "--json").json["active"]
    assert document["defaults_said_at"] == {
        "max_duration": f"{file}:3", "grants_cash": f"{file}:9", "capacity_order": f"{file}:5",
        "wait_for_paid": f"{file}:6", "preempts": f"{file}:10",
    }  # fmt: skip
    assert document["capacity_exceptions"] == [
        {"scope": "workload inference", "order": ["on_demand"], "source": f"{file}:8"}
    ]


def test_defaults_that_nobody_says_are_built_in(gpubroker: Any, write: Any) -> None:
    shown = gpubroker("policy", "check", write("p.yaml", "version: 1\npolicy: x\n")).out.splitlines()
    assert "a job without max_duration is stopped after 24h 00m (built in)" in shown
    assert "no budget grants cash, so none is spent (built in)" in shown


@pytest.mark.parametrize("width", [80, 140])
def test_for_whom_and_when_a_rule_applies_is_shown_at_any_width(width: int) -> None:
    text = (
        "version: 1\nguardrails:\n  - {name: large-runs-by-day, max_job_duration: 8h, scope: {environment: research},"
        " when: 'spend.asked > 5000.0 && hour_in(\"Europe/Paris\") >= 8'}\n"
    )
    told = io.StringIO()
    console = Console(file=told, width=width)
    policy = CheckedPolicy.of(load({"/policies/of/the/company/enterprise.yaml": text}), [])
    console.print(*rule_table(console, policy))
    lines = told.getvalue().splitlines()
    shown = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    for said in ("max_job_duration: 8h", "environment research", "spend.asked", ">= 8"):
        assert said in shown
