"""The `after:` of a job file: the jobs that it comes after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from broker.core.errors import did_you_mean
from broker.core.job.jobs import Predecessor, When

MOST = 100
_KEYS = ("job", "when", "inputs")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HINT = "expected a job, such as `prepare`, or {job: prepare, when: succeeded, inputs: [data/*]}, or a list of them"


def print_after(before: tuple[Predecessor, ...]) -> list[Any]:
    """The section, which reads back as the same predecessors."""
    return [_printed(one) for one in before]


def predecessor(value: object) -> Predecessor:
    """One job that comes before, as `after:` or an option names it. Raises ValueError."""
    if isinstance(value, str):
        value = {"job": value}
    if not isinstance(value, Mapping) or "job" not in value:
        raise ValueError(f"{_HINT}; got {str(value)[:40]!r}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; {_HINT}")
    job, when = value["job"], str(value.get("when", When.SUCCEEDED))
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise ValueError(f"job: expected the name or id of a job; got {str(job)[:40]!r}")
    if when not in set(When):
        raise ValueError(f"when: expected `succeeded` or `ended`; got {when[:40]!r}")
    return Predecessor(job=job, when=When(when), inputs=_inputs(value.get("inputs", ())))


def _printed(one: Predecessor) -> Any:
    given: dict[str, Any] = {"job": one.job}
    if one.when is not When.SUCCEEDED:
        given["when"] = one.when.value
    if one.inputs:
        given["inputs"] = list(one.inputs)
    return given if len(given) > 1 else one.job


def _inputs(value: object) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple):
        raise ValueError(f"inputs: expected paths of results, such as [model/*, metrics.json]; got {str(value)[:40]!r}")
    for one in found:
        if not isinstance(one, str) or not one.strip() or one.startswith("/") or ".." in one.split("/"):
            raise ValueError(f"inputs: expected a relative path of a result, such as model/*; got {str(one)[:40]!r}")
    return tuple(found)


def _after(value: object) -> tuple[Predecessor, ...]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= MOST:
        raise ValueError(f"{len(given)} jobs; expected 1 to {MOST}")
    found = tuple(predecessor(one) for one in given)
    names = [one.job for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given twice")
    return found


_ONE = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "job": {"type": "string"},
                "when": {"enum": [one.value for one in When]},
                "inputs": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            },
            "required": ["job"],
            "additionalProperties": False,
        },
    ]
}

AfterField = Annotated[
    tuple[Predecessor, ...],
    PlainValidator(_after),
    WithJsonSchema(
        {
            "description": "the jobs that must have succeeded, or ended, before this one begins",
            "anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1, "maxItems": MOST}],
        }
    ),
]
