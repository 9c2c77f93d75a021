"""The plan of an array says what its submission says."""

from typing import Any

import pytest

from tests.this_machine import CPUS

JOB = (
    "name: sweep\nresources: {accelerators: 'L4:1'}\nconstraints: {providers: [sandbox]}\nmax_duration: 2h\n"
    "array: {range: 6, parallel: 3}\nrun: x\n"
)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            "budgets: [{name: small, amount: $2, period: month, counts: [sandbox]}]",
            "of 3 tasks at once only 1 may begin",
        ),
        (
            "budgets: [{name: b, amount: $99, period: month, counts: [sandbox]}]\n"
            "guardrails: [{name: ask, approve_above: {gpus: 2, approvers: root}}]",
            "an array does not wait for an approval",
        ),
    ],
)
def test_a_plan_refuses_an_array_as_its_submission_does(gpubroker: Any, write: Any, rule: str, says: str) -> None:
    assert gpubroker("policy", "apply", write("p.yaml", f"version: 1\n{rule}\n")).code == 0
    job = write("job.yaml", JOB)
    planned = gpubroker("plan", job, "--json")
    assert (planned.code, planned.json["verdict"]["answer"]) == (3, "deny"), planned.out + planned.err
    assert says in planned.json["refusal"]["message"]
    assert "Allowed" not in gpubroker("plan", job).out
    refused = gpubroker("submit", job, "--yes", "--detach")
    assert (refused.code, says in refused.err) == (3, True), refused.err
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []


def test_as_many_tasks_begin_as_fit_on_this_machine(gpubroker: Any, write: Any) -> None:
    fit = min(int(CPUS), 40)
    job = write(
        "job.yaml", "name: many\nresources: {cpus: 1, memory: 16MB}\narray: {range: 50, parallel: 40}\nrun: x\n"
    )
    [note] = [note for note in gpubroker("plan", job, "--json").json["notes"] if note.startswith("an array of 50")]
    assert f"50 tasks, {fit} at once: the plan is for one of them (not 40, as no more fit)" in note
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    assert gpubroker("jobs", "list", "--json").json["jobs"][0]["tasks"]["not_started"] == 50 - fit
