"""Many jobs that differ in variables of their environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from broker.core.errors import InvalidInput
from broker.core.job.file.fields import variable_name
from broker.core.job.jobs import Job

_MAX_NAME_LENGTH = 63  # characters of a job's name
_MAX_JOBS = 10_000


def combinations(job: Job, values: Mapping[str, Iterable[object]]) -> Iterator[Job]:
    """One job for each combination of the values, the last name varying fastest: the same job with those environment
    variables, and with a number added to its name. Raises `InvalidInput` for an invalid name of a variable, without
    variables or values, and for more than 10,000 jobs."""
    choices = {_check_name(name): [str(value) for value in options] for name, options in values.items()}
    if not choices or not all(choices.values()):
        raise InvalidInput(
            "nothing to vary", where="map", hint="give each variable its values: `map(job, SEED=range(4))`"
        )
    count = 1
    for options in choices.values():
        count *= len(options)
    if count > _MAX_JOBS:
        raise InvalidInput(f"{count:,} jobs at once; at most {_MAX_JOBS:,}", where="map", hint="submit them in parts")
    digits = len(str(count - 1))
    for number, choice in enumerate(product(*choices.values())):
        name = f"{job.name[: _MAX_NAME_LENGTH - digits - 1]}-{number:0{digits}}"
        yield job.model_copy(update={"name": name, "envs": {**job.envs, **dict(zip(choices, choice, strict=True))}})


def _check_name(name: str) -> str:
    try:
        return variable_name(name)
    except ValueError as error:
        raise InvalidInput(f"{name!r}: {error}", where="map") from error
