"""`gpubroker plan`: placements, money, verdict, reasons, and the exit code of each way to fail."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.cli.jobs import follow
from broker.cli.render import formats
from broker.core.values.money import Money

OWNED_SETTINGS = '[providers.owned]\nwatts = 850\nusd_per_kwh = 0.31\npue = 1.2\namortised_per_hour = "8.50"\n'
SECOND = timedelta(seconds=1)


def test_a_job_this_machine_can_run(gpubroker: Any, job: Path) -> None:
    done = gpubroker("plan", job)
    assert done.code == 0
    assert "owned/local" in done.out
    assert "No policy is active: owned and sandbox capacity only" in done.out
    assert "nothing is held" in done.out
    document = gpubroker("plan", job, "--json").json
    (best,) = document["placements"]
    assert best["offer"]["provider"] == "owned"
    assert best["duration"] >= 60
    assert document["feasible"] + document["rejected"] == document["offers_seen"]
    assert document["exit_code"] == 0
    assert document["verdict"]["answer"] == "allow"
    assert document["hold"] == {}


def test_terms_add_up_to_the_cost_and_all_is_explained(gpubroker: Any, sandbox_job: Path, policy: Path) -> None:
    document = gpubroker("plan", sandbox_job, "--json").json
    for placement in document["placements"]:
        total = sum(round(float(term["amount"]) * 1e6) for term in placement["terms"])
        assert total == round(float(placement["expected_cost"]) * 1e6)
    explained = gpubroker("plan", sandbox_job, "--explain").out
    assert "compute" in explained
    assert "start-up" in explained
    assert "[wrong_accelerator]" in explained
    assert "fix:" in explained
    rejected = document["rejected"]
    assert f"Rejected: {rejected:,} of" in explained


def test_without_a_placement_what_can_be_changed_comes_first_and_the_rest_is_folded(gpubroker: Any, write: Any) -> None:
    text = "name: none\nrun: x\nresources: {accelerators: 'H100:1'}\nwork: 1h\n"
    done = gpubroker("plan", write("none.yaml", text))
    assert done.code == 4
    rows = [line for line in done.out.splitlines() if " × " in line]
    assert "[" in rows[0]
    assert "[wrong_accelerator]" not in done.out
    assert "excluded by the job itself" in rows[-1]
    assert "wrong_accelerator" in rows[-1]
    assert "[wrong_accelerator]" in gpubroker("plan", "none.yaml", "--explain").out


def test_a_missing_spot_price_is_named_and_its_fix_works(gpubroker: Any, write: Any) -> None:
    text = "run: x\nresources: {accelerators: 'V100:8'}\nconstraints: {providers: [aws], capacity_types: [%s]}\n"
    done = gpubroker("plan", write("spot.yaml", text % "spot"))
    first, example, fix = done.out.partition("Rejected")[2].splitlines()[1:4]
    assert "1 × a capacity type the job excludes" in first
    assert "aws/us-east-1/p3.16xlarge" in example
    assert fix.strip().startswith("fix: `capacity_types: [spot, on_demand]` under `constraints:`; no spot price")
    assert "[wrong_capacity_type]" not in gpubroker("plan", write("spot.yaml", text % "spot, on_demand")).out


def test_a_team_that_nobody_knows_is_warned_of(gpubroker: Any, write: Any) -> None:
    files = {team: write(f"{team}.yaml", f"name: x\nrun: x\nteam: {team}\n") for team in ("nlp", "npl")}
    assert "in team" not in gpubroker("plan", files["npl"]).out, "no team is known at all"
    budget = "budgets: [{name: b, amount: $5, period: month, timezone: UTC, scope: {team: nlp}}]"
    first = gpubroker("policy", "apply", write("policy.yaml", f"version: 1\npolicy: p\n{budget}\n"))
    assert "No policy was active" in first.err
    warned = "warning: no person has a role in team 'npl', and no policy names it; did you mean 'nlp'?"
    assert [warned in gpubroker("plan", file).out for file in files.values()] == [False, True]


def test_a_team_that_no_policy_lists_is_a_mistake_of_the_job_file(gpubroker: Any, write: Any) -> None:
    teams = write("policy.yaml", "version: 1\npolicy: p\nteams: {nlp: {members: ['*']}}\n")
    file = write("x.yaml", "name: x\nteam: nlpp\nrun: x\nresources: {accelerators: 'H100:8'}\n")
    assert gpubroker("policy", "apply", teams).code == 0
    for command in (("plan", file), ("submit", file, "--yes")):
        done = gpubroker(*command)
        assert (done.code, done.out) == (2, "")
        assert "x.yaml:2:7: team: no policy lists a team 'nlpp'; did you mean 'nlp'?" in done.err
    assert "error: --team: no policy lists a team 'x'; known here: nlp" in gpubroker("plan", file, "--team", "x").err
    others = write("others.yaml", "version: 1\npolicy: p\nteams: {nlpp: {members: ['*']}}\n")
    assert "no policy lists" not in gpubroker("plan", file, "--policy", others).err


def test_a_project_like_one_that_a_policy_names_is_warned_of_first(gpubroker: Any, write: Any) -> None:
    budget = "{name: b, amount: $5, period: month, timezone: UTC, scope: {project: [chatbot, 'web-*']}}"
    assert gpubroker("policy", "apply", write("policy.yaml", f"version: 1\npolicy: p\nbudgets: [{budget}]\n")).code == 0
    warned = "warning: no policy names project 'chatbto'; did you mean 'chatbot'?"
    for project, count in (("chatbot", 0), ("chatbto", 1), ("web-1", 0), ("other", 0)):
        done = gpubroker("plan", write("x.yaml", f"name: x\nrun: x\nproject: {project}\n"))
        assert done.out.count("no policy names project") == count
        assert not count or done.out.splitlines()[1] == warned


@pytest.mark.parametrize(("option", "amount"), [("cpus", "5000"), ("memory", "90000")])
def test_the_fix_of_an_amount_that_no_machine_has_makes_the_plan_succeed(
    gpubroker: Any, option: str, amount: str
) -> None:
    def run(command: str, value: str, *more: str) -> Any:
        return gpubroker(command, f"--{option}", value, *more, "--", "sleep", "5")

    reasons = run("plan", amount, "--json").json["reasons"]
    (fix,) = (reason["what_would_change_it"] for reason in reasons if reason["reason"].startswith("too_"))
    value = fix.partition(f"`{option}: ")[2].partition("`")[0]
    assert run("plan", value).code == 0
    refused = run("submit", amount, "--yes")
    assert (refused.code, "hint:" in refused.err) == (4, False), "the plan says what to change"


def test_a_job_of_unknown_work_is_shown_with_the_cost_of_its_own_limit(gpubroker: Any, sandbox_job: Path) -> None:
    text = sandbox_job.read_text().replace("work: 2h\n", "").replace("max_duration: 6h", "max_duration: 15m")
    sandbox_job.write_text(text)
    (best, *_) = gpubroker("plan", sandbox_job, "--json").json["placements"]
    rate, hour, longest = (Money.usd(best[key]) for key in ("rate_per_hour", "expected_cost", "longest_cost"))
    assert hour - longest == rate - rate.share(1, 4)
    shown = gpubroker("plan", sandbox_job).out
    assert f"up to {formats.money(longest)}" in shown
    assert "costs are for its `max_duration` of 15m" in shown
    sandbox_job.write_text(text.replace("max_duration: 15m\n", ""))
    assert gpubroker("plan", sandbox_job, "--json").json["placements"][0]["longest_cost"] is None
    assert f"{formats.money(hour)} /h" in gpubroker("plan", sandbox_job).out


def test_a_note_that_warns_is_labelled_once(gpubroker: Any, write: Any) -> None:
    text = "name: long\nrun: x\nresources: {accelerators: 'L4:1'}\nconstraints: {providers: [sandbox]}\n"
    done = gpubroker("plan", write("long.yaml", text + "work: 90h\nmax_duration: 1h\n"))
    assert "warning: the best placement needs about" in done.out
    assert "note: warning" not in done.out


def test_a_simple_job_has_no_notes_and_others_at_most_three_before_all_are_asked_for(
    gpubroker: Any, write: Any
) -> None:
    assert "note: " not in gpubroker("plan", write("hello.yaml", "run: echo hello\n")).out
    text = (
        "run: 'a\n\n  b'\ndata: {sensitive: true, location: aws/us-east-1}\nenvs: {API_TOKEN: abcdef}\ndeadline: 9h\n"
    )
    file = write("odd.yaml", text)
    few, all_ = (gpubroker("plan", file, *more).out for more in ((), ("--explain",)))
    labels = [line.partition(":")[0] for line in few.splitlines() if line.startswith(("note: ", "warning: "))]
    assert labels == ["warning", "note", "note"]
    assert "more notes" in few
    assert all_.count("\nnote: ") > 3


@pytest.mark.parametrize("work", ["work: 2h\n", ""])
@pytest.mark.parametrize("value", ["$2.50", ""])
def test_what_is_ranked_by_is_itemised_too(
    gpubroker: Any, sandbox_job: Path, write: Any, work: str, value: str
) -> None:
    text = sandbox_job.read_text().replace("work: 2h\n", work)
    file = write("valued.yaml", text + (f"value_of_time: {value}\n" if value else ""))
    placements = gpubroker("plan", file, "--json").json["placements"]
    ranked = [micros(placement["ranked_by"]) for placement in placements]
    assert ranked == sorted(ranked)
    for placement in placements:
        terms = [micros(term["amount"]) for term in placement["terms"] + placement["ranking_terms"]]
        assert sum(terms) == micros(placement["ranked_by"])
        named = {term["name"]: term["how"] for term in placement["ranking_terms"]}
        assert named.get("value of time", "").endswith("× $2.50/h" if value else "")
        assert ("for a useful hour" in named) == (not work)
    explained = gpubroker("plan", file, "--explain").out
    assert ("= ranking value" in explained) == bool(value or not work)


def micros(usd: str) -> int:
    return round(float(usd) * 1e6)


def test_as_many_placements_are_explained_as_are_shown(gpubroker: Any, sandbox_job: Path) -> None:
    for limit in (1, 5):
        explained = gpubroker("plan", sandbox_job, "--explain", "-n", str(limit)).out
        assert sum(" per useful hour; " in line for line in explained.splitlines()) == limit


def test_what_an_hour_is_worth_by_policy_is_itemised_with_its_figure(
    gpubroker: Any, sandbox_job: Path, policy: Path
) -> None:
    policy.write_text(policy.read_text() + "defaults: {value_of_time: $3}\n")
    (best,) = gpubroker("plan", sandbox_job, "--policy", policy, "-n", "1", "--json").json["placements"]
    (term,) = best["ranking_terms"]
    assert term["how"].endswith("× $3.00/h")
    assert micros(term["amount"]) == pytest.approx(3e6 * best["duration"] / 3600, abs=1)


def test_nothing_can_satisfy_it_exits_4_with_counted_reasons(gpubroker: Any, write: Any) -> None:
    file = write("job.yaml", "run: echo\nresources: {accelerators: 'H100:8'}\n")
    done = gpubroker("plan", file)
    assert done.code == 4
    assert "No placement" in done.out
    assert "× fewer accelerators per machine" in done.out
    document = gpubroker("plan", file, "--json")
    assert document.code == 4
    reasons = {reason["reason"]: reason["count"] for reason in document.json["reasons"]}
    assert reasons["wrong_accelerator"] > 0
    assert sum(reasons.values()) == document.json["offers_seen"]
    assert all(reason["what_would_change_it"] for reason in document.json["reasons"])


def test_a_deadline_nobody_can_meet_exits_4(gpubroker: Any, write: Any) -> None:
    file = write("job.yaml", "run: echo\nresources: {cpus: 1}\nwork: 10h\ndeadline: 1h\n")
    done = gpubroker("plan", file, "--json")
    assert done.code == 4
    assert "misses_deadline" in [reason["reason"] for reason in done.json["reasons"]]


def test_over_budget_exits_3_with_budget_asked_and_left(gpubroker: Any, sandbox_job: Path, policy: Path) -> None:
    done = gpubroker("plan", sandbox_job)
    assert done.code == 3
    assert "Denied" in done.out
    assert "budget pretend of $3.00 for" in done.out
    assert "; $3.00 is left (" in done.out
    verdicts = gpubroker("plan", sandbox_job, "--json").json["verdict"]["verdicts"]
    (denial,) = [verdict for verdict in verdicts if verdict["answer"] == "deny"]
    assert denial["figures"]["budget"] == "pretend"
    assert denial["figures"]["left"] == "3.00"
    assert float(denial["figures"]["asked"]) > 3


def test_every_placement_denied_exits_3(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    strict = write("strict.yaml", "version: 1\nguardrails: [{name: tight, max_price_per_gpu_hour: $0.01}]\n")
    assert gpubroker("policy", "apply", strict).code == 0
    done = gpubroker("plan", sandbox_job)
    assert done.code == 3
    assert "denied_by_policy" in done.out


def test_what_if_judges_by_other_files_and_changes_nothing(
    gpubroker: Any, sandbox_job: Path, policy: Path, write: Any
) -> None:
    rich = write("rich.yaml", "version: 1\nbudgets: [{name: more, amount: $900, period: month, counts: [sandbox]}]\n")
    done = gpubroker("plan", sandbox_job, "--policy", rich)
    assert done.code == 0
    assert "by these policy files" in done.out
    assert gpubroker("policy", "show", "--json").json["active"]["number"] == 1
    assert gpubroker("plan", sandbox_job).code == 3


def test_what_if_switches_hold_for_the_planner_too(gpubroker: Any, write: Any) -> None:
    """`allow_reference_prices` and the like are read from the what-if files, not from the active policy."""
    file = write("job.yaml", "run: echo\nresources: {cpus: 1}\nmax_duration: 1h\n")
    gpus = write("gpus.yaml", "version: 1\ndefaults: {cpu_jobs_on_gpus: true}\n")
    strict = {r["reason"] for r in gpubroker("plan", file, "--json").json["reasons"]}
    loose = {r["reason"] for r in gpubroker("plan", file, "--policy", gpus, "--json").json["reasons"]}
    assert "not_a_cpu_offer" in strict
    assert "not_a_cpu_offer" not in loose


def test_a_policy_named_by_the_environment_is_adopted(
    gpubroker: Any, job: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("team.yaml", "version: 1\nbudgets: [{name: b, amount: $9, period: month}]\n")
    monkeypatch.setenv("GPUBROKER_POLICY", str(file))
    done = gpubroker("plan", job)
    assert done.code == 0
    assert "Adopted" in done.err
    assert "Adopted" not in gpubroker("plan", job).err
    assert gpubroker("policy", "show", "--json").json["active"]["note"] == "adopted from GPUBROKER_POLICY"


def test_offers_that_cost_more_than_the_job_may_are_counted(gpubroker: Any, sandbox_job: Path, policy: Path) -> None:
    assert gpubroker("plan", sandbox_job, "--json").json["over_max_cost"] == 0
    sandbox_job.write_text(sandbox_job.read_text() + "max_cost: $1\n")
    document = gpubroker("plan", sandbox_job, "--json", "--limit", "1000").json
    costs = [float(placement["expected_cost"]) for placement in document["placements"]]
    over = sum(cost > 1 for cost in costs)
    assert 0 < over < len(costs) == document["feasible"]
    assert document["over_max_cost"] == over
    explained = gpubroker("plan", sandbox_job, "--explain").out
    assert f"match, {over} of them above the job's max_cost of $1.00;" in explained


def test_what_cannot_be_submitted_promises_no_hold(gpubroker: Any, sandbox_job: Path, write: Any) -> None:
    budget = "version: 1\npolicy: p\nbudgets: [{name: pretend, amount: %s, period: month, counts: [sandbox]}]\n"
    assert gpubroker("policy", "apply", write("p.yaml", budget % "$100")).code == 0
    allowed = gpubroker("plan", sandbox_job)
    assert "is held at submission" in allowed.out
    assert gpubroker("plan", sandbox_job, "--json").json["hold"] != {}
    assert gpubroker("policy", "apply", "--yes", write("p.yaml", budget % "$0.01")).code == 0
    denied = gpubroker("plan", sandbox_job)
    assert denied.code == 3
    assert "Denied by the active policy" in denied.out
    assert "is held" not in denied.out
    assert gpubroker("plan", sandbox_job, "--json").json["hold"] == {}


def test_a_secret_under_envs_is_warned_of_and_never_shown(gpubroker: Any, write: Any) -> None:
    file = write("x.yaml", "name: x\nrun: train | tee log\nenvs: {HF_TOKEN: hf_abcdefGHIJKLmnop}\n")
    for done in (
        gpubroker("plan", file),
        gpubroker("plan", file, "--json"),
        gpubroker("submit", file, "--yes", "--detach"),
    ):
        assert "HF_TOKEN looks like a secret" in done.out
        assert "set -o pipefail" in done.out
        assert "hf_" not in done.out + done.err


def test_an_owned_hour_costs_the_same_at_every_door(
    gpubroker: Any, job: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    """Electricity and wear. Depreciation is in showback alone."""
    reconciled_by(follow)
    Path("gpubroker.toml").write_text(OWNED_SETTINGS)
    job.write_text(job.read_text() + "max_cost: $0.01\n")
    plan = gpubroker("plan", job, "--json").json
    rate = Money.usd(plan["placements"][0]["rate_per_hour"])
    (hold,) = plan["hold_terms"]
    (offer,) = gpubroker("offers", "--where", "provider=owned", "--json").json["offers"]
    assert offer["price_per_hour"] == "0.3162"
    assert Money.usd("0.3162") >= rate > Money.ZERO
    assert Money.usd(hold["rate_per_hour"]).micros == pytest.approx(rate.micros, abs=1)
    assert hold["limited_by"] == "max_duration", "max_cost is cash, which no owned machine costs"
    assert "or $0.01" not in gpubroker("plan", job).out

    assert gpubroker("submit", job, "--yes").code == 0
    done = gpubroker("status", "tiny", "--json").json
    (attempt,) = done["attempts"]
    up, gone = (datetime.fromisoformat(attempt[name]) for name in ("up_since", "gone_at"))
    cost = Money.usd(done["cost"]["amortised"])
    assert abs((cost - rate.for_duration(SECOND * ceil((gone - up) / SECOND))).micros) <= 1
    assert gpubroker("report", "spend", "--json").json["total"]["amortised"] == done["cost"]["amortised"]

    back = gpubroker("report", "showback", "--month", f"{up:%Y-%m}", "--json").json["total"]
    worn = Money.usd(back["depreciation"])
    assert back["amortised"] == done["cost"]["amortised"]
    assert Money.usd(back["total"]) == cost + worn
    hourly = rate.micros * 8.5 / 0.3162  # the job's part of the machine is the same
    assert worn.micros == pytest.approx(hourly * ((gone - up) / timedelta(hours=1)), abs=2)
