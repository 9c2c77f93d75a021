"""Arrays: one job file, many tasks that differ in variables of their environment.

A task's number and its parameters reach its command as variables, so nothing is ever put into the text of a command.
"""

from math import prod

from pydantic import Field

from broker.core.records import Record

MAX_TASKS = 1_000_000
MAX_LISTED = 10_000  # entries that a file lists one by one, because they are stored with the job
MAX_PARALLEL = 500
DEFAULT_PARALLEL = 10  # default
INDEX_VARIABLE, COUNT_VARIABLE, ARRAY_VARIABLE = "GPUBROKER_TASK_INDEX", "GPUBROKER_TASK_COUNT", "GPUBROKER_ARRAY_ID"


def task_id(array: str, index: int) -> str:
    return f"{array}-{index}"


class TaskOf(Record):
    """The membership of a task: the id of its array, its number, and the number of tasks."""

    array: str
    index: int
    count: int


class JobArray(Record):
    """The tasks of an array, numbered from 0, with exactly one of: ``range``, so many tasks; ``grid``, one for each
    combination of the values, the last name varying fastest; ``rows``, one for each set of variables. At most
    ``parallel`` of them are under way at once.

    ``only``: the numbers of those that are wanted, in this order; empty: all. ``again``: the arrays that this one
    retries, newest first: it reruns their tasks that did not succeed and represents the others, too; those in
    ``with_checkpoint`` resume from the latest checkpoint of the same number in the newest array."""

    range: int | None = None
    grid: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = ()
    parallel: int = DEFAULT_PARALLEL
    only: tuple[int, ...] = ()
    again: tuple[str, ...] = ()
    with_checkpoint: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many tasks are run."""
        return len(self.only) or self.size

    @property
    def size(self) -> int:
        """The number of tasks of the whole array, with or without ``only``; each task gets this number."""
        if self.range is not None:
            return self.range
        return prod(len(values) for values in self.grid.values()) if self.grid else len(self.rows)

    @property
    def at_once(self) -> int:
        """The maximum number of tasks under way at the same time."""
        return min(self.parallel, self.count)

    def number(self, turn: int) -> int:
        """The number of the task that is started as number ``turn``, counted from 0."""
        return self.only[turn] if self.only else turn

    def has_task(self, name: str, array: str) -> bool:
        """Whether ``name`` is that of a task, for an array that is called ``array``."""
        prefix, _, number = name.rpartition("-")
        is_number = prefix == array and number.isdecimal() and number == str(int(number))
        return is_number and (int(number) in self.only if self.only else int(number) < self.size)

    def resume_task(self, index: int) -> str | None:
        """The id of the task from whose checkpoint the task of that number resumes; None if it starts from the
        beginning."""
        return task_id(self.again[0], index) if self.again and index in self.with_checkpoint else None

    def parameters(self, index: int) -> dict[str, str]:
        """The variables in which the task of that number differs from the others, besides its number."""
        if self.rows:
            return dict(self.rows[index])
        values_by_name: dict[str, str] = {}
        for name, values in reversed(self.grid.items()):
            index, position = divmod(index, len(values))
            values_by_name[name] = values[position]
        return dict(reversed(values_by_name.items()))
