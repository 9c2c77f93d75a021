"""The plan of an array says what its submission says."""

from typing import Any

import pytest

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
