"""Workload files: what they mean, and every mistake with its line."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.core.errors import InvalidInput
from tests.lab.simulation.workload import RunLengths, WorkloadSize
from tests.lab.simulation.workload_file import parse_workload

GOOD = """\
workload: two teams
market:
  - {machine: "A100-80GB:8", capacity: owned, machines: 20, cost: $9.60}
  - {machine: "A100-80GB:8", provider: aws, region: us-east-1, capacity: spot, price: $14, lost_every: 10h}
teams:
  nlp:
    user: ann
    jobs:
      - name: sweeps
        arrivals: {per_day: 400, hours: 8-20, weekdays: true, together: 10}
        duration: {median: 30m, p95: 8h}
        job: {resources: {accelerators: "A100-80GB:8"}, checkpoint: {every: 10m}}
"""


def test_a_workload_is_read() -> None:
    found = parse_workload(GOOD, file="w.yaml")
    owned, spot = (pool.offer for pool in found.pools)
    assert owned.slots == 20
    assert owned.amortised is not None
    assert spot.interruption_rate == pytest.approx(0.1)
    (one,) = found.classes
    assert one.gpus == 8
    assert one.job.work is not None
    assert one.job.work.duration > timedelta(minutes=30), "the mean of a log-normal is above its median"


def test_jobs_arrive_when_the_pattern_says() -> None:
    found = parse_workload(GOOD, file="w.yaml")
    size = WorkloadSize(days=7, seed=1)
    jobs = list(found.jobs().submissions(size))
    assert len(jobs) == found.jobs().count(size) == 2800
    assert [time for time, _, _ in jobs] == sorted(time for time, _, _ in jobs)
    assert {time // 3600 % 24 for time, _, _ in jobs} == set(range(8, 20))
    assert max(time for time, _, _ in jobs) < 5 * 24 * 3600, "the first day is a Monday"


def test_lengths_have_the_median_and_the_percentile_of_the_file() -> None:
    jobs = parse_workload(GOOD, file="w.yaml").jobs().submissions(WorkloadSize(days=70, seed=3))
    lengths = sorted(length for _, _, length in jobs)
    assert lengths[len(lengths) // 2] == pytest.approx(1800, rel=0.05)
    assert lengths[len(lengths) * 95 // 100] == pytest.approx(8 * 3600, rel=0.08)
    assert RunLengths.of(timedelta(hours=2), timedelta(hours=2)).mean == 7200


def test_a_number_of_jobs_is_shared_as_the_rates_are() -> None:
    two = GOOD + ("      - {name: b, arrivals: 100, duration: 1h, job: {resources: {accelerators: 'A100-80GB:8'}}}\n")
    jobs = list(parse_workload(two, file="w").jobs().submissions(WorkloadSize(days=7, seed=1, jobs=1000)))
    assert [sum(place == each for _, place, _ in jobs) for each in (0, 1)] == [800, 200]


@pytest.mark.parametrize(
    ("was", "now", "line", "said"),
    [
        ("capacity: owned, machines: 20", "capacity: owned", 3, "needs `machines`"),
        ("price: $14", "cost: $14", 4, "price"),
        ("capacity: spot", "capacity: sport", 4, "sport"),
        ("per_day: 400", "per_day: none", 10, "number"),
        ("hours: 8-20", "hours: 8-8", 10, "expected hours of the day"),
        ("p95: 8h", "p95: 8m", 11, "less than `median`"),
        ("lost_every: 10h", "lost_every: 10h, varies: 10%, reprice: 0.5s", 4, "expected 5m or more"),
        ("provider: aws, region: us-east-1, capacity: spot, price: $14, lost_every: 10h",
         "capacity: owned, machines: 3", 4, "is the same capacity as market[0]"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(was: str, now: str, line: int, said: str) -> None:
    assert was in GOOD
    with pytest.raises(InvalidInput) as caught:
        parse_workload(GOOD.replace(was, now, 1), file="w.yaml")
    assert any(problem.line == line and said in problem.message for problem in caught.value.problems), (
        caught.value.problems
    )


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("checkpoint: {every: 10m}", "checkpont: {every: 10m}", "did you mean 'checkpoint'"),
        ('"A100-80GB:8"}, checkpoint', '"A1000-80GB:8"}, checkpoint', "A1000-80GB"),
        ("checkpoint: {every: 10m}", "array: {range: 10}", "are not simulated"),
    ],
)
def test_a_mistake_in_a_job_is_named_with_its_class(was: str, now: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=r"w\.yaml: teams\.nlp\.jobs\.0\.job") as caught:
        parse_workload(GOOD.replace(was, now, 1), file="w.yaml")
    assert said in f"{caught.value} {caught.value.problems}"
