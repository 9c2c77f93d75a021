"""Which priorities preempt, when several files say so."""

from datetime import timedelta

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.jobs import Priority
from broker.core.ports import PreemptionRight
from policies.loader import load

MINUTE = timedelta(minutes=1)


def rights(*files: str) -> tuple[PreemptionRight, ...]:
    texts = {f"{i}.yaml": f"version: 1\npolicy: p{i}\n{text}" for i, text in enumerate(files)}
    return load(texts).defaults.preempts


def test_no_priority_preempts_unless_a_file_says_so() -> None:
    assert rights("") == ()
    assert rights("priorities: {urgent: {preempts: false}}") == ()
    (right,) = rights("priorities: {urgent: {preempts: true}}")
    assert right == PreemptionRight(Priority.URGENT, 30 * MINUTE, 3)


def test_all_files_must_agree_and_the_strictest_limits_apply() -> None:
    first = "priorities: {high: {preempts: true, min_runtime: 5m, per_day: 1}, urgent: {preempts: true}}"
    second = "priorities: {high: {preempts: true, min_runtime: 9m, per_day: 2}, urgent: {preempts: false}}"
    assert rights(first, second) == (PreemptionRight(Priority.HIGH, 9 * MINUTE, 1),)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{}", "is empty"),
        ("{urgent: {}}", "preempts"),
        ("{urgent: {preempts: yes please}}", "true or false"),
        ("{asap: {preempts: true}}", "urgent"),
        ("{urgent: {preempts: true, per_day: 0}}", "1"),
        ("{urgent: {preempts: true, min_runtime: 0s}}", "min_runtime"),
    ],
)
def test_what_makes_no_sense_is_refused(written: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rights(f"priorities: {written}")
    (problem,) = caught.value.problems
    assert said in f"{problem.key}: {problem.message}"


def test_its_place_is_known() -> None:
    policies = load(
        {"a.yaml": "version: 1\npolicy: a\n", "b.yaml": "version: 1\npriorities: {urgent: {preempts: true}}\n"}
    )
    assert str(policies.said_at["preempts"]) == "b.yaml:2"
