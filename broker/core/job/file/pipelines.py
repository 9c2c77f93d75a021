"""Job files of several documents: SkyPilot's pipelines, whose tasks run one after the other."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from broker.core.documents import Document, read_documents
from broker.core.errors import JOB_FILE, did_you_mean
from broker.core.job.after import Predecessor
from broker.core.job.file.overrides import JobOverrides
from broker.core.job.file.reading import job_of, named_after
from broker.core.job.jobs import Job

MOST_TASKS_OF_A_FILE = 100
# What SkyPilot writes before the tasks: the name of the whole, and how they run.
_HEADER = frozenset({"name", "execution", "primary_tasks", "termination_delay", "inter_connection"})
_ORDERS = ("serial", "parallel")


def parse_jobs(text: str | bytes, *, file: str, now: datetime, overrides: JobOverrides | None = None) -> list[Job]:
    """The jobs of a file: one, or those of its documents, each of which comes after the one before it.

    Arguments and errors as of `parse_job`. ``overrides`` apply to each job; a name is only for a file of one. A task
    without a name gets the file's name and its number.
    """
    beside = overrides or JobOverrides()
    documents = read_documents(text, file=file, kind=JOB_FILE, most=MOST_TASKS_OF_A_FILE)
    tasks = _tasks(documents)
    if len(tasks) == 1:
        return [job_of(tasks[0], now=now, overrides=beside)]
    if beside.name is not None:
        message = f"the file holds {len(tasks)} tasks, so one name cannot apply to all; write `name:` into each"
        tasks[0].refuse([tasks[0].problem((), message)])
    return _chained([(task, _numbered(task, number)) for number, task in enumerate(tasks, 1)], now, beside)


def _chained(tasks: list[tuple[Document, str]], now: datetime, beside: JobOverrides) -> list[Job]:
    found: dict[str, Job] = {}
    for task, name in tasks:
        job = job_of(task, now=now, overrides=replace(beside, name=name))
        if name in found:
            task.refuse([task.problem(("name",), f"two tasks are called {name}; give each a name of its own")])
        if found and not job.after:
            job = job.model_copy(update={"after": (Predecessor(job=list(found)[-1]),)})
        found[name] = job
    return list(found.values())


def _numbered(task: Document, number: int) -> str:
    """The task's own name, or one made of the file's name. An invalid name is refused later, when the task is read."""
    named = task.data.get("name")
    return named_after(task.file)[:58] + f"-{number}" if named is None else str(named)


def _tasks(documents: list[Document]) -> list[Document]:
    """The documents without SkyPilot's header. Raises `InvalidInput` for tasks that run side by side."""
    first, *others = documents
    if not others or not first.data.keys() <= _HEADER:
        return documents
    order = first.data.get("execution", "serial")
    if order not in _ORDERS:
        message = f"expected `serial`, got {str(order)[:40]!r}{did_you_mean(str(order), _ORDERS)}"
        first.refuse([first.problem(("execution",), message)])
    if order == "parallel":
        message = (
            "jobs that run side by side are not started as one here: write a file for each and submit them; jobs one"
            " after the other are `execution: serial`, many equal ones an `array:`, nodes of one job `num_nodes:`"
        )
        first.refuse([first.problem(("execution",), message, at_key=True)])
    return others
