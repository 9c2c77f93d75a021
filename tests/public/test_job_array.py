"""Many jobs out of one: names, variables, and what cannot be varied."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from gpubroker import InvalidInput, Job
from gpubroker.job_array import combinations

JOB = Job(name="sweep", run="echo $A $B", envs={"A": "0", "C": "c"})


def test_each_combination_is_a_job_the_last_name_varying_fastest() -> None:
    found = list(combinations(JOB, {"A": [1e-4, "x"], "B": range(2)}))
    assert [one.name for one in found] == ["sweep-0", "sweep-1", "sweep-2", "sweep-3"]
    assert [(one.envs["A"], one.envs["B"]) for one in found] == [
        ("0.0001", "0"), ("0.0001", "1"), ("x", "0"), ("x", "1"),
    ]  # fmt: skip
    assert {one.envs["C"] for one in found} == {"c"}


def test_names_stay_unique_and_short_enough() -> None:
    found = [one.name for one in combinations(JOB.model_copy(update={"name": "n" * 63}), {"A": range(101)})]
    assert len(set(found)) == 101
    assert {len(name) for name in found} == {63}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "nothing to vary"),
        ({"A": []}, "nothing to vary"),
        ({"1A": [1]}, "expected the name of a variable"),
        ({"A": range(101), "B": range(100)}, "10,100 jobs at once"),
    ],
)
def test_what_cannot_be_varied_is_refused(values: dict[str, Iterable[object]], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        list(combinations(JOB, values))
