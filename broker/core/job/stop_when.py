"""Tasks of an array that are far behind the others are stopped early: the median stopping rule. Pure.

Source: Golovin et al., "Google Vizier: A Service for Black-Box Optimization", KDD 2017, section 3.2.1: a trial is
stopped at step s if its best value by then is strictly worse than the median of the running averages of the completed
trials' values up to s. Here a trial is a task, and it is completed if it succeeded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MIN_TASKS = 5  # default


class MetricGoal(StrEnum):
    """Which values of a figure are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class StopWhen(BaseModel):
    """When a task of an array is stopped early. ``metric``: a figure that the tasks report with a step. Judged are
    tasks at ``from_step`` or later, once ``min_tasks`` others that succeeded had reported by that step."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    metric: str
    goal: MetricGoal
    rule: Literal["median"] = "median"
    from_step: int = Field(default=0, ge=0)
    min_tasks: int = Field(default=MIN_TASKS, ge=1)


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """A value that a task reported at a step."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class RunningAverage:
    """The average of all values that a task had reported by each step: ``averages`` belong to ``steps``, ascending."""

    steps: tuple[int, ...]
    averages: tuple[float, ...]

    def by(self, step: int) -> float | None:
        """The average by that step; None: it had reported nothing."""
        behind = bisect_right(self.steps, step)
        return self.averages[behind - 1] if behind else None


@dataclass(frozen=True, slots=True)
class FallenBehind:
    """A task whose ``best`` value by ``step`` is worse than ``median``, that of the averages of ``tasks`` others."""

    step: int
    best: float
    median: float
    tasks: int


def in_steps(reports: Iterable[ReportedValue]) -> list[ReportedValue]:
    """The reports with ascending steps. A task that resumes from a checkpoint goes over steps again: its later report
    replaces those of the same and later steps before it."""
    kept: list[ReportedValue] = []
    for one in reports:
        while kept and kept[-1].step >= one.step:
            kept.pop()
        kept.append(one)
    return kept


def running_average(reports: Iterable[ReportedValue]) -> RunningAverage:
    """The averages of what a task reported, in the order of its reports."""
    steps: list[int] = []
    averages: list[float] = []
    total = 0.0
    for count, one in enumerate(in_steps(reports), 1):
        total += one.value
        steps.append(one.step)
        averages.append(total / count)
    return RunningAverage(tuple(steps), tuple(averages))


def fallen_behind(
    rule: StopWhen, mine: Sequence[ReportedValue], others: Iterable[RunningAverage]
) -> FallenBehind | None:
    """Whether a task is stopped at the step of its last report; None: it continues. ``others``: of tasks that
    succeeded."""
    reports = in_steps(mine)
    if not reports or reports[-1].step < rule.from_step:
        return None
    step, sign = reports[-1].step, 1 if rule.goal is MetricGoal.MINIMIZE else -1
    averages = [sign * average for one in others if (average := one.by(step)) is not None]
    if len(averages) < rule.min_tasks:
        return None
    best = min(sign * one.value for one in reports)
    middle = median(averages)
    if best <= middle or not isfinite(middle):  # a sum may exceed the largest number
        return None
    return FallenBehind(step, sign * best, sign * middle, len(averages))
