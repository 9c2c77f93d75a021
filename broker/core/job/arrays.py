"""Arrays: one job file, many tasks that differ in variables of their environment.

A task's number and its parameters reach its command as variables, so nothing is ever put into the text of a command.
"""

from __future__ import annotations

from math import prod

from pydantic import BaseModel, ConfigDict, Field

MOST_TASKS = 10_000
MOST_AT_ONCE = 500
AT_ONCE = 10  # where the file says nothing
INDEX_VARIABLE, COUNT_VARIABLE, ARRAY_VARIABLE = "GPUBROKER_TASK_INDEX", "GPUBROKER_TASK_COUNT", "GPUBROKER_ARRAY_ID"


class TaskOf(BaseModel):
    """What makes a job a task: of which array (its id), with which number, of how many."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    array: str
    index: int
    count: int


class JobArray(BaseModel):
    """The tasks of an array, numbered from 0, with exactly one of: ``range``, so many tasks; ``grid``, one for each
    combination of the values, the last name varying fastest; ``rows``, one for each set of variables. At most
    ``parallel`` of them are under way at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    range: int | None = None
    grid: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = ()
    parallel: int = AT_ONCE

    @property
    def count(self) -> int:
        """How many tasks there are."""
        if self.range is not None:
            return self.range
        return prod(len(values) for values in self.grid.values()) if self.grid else len(self.rows)

    @property
    def at_once(self) -> int:
        """How many tasks are under way at most."""
        return min(self.parallel, self.count)

    def parameters(self, index: int) -> dict[str, str]:
        """The variables in which the task of that number differs from the others, beside its number."""
        if self.rows:
            return dict(self.rows[index])
        found: dict[str, str] = {}
        for name, values in reversed(self.grid.items()):
            index, which = divmod(index, len(values))
            found[name] = values[which]
        return dict(reversed(found.items()))
