"""What to run, as people give it in Python: the path of a job file, its keys as a dict or as keywords, or a `Job`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, TypedDict, TypeVar, Unpack

from yaml import YAMLError

from broker.app.jobs import job_input
from broker.app.jobs.snapshots import resolve_paths
from broker.core.documents import print_document, read_document
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.job import jobs
from broker.core.job.file import parse_job, print_job
from broker.core.job.file.reading import JobOverrides
from broker.core.values.money import Money
from broker.core.values.units import parse_duration, parse_money, print_duration, print_money

E = TypeVar("E", bound=Enum)


class JobKeys(TypedDict, total=False):
    """The keys of a job file. ``resources``: also just accelerators, such as ``"H100:8"``. Amounts of money may be
    numbers (USD) or `Money`, times `timedelta`."""

    name: str
    run: str
    setup: str
    resources: Any
    max_cost: Any
    max_duration: Any
    deadline: Any
    num_nodes: int
    workdir: str | os.PathLike[str]
    envs: Mapping[str, Any]
    secrets: Any
    outputs: Any
    checkpoint: Mapping[str, Any]
    retry: Mapping[str, Any]
    constraints: Mapping[str, Any]
    file_mounts: Mapping[str, Any]
    team: str
    project: str
    environment: str
    priority: str
    workload: str
    model: Any
    work: Any
    data: Any
    inputs: Any
    value_of_time: Any
    max_unattended: Any
    session: Any
    serving_ports: Any
    array: Any
    after: Any
    resume_from: str
    config: Any


class Job(jobs.Job):
    """A job from the keys of a job file: ``Job(run="python train.py", resources="H100:8", max_cost="$40")``. Relative
    paths begin at the present folder. Raises `InvalidInput` with every mistake."""

    def __init__(self, **keys: Unpack[JobKeys]) -> None:
        job = _job_of(keys, datetime.now(UTC))
        super().__init__(**{name: getattr(job, name) for name in job.model_fields_set})

    @classmethod
    def of(cls, job: jobs.Job) -> Job:
        """The same job as one of this class."""
        return cls.model_construct(job.model_fields_set, **{name: getattr(job, name) for name in jobs.Job.model_fields})


def read_job(work: object, keys: Mapping[str, Any], now: datetime) -> jobs.Job:
    """The job that ``work`` describes, with ``keys`` in place of its own. Raises `InvalidInput`."""
    if isinstance(work, jobs.Job):
        if keys:
            return _job_of({**read_document(print_job(work), file="job").data, **keys}, now)
        return jobs.Job(**{name: getattr(work, name) for name in work.model_fields_set})
    if isinstance(work, Mapping):
        return _job_of({**work, **keys}, now)
    if not isinstance(work, str | os.PathLike):
        raise InvalidInput(
            f"expected the path of a job file, a dict of its keys, a Job or a function; got {work!r:.60}",
            where="submit",
            hint="pass a function without calling it: `submit(train, 1e-4)`, not `submit(train(1e-4))`",
        )
    path = Path(work)
    if isinstance(work, str) and not path.exists() and path.suffix not in (".yaml", ".yml"):
        hint = f"a command is a dict: `submit({{'run': {work!r}}})`" if " " in work else "expected a job file (YAML)"
        raise InvalidInput(f"there is no file {work[:60]!r}", where="submit", hint=hint)
    return job_input.read_job(path, now, _overrides(keys))


def _overrides(keys: Mapping[str, Any]) -> JobOverrides:
    rest = {key: _plain(value, key) for key, value in keys.items()}
    name, envs, secrets = rest.pop("name", None), rest.pop("envs", {}), rest.pop("secrets", ())
    machine = rest.pop("resources", {})
    texts = {key: str(value) for key, value in envs.items()}
    return JobOverrides(texts, tuple(secrets), name, rest, machine, {}, {key: key for key in rest})


def _job_of(keys: Mapping[str, Any], now: datetime) -> jobs.Job:
    try:
        text = print_document({str(key): _plain(value, str(key)) for key, value in keys.items()})
        return resolve_paths(parse_job(text, file="job", now=now), Path.cwd(), "job")
    except YAMLError as error:
        message = f"a value is not text, a number, a list or a dict: {error}"
        raise InvalidInput(message, where="job", hint=_KEYS_HINT) from error
    except InvalidInput as error:
        if not error.problems:
            raise
        problems = [replace(problem, line=0, column=0) for problem in error.problems]
        raise InvalidInput("; ".join(map(str, problems)), where="job", hint=_KEYS_HINT, problems=problems) from None


_KEYS_HINT = "the keys are those of a job file: `gpubroker schema job-file`"
_MONEY = ("max_cost", "value_of_time")


def _plain(value: Any, key: str) -> Any:
    """The value as a job file has it."""
    if key == "resources" and (value is None or isinstance(value, str)):
        return {} if value in (None, "", "cpu") else {"accelerators": value}
    if key in _MONEY and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"${value}"
    match value:
        case Money():
            return print_money(value)
        case timedelta():
            return print_duration(value)
        case datetime():
            return value.isoformat()
        case Enum():
            return value.value
        case PurePath():
            return str(value)
        case Mapping():
            return {str(name): _plain(item, "") for name, item in value.items()}
        case list() | tuple() | set() | frozenset() | range():
            return [_plain(item, "") for item in value]
    is_number_of_numpy = hasattr(value, "item") and getattr(value, "shape", None) == ()
    return value.item() if is_number_of_numpy else value


def money(value: object, where: str) -> Money:
    """An amount in USD: `Money`, a number, or text such as ``$40``. Raises `InvalidInput`."""
    try:
        return value if isinstance(value, Money) else parse_money(value if isinstance(value, str) else f"${value}")
    except ValueError as error:
        raise InvalidInput(f"expected an amount in USD, such as 40 or '$40'; got {value!r:.60}", where=where) from error


def time_span(value: object, where: str) -> timedelta:
    """A time span: `timedelta`, seconds, or text such as ``5m``. Raises `InvalidInput`."""
    try:
        if isinstance(value, timedelta):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
        return parse_duration(value)
    except (ValueError, OverflowError) as error:
        expected = "expected seconds, a timedelta, or text such as '5m'"
        raise InvalidInput(f"{expected}; got {value!r:.60}", where=where) from error


def choice(value: object, kind: type[E], where: str) -> E:
    """The member of an enumeration. Raises `InvalidInput` that lists them."""
    try:
        return kind(value)
    except ValueError:
        names = [str(member.value) for member in kind]
        message = f"unknown value {value!r:.60}{did_you_mean(str(value), names)}"
        raise InvalidInput(message, where=where, hint=f"expected one of {', '.join(names)}") from None


def path(value: object, where: str) -> Path:
    """A path. Raises `InvalidInput`."""
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise InvalidInput(f"expected a path; got {value!r:.60}", where=where, hint="write it as text or as a Path")


def text(value: object, where: str) -> str:
    """Text that is not empty. Raises `InvalidInput`."""
    if isinstance(value, str) and value:
        return value
    raise InvalidInput(f"expected text; got {value!r:.60}", where=where, hint=f"{where}='…'")


def texts(value: object, where: str) -> list[str]:
    """A text, or a list of texts. Raises `InvalidInput`."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable):
        return [text(item, where) for item in value]
    raise InvalidInput(f"expected text or a list of texts; got {value!r:.60}", where=where, hint=f"{where}='…'")


def limit(value: object) -> int | None:
    """A number of rows, None for all. Raises `InvalidInput`."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InvalidInput(f"expected a number of rows; got {value!r:.60}", where="limit", hint="limit=10, or none for all")
