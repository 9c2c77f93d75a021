"""`stop_when:` in a job file, and what is said of one that makes no sense."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import Job
from broker.core.job.stop_when import MetricGoal, StopWhen

NOW = datetime(2026, 11, 24, tzinfo=UTC)
HEAD = "name: sweep\nrun: python train.py\nresources: {cpus: 1}\n"
ARRAY = "array: {range: 20}\n"


def read(text: str) -> Job:
    return parse_job(HEAD + text, file="sweep.yaml", now=NOW)


def test_it_needs_a_figure_and_a_goal_and_is_read_back_as_printed() -> None:
    short = read(ARRAY + "stop_when: {metric: loss, goal: minimize}\n")
    assert short.stop_when == StopWhen(metric="loss", goal=MetricGoal.MINIMIZE, from_step=0, min_tasks=5)
    full = read(ARRAY + "stop_when: {metric: acc, goal: maximize, rule: median, from_step: 10, min_tasks: 19}\n")
    assert full.stop_when == StopWhen(metric="acc", goal=MetricGoal.MAXIMIZE, from_step=10, min_tasks=19)
    for job in (short, full):
        assert parse_job(print_job(job), file="x.yaml", now=NOW) == job
        assert job.of_task("sweep-abc", 3, deadline=None, max_cost=None).stop_when == job.stop_when


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("stop_when: {metric: loss, goal: minimize}\n", 4, "is for the tasks of an `array:`, and there is none"),
        (ARRAY + "stop_when:\n  goal: minimize\n", 5, "metric"),
        (ARRAY + "stop_when:\n  metric: loss\n", 5, "goal"),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimise\n", 7, "did you mean 'minimize'"),
        (ARRAY + "stop_when:\n  metric: ' '\n  goal: minimize\n", 6, "is empty"),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  rule: mean\n", 8, "median"),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  from_step: -1\n", 8, "0"),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  from_step: yes\n", 8, ""),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  min_tasks: 0\n", 8, "1"),
        (ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  mintasks: 2\n", 8, "did you mean 'min_tasks'"),
        (
            ARRAY + "stop_when:\n  metric: loss\n  goal: minimize\n  min_tasks: 20\n",
            8,
            "20 tasks must have succeeded before another is judged, and there are 20; expected `min_tasks` from 1",
        ),
        (
            "array: {range: 4}\nstop_when: {metric: loss, goal: minimize}\n",
            5,
            "5 tasks must have succeeded before another is judged, and there are 4; expected `min_tasks` from 1 to 3",
        ),
        (
            "array: {range: 1}\nstop_when: {metric: loss, goal: minimize}\n",
            5,
            "one task has no others to be behind",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert said in str(problem)
