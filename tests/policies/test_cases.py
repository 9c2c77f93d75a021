"""Cases beside a policy file: a job, the facts, the verdict; and what is said when a case is wrong in itself."""

import pytest

from broker.core.errors import InvalidInput
from broker.core.policy.policy import Answer, CaseResult
from policies.loader import load

POLICY = """\
version: 1
budgets:
  - {name: monthly, amount: "$1,000", period: month}
  - {name: pretend, amount: $100, period: month, counts: [sandbox]}
guardrails:
  - {name: prices, max_price_per_gpu_hour: $4}
  - {name: two, max_concurrent_jobs: 2}
  - {name: idle, idle_shutdown: {below: 5%, for: 30m}}
  - {name: office, working_hours: {from: "08:00", to: "20:00"}, scope: {workload: development}}
  - {name: short, max_job_duration: 24h}
  - {name: dear, max_job_cost: $50, scope: {project: sweep}}
  - {name: wide, approve_above: {gpus: 8, approvers: [ann]}, scope: {project: sweep}}
"""


def results(*cases: str) -> list[CaseResult]:
    text = "cases:\n" + "".join(f"  - {{name: c, {case}}}\n" for case in cases)
    return list(load({"p.yaml": POLICY}).try_cases("p.test.yaml", text))


def wrong(case: str) -> str:
    (result,) = results(case)
    return result.wrong


@pytest.mark.parametrize(
    "case",
    [
        "expect: allow",
        'expect: allow, asks: "$1,000"',
        'expect: deny, asks: "$1,000.01", because: monthly',
        "expect: deny, spent: {monthly: $999.50}, because: over_budget",
        "expect: deny, held: {monthly: $999.50}",
        "expect: deny, offer: {accelerator: H100, count: 8, price: $33}, because: [prices, price_above_limit]",
        "expect: allow, offer: {accelerator: H100, count: 8, price: $32}",
        "expect: deny, running: [{}, {}], because: two",
        "expect: allow, running: [{job: a}, {job: a}]",
        "expect: allow, offer: {capacity_type: owned}, spent: {monthly: $5000}",
        "expect: deny, offer: {provider: sandbox, price: $5}, because: pretend",
        'expect: deny, at: "2026-01-10", job: {workload: development}, because: office',
        'expect: allow, at: "2026-01-09T19:59", job: {workload: development}',
        "expect: deny, action: continue, busy: [{ago: 31m}, {ago: 1m, percent: 4%}], because: idle",
        "expect: allow, action: continue, busy: [{ago: 31m, percent: 90%}, {ago: 1m}]",
        "expect: deny, job: {max_duration: 25h}, because: max_job_duration",
        "expect: deny, action: continue, ran_for: 24h, because: short",
        "expect: deny, job: {project: sweep, max_duration: 10h, array: {range: 6, parallel: 1}}, because: dear",
        "expect: allow, job: {project: sweep, max_duration: 10h, array: {range: 5, parallel: 1}}",
        "expect: allow, job: {project: sweep, max_duration: 10h, array: {range: 6, parallel: 1}, max_cost: $50}",
        "expect: ask, job: {project: sweep, max_duration: 1h, array: {range: 9, parallel: 9}}, because: wide, "
        "offer: {accelerator: L4}",
        "expect: allow, job: {project: sweep, max_duration: 10h, array: {range: 99, parallel: 99}}, action: re_place",
        "expect: deny, job: {max_cost: $2,000}, asks: $1,500, because: monthly",
    ],
)
def test_what_is_expected(case: str) -> None:
    if "max_cost" in case:
        case = case.replace("$2,000", '"$2,000"').replace("$1,500", '"$1,500"')
    assert wrong(case) == ""


GPUS = """\
version: 1
guardrails: [{name: gpus, max_concurrent_gpus: 4}]
budgets: [{name: monthly, amount: "$1,000", period: month}]
"""


@pytest.mark.parametrize(
    ("case", "gpus"),
    [
        ('job: {resources: {accelerators: "H100:8"}}', 8),
        ('job: {resources: {accelerators: "H100:2"}, num_nodes: 3}', 6),
        ('job: {resources: {accelerators: ["H100:8", "L4:1"]}}', 8),
        ('job: {resources: {accelerators: "H100:8"}}, offer: {price: $32, region: eu-west-1}', 8),
        ('job: {resources: {accelerators: ["L4:1", "H100:8"]}}, offer: {accelerator: H100}', 8),
    ],
)
def test_a_job_that_names_gpus_is_judged_with_them_whatever_its_offer_leaves_out(case: str, gpus: int) -> None:
    text = f"cases: [{{name: c, {case}, expect: allow}}]"
    (result,) = load({"p.yaml": GPUS}).try_cases("p.test.yaml", text)

    assert result.answer is Answer.DENY
    assert f"{gpus} more GPUs" in result.wrong or f"{gpus} GPUs" in result.wrong, result.wrong


@pytest.mark.parametrize(
    "case",
    [
        "job: {}",
        "job: {resources: {cpus: 64}}",
        'job: {resources: {accelerators: "H100:4"}}',
        'job: {resources: {accelerators: ["L4:1", "H100:8"]}}',
        'job: {resources: {accelerators: "H100:8"}}, offer: {accelerator: H100, count: 4}',
    ],
)
def test_what_a_case_says_of_its_machines_holds(case: str) -> None:
    (result,) = load({"p.yaml": GPUS}).try_cases("p.test.yaml", f"cases: [{{name: c, {case}, expect: allow}}]")

    assert result.wrong == ""


def test_what_is_not_expected_is_said_with_the_rules_words() -> None:
    assert wrong("expect: deny") == "expected deny, got allow: no rule objects"
    assert wrong("expect: allow, running: [{}, {}]") == (
        "expected allow, got deny: 2 jobs are running; the limit is 2; one more passes once 1 of them has ended"
        " (p.yaml:7)"
    )
    assert wrong("expect: deny, running: [{}, {}], because: prices") == (
        "expected an objection by prices; got two (too_many_jobs)"
    )


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("expect: maybe", "expected one of allow, ask, deny; got 'maybe'"),
        ("because: x", "expect: is missing"),
        ("expect: allow, spent: {montly: $5}", "no budget is named 'montly'; did you mean 'monthly'?"),
        ("expect: allow, job: {worklod: training}", "worklod: unknown key; did you mean 'workload'?"),
        ("expect: allow, offer: {accelerator: H1000}", "did you mean 'H100'?"),
        ("expect: allow, running: [{accelerator: H1000}]", "did you mean 'H100'?"),
        ("expect: allow, in_hand: {H1000: {used: 4%}}", "did you mean 'H100'?"),
        ("expect: allow, at: noon", "expected a day, or a day and a time, such as 2026-12-24T18:00; got 'noon'"),
        ("expect: allow, offer: {price: 5}", "expected an amount with currency, such as $900; got '5'"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused_with_its_place(case: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        results("expect: allow", case)

    (problem,) = caught.value.problems
    assert problem.line == 3
    assert said in f"{problem.key.rpartition('.')[2]}: {problem.message}"


def test_mistakes_in_cases_and_in_their_jobs_are_said_at_once_each_with_its_own_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        results(
            "expect: alow, job: {workload: trainig, resources: {accelerators: H1}}",
            "expect: allow, job: {max_csot: $4}",
        )

    assert [f"{p.line}:{p.column} {p.key}" for p in caught.value.problems] == [
        "2:23 cases[0].expect", "2:45 cases[0].job.workload", "2:80 cases[0].job.resources.accelerators",
        "3:36 cases[1].job.max_csot",
    ]  # fmt: skip


def test_a_file_without_cases_is_refused() -> None:
    for text in ("cases: []", "policies: [a]", ""):
        with pytest.raises(InvalidInput):
            load({"p.yaml": POLICY}).try_cases("p.test.yaml", text)
