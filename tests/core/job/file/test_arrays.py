"""`array:` in a job file: which tasks it stands for, and what is said of one that makes no sense."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.job.arrays import JobArray, TaskOf
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import Job, MachineRequest, ResumePoint
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, tzinfo=UTC)
HEAD = "name: sweep\nrun: python train.py\nresources: {cpus: 1}\n"


def read(text: str) -> Job:
    return parse_job(HEAD + text, file="sweep.yaml", now=NOW)


def array(text: str) -> JobArray:
    found = read(f"array: {text}\n").array
    assert found is not None
    return found


def test_a_range_is_so_many_tasks_told_apart_by_their_number() -> None:
    found = array("{range: 100, parallel: 8}")
    assert (found.count, found.at_once, found.parameters(7)) == (100, 8, {})


def test_a_grid_has_each_combination_once_the_last_name_varying_fastest() -> None:
    found = array("{grid: {SEED: 0..2, LR: [1e-4, 3e-4]}}")
    tasks = [found.parameters(number) for number in range(found.count)]
    assert tasks[:3] == [{"SEED": "0", "LR": "1e-4"}, {"SEED": "0", "LR": "3e-4"}, {"SEED": "1", "LR": "1e-4"}]
    assert len({tuple(task.items()) for task in tasks}) == found.count == 6


def test_a_list_has_one_task_for_each_set_of_variables() -> None:
    found = array("{list: [{LR: 1e-4, WIDTH: 64}, {LR: 0.10, WIDTH: 32}]}")
    assert found.count == 2
    assert found.parameters(1) == {"LR": "0.10", "WIDTH": "32"}, "as the file has it, not as YAML reads it"


def test_only_some_tasks_are_run_under_the_numbers_that_they_have_among_all() -> None:
    job = read("array: {grid: {SEED: 4..9}, only: [5, 2]}\n")
    assert job.array is not None
    assert (job.array.count, job.array.at_once, [job.array.number(turn) for turn in range(2)]) == (2, 2, [5, 2])
    assert job.of_task("sweep-abc", 5, deadline=None, max_cost=None).task == TaskOf(array="sweep-abc", index=5, count=6)
    assert parse_job(print_job(job), file="x.yaml", now=NOW) == job


def test_a_task_that_is_run_again_goes_on_from_the_checkpoint_of_its_number() -> None:
    again = JobArray(range=9, only=(3, 4), again=("old-abc",), with_checkpoint=(4,))
    job = read("").model_copy(update={"array": again})
    found = [job.of_task("new-abc", index, deadline=None, max_cost=None).resume_from for index in again.only]
    assert found == [None, ResumePoint(job="old-abc-4")]


def test_a_task_finds_its_number_and_its_parameters_in_variables() -> None:
    job = read("max_cost: $90\nenvs: {MODEL: small}\narray: {grid: {SEED: 4..9}}\n")
    task = job.of_task("sweep-abc", 2, deadline=None, max_cost=Money.usd("9"))
    assert task.envs == {
        "MODEL": "small",
        "SEED": "6",
        "GPUBROKER_ARRAY_ID": "sweep-abc",
        "GPUBROKER_TASK_INDEX": "2",
        "GPUBROKER_TASK_COUNT": "6",
    }
    assert (task.name, task.array, task.max_cost) == ("sweep-2", None, Money.usd("9"))
    assert task.task == TaskOf(array="sweep-abc", index=2, count=6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5", "expected one of `range: 100`"),
        ("{range: 5, list: [{A: 1}]}", "got range and list"),
        ("{parallel: 5}", "got none of them"),
        ("{rnage: 5}", "did you mean 'range'"),
        ("{range: 0}", "0 tasks; expected 1 to 1,000,000"),
        ("{range: 1000001}", "1,000,001 tasks; expected 1 to 1,000,000"),
        ("{range: many}", "range: expected a number of tasks"),
        ("{range: 5, parallel: 0}", "parallel: expected a whole number from 1 to 500"),
        ("{range: 5, parallel: true}", "parallel: expected a whole number from 1 to 500"),
        ("{grid: {A: 0..99999}}", "A: 0..99999 are 100,000 values; expected 1 to 10,000"),
        ("{grid: {A: 9..0}}", "A: 9..0 are 0 values"),
        ("{grid: {A: []}}", "A: expected a list of values, or a span such as 0..9"),
        ("{grid: {}}", "grid: expected variables with their values"),
        ("{grid: {A: 0..999, B: 0..1000}}", "1,001,000 tasks; expected 1 to 1,000,000"),
        ("{grid: {A: [[1], [2]]}}", "A: expected text or a number"),
        ("{grid: {GPUBROKER_RANK: [1]}}", "are set by gpubroker itself"),
        ("{list: [{1x: 2}]}", "expected the name of a variable"),
        ("{list: []}", "0 tasks; expected 1 to 10,000"),
        ("{list: [1, 2]}", "list: expected one set of variables for each task"),
    ],
)
def test_what_makes_no_sense_is_said_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(f"array: {text}\n")
    (problem,) = caught.value.problems
    assert told in problem.message
    assert problem.line == 4


@pytest.mark.parametrize("section", ["envs: {SEED: 1}", "secrets: [SEED]"])
def test_a_variable_has_its_value_from_one_place(section: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(f"{section}\narray: {{grid: {{SEED: 0..3}}}}\n")
    assert [problem.message for problem in caught.value.problems] == [
        f"SEED is also under `{section.partition(':')[0]}`; give it in one place"
    ]


values = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), min_size=1)
names = st.sampled_from(["SEED", "LR", "WIDTH"])
arrays = st.one_of(
    st.builds(JobArray, range=st.integers(1, 10_000), parallel=st.integers(1, 500)),
    st.builds(
        JobArray,
        grid=st.dictionaries(names, values.map(lambda found: tuple(found[:5])), min_size=1, max_size=3),
        parallel=st.integers(1, 500),
    ),
    st.builds(
        JobArray,
        rows=st.lists(st.dictionaries(names, values.map(lambda found: found[0])), min_size=1, max_size=5).map(tuple),
    ),
)


@given(arrays)
def test_a_printed_array_is_read_back_as_the_same(found: JobArray) -> None:
    job = Job(name="sweep", run="true", resources=(MachineRequest(cpus=1.0),), array=found)
    assert parse_job(print_job(job), file="x.yaml", now=NOW).array == found


@given(arrays)
def test_tasks_differ_in_the_variables_that_the_array_names(found: JobArray) -> None:
    for number in {0, found.count - 1}:
        assert set(found.parameters(number)) == set(found.grid or (found.rows[number] if found.rows else ()))
