"""The `after:` of a job file: the jobs that it comes after."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from broker.core.errors import did_you_mean
from broker.core.job.jobs import Predecessor, When

MAX_PREDECESSORS = 100
_KEYS = ("job", "when", "inputs")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HINT = "expected a job, such as `prepare`, or {job: prepare, when: succeeded, inputs: [data/*]}, or a list of them"


def print_after(predecessors: tuple[Predecessor, ...]) -> list[Any]:
    """The section, which reads back as the same predecessors."""
    return [_print_predecessor(earlier) for earlier in predecessors]


def parse_predecessor(value: object) -> Predecessor:
    """One job that comes before, as `after:` or an option names it. Raises ValueError."""
    if isinstance(value, str):
        value = {"job": value}
    if not isinstance(value, Mapping) or "job" not in value:
        raise ValueError(f"{_HINT}; got {str(value)[:40]!r}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; {_HINT}")
    job, condition = value["job"], str(value.get("when", When.SUCCEEDED))
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise ValueError(f"job: expected the name or id of a job; got {str(job)[:40]!r}")
    if condition not in set(When):
        raise ValueError(f"when: expected `succeeded` or `ended`; got {condition[:40]!r}")
    return Predecessor(job=job, when=When(condition), inputs=_parse_inputs(value.get("inputs", ())))


def _print_predecessor(earlier: Predecessor) -> Any:
    fields: dict[str, Any] = {"job": earlier.job}
    if earlier.when is not When.SUCCEEDED:
        fields["when"] = earlier.when.value
    if earlier.inputs:
        fields["inputs"] = list(earlier.inputs)
    return fields if len(fields) > 1 else earlier.job


def _parse_inputs(value: object) -> tuple[str, ...]:
    paths = (value,) if isinstance(value, str) else value
    if not isinstance(paths, list | tuple):
        raise ValueError(f"inputs: expected paths of results, such as [model/*, metrics.json]; got {str(value)[:40]!r}")
    for path in paths:
        if not isinstance(path, str) or not path.strip() or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"inputs: expected a relative path of a result, such as model/*; got {str(path)[:40]!r}")
    return tuple(paths)


def _parse_after(value: object) -> tuple[Predecessor, ...]:
    items = value if isinstance(value, list) else [value]
    if not 1 <= len(items) <= MAX_PREDECESSORS:
        raise ValueError(f"{len(items)} jobs; expected 1 to {MAX_PREDECESSORS}")
    predecessors = tuple(parse_predecessor(item) for item in items)
    names = [item.job for item in predecessors]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given twice")
    return predecessors


_PREDECESSOR_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "job": {"type": "string"},
                "when": {"enum": [when.value for when in When]},
                "inputs": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            },
            "required": ["job"],
            "additionalProperties": False,
        },
    ]
}

AfterField = Annotated[
    tuple[Predecessor, ...],
    PlainValidator(_parse_after),
    WithJsonSchema(
        {
            "description": "the jobs that must have succeeded, or ended, before this one begins",
            "anyOf": [
                *_PREDECESSOR_SCHEMA["anyOf"],
                {"type": "array", "items": _PREDECESSOR_SCHEMA, "minItems": 1, "maxItems": MAX_PREDECESSORS},
            ],
        }
    ),
]
