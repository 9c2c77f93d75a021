"""Files of several documents: each job comes after the one before it."""

from datetime import UTC, datetime

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_jobs
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job

NOW = datetime(2026, 11, 25, tzinfo=UTC)


def jobs(text: str, **more: object) -> list[Job]:
    return parse_jobs(text, file="pipe.yaml", now=NOW, overrides=JobOverrides(**more))  # type: ignore[arg-type]  # each test gives right ones


def mistakes(text: str, **more: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        jobs(text, **more)
    return [f"{problem.line} {problem.key}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize("header", ["", "name: whole\n---\n", "name: whole\nexecution: serial\n---\n", "---\n---\n"])
def test_each_task_comes_after_the_one_before_it(header: str) -> None:
    found = jobs(f"{header}name: first\nrun: a\n---\nname: second\nrun: b\n---\nname: third\nrun: c\n")
    assert [job.name for job in found] == ["first", "second", "third"]
    assert [[one.job for one in job.after] for job in found] == [[], ["first"], ["second"]]


def test_a_file_of_one_document_is_one_job() -> None:
    (job,) = jobs("run: a\n---\n")
    assert (job.name, job.after) == ("pipe", ())


def test_tasks_without_names_are_numbered() -> None:
    assert [job.name for job in jobs("run: a\n---\nrun: b\n")] == ["pipe-1", "pipe-2"]


def test_what_a_task_says_itself_stands() -> None:
    first, second, third = jobs("run: a\n---\nrun: b\n---\nrun: c\nafter: {job: pipe-1, when: ended}\n")
    assert (first.after, second.after[0].job, third.after[0].job) == ((), "pipe-1", "pipe-1")


def test_variables_are_for_every_task() -> None:
    found = jobs("run: a\nenvs: {B: null}\n---\nrun: b\n", envs={"B": "x"})
    assert [job.envs for job in found] == [{"B": "x"}, {"B": "x"}]


def test_jobs_side_by_side_are_refused_with_what_to_write() -> None:
    (said,) = mistakes("name: x\nexecution: parallel\n---\nrun: a\n---\nrun: b\n")
    assert said.startswith("2 execution: ")
    assert "`num_nodes:`" in said
    (said,) = mistakes("name: x\nexecution: paralel\n---\nrun: a\n")
    assert "did you mean 'parallel'?" in said


def test_two_tasks_of_one_name_are_refused() -> None:
    (said,) = mistakes("name: x\nrun: a\n---\nname: x\nrun: b\n")
    assert said == "4 name: two tasks are called x; give each a name of its own"


def test_one_name_is_not_for_several_tasks() -> None:
    (said,) = mistakes("run: a\n---\nrun: b\n", name="mine")
    assert "the file holds 2 tasks" in said


def test_a_mistake_in_a_later_task_is_told_with_its_line() -> None:
    assert mistakes("run: a\n---\nrun: b\nname: no good\n")[0].startswith("4 name: ")
    assert mistakes("run: a\n---\n- x\n") == ["3 : expected lines of the form 'key: value', got a list"]
