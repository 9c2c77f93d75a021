"""The `array:` of a job file: the tasks that it defines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from broker.core.documents import Document, Path
from broker.core.errors import did_you_mean
from broker.core.job.arrays import AT_ONCE, MOST_AT_ONCE, MOST_LISTED, MOST_TASKS, JobArray
from broker.core.job.file.fields import variable_name

_KINDS = ("range", "grid", "list")
_KEYS = (*_KINDS, "parallel", "only")
_SPAN = re.compile(r"\s*(-?[0-9]{1,9})\s*\.\.\s*(-?[0-9]{1,9})\s*")
_HINT = "expected one of `range: 100`, `grid: {SEED: 0..9, LR: [1e-4, 3e-4]}` and `list: [{LR: 1e-4, WIDTH: 64}]`"


def as_written(document: Document, value: Any, path: Path) -> Any:
    """The values as the file's text: a task gets ``1e-4`` and ``1.10`` as written."""
    if isinstance(value, dict):
        return {key: as_written(document, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [as_written(document, item, (*path, index)) for index, item in enumerate(value)]
    return document.texts.get(path, value)


def print_array(array: JobArray) -> dict[str, Any]:
    """The section, which reads back as the same array."""
    if array.range is not None:
        tasks: dict[str, Any] = {"range": array.range}
    elif array.grid:
        tasks = {"grid": {name: list(values) for name, values in array.grid.items()}}
    else:
        tasks = {"list": [dict(row) for row in array.rows]}
    if array.parallel != AT_ONCE:
        tasks["parallel"] = array.parallel
    return tasks | {"only": list(array.only)} if array.only else tasks


def _array(value: object) -> JobArray:
    if not isinstance(value, Mapping):
        raise ValueError(f"{_HINT}; got {str(value)[:40]!r}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; {_HINT}")
    given = [kind for kind in _KINDS if kind in value]
    if len(given) != 1:
        raise ValueError(f"{_HINT}; got {' and '.join(given) or 'none of them'}")
    kind = given[0]
    found = JobArray(**_TASKS[kind](value[kind]), parallel=_parallel(value.get("parallel", AT_ONCE)))
    most = MOST_LISTED if kind == "list" else MOST_TASKS
    if not 1 <= found.size <= most:
        raise ValueError(f"{found.size:,} tasks; expected 1 to {most:,}")
    return found if "only" not in value else found.model_copy(update={"only": _only(value["only"], found.size)})


def _only(value: object, size: int) -> tuple[int, ...]:
    found = [_whole(one) for one in value] if isinstance(value, list) else []
    numbers = [one for one in found if one is not None and one < size]
    if not numbers or len(set(numbers)) != len(found):
        raise ValueError(
            f"only: expected different numbers of tasks from 0 to {size - 1:,}, such as [0, 3]; got {str(value)[:40]!r}"
        )
    return tuple(numbers)


def _parallel(value: object) -> int:
    number = _whole(value)
    if number is None or not 1 <= number <= MOST_AT_ONCE:
        raise ValueError(f"parallel: expected a whole number from 1 to {MOST_AT_ONCE}; got {str(value)[:40]!r}")
    return number


def _range(value: object) -> dict[str, Any]:
    number = _whole(value)
    if number is None:
        raise ValueError(f"range: expected a number of tasks, such as 100; got {str(value)[:40]!r}")
    return {"range": number}


def _grid(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("grid: expected variables with their values, such as {SEED: 0..9, LR: [1e-4, 3e-4]}")
    return {"grid": {_variable("grid", name): _values(str(name), given) for name, given in value.items()}}


def _list(value: object) -> dict[str, Any]:
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise ValueError("list: expected one set of variables for each task, such as [{LR: 1e-4}, {LR: 3e-4}]")
    rows = tuple({_variable("list", name): _text(str(name), one) for name, one in row.items()} for row in value)
    return {"rows": rows}


_TASKS = {"range": _range, "grid": _grid, "list": _list}


def _values(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) and (span := _SPAN.fullmatch(given)):
        first, last = int(span[1]), int(span[2])
        if not 0 <= last - first < MOST_LISTED:
            raise ValueError(
                f"{name}: {given.strip()} are {max(last - first + 1, 0):,} values; expected 1 to {MOST_LISTED:,}"
            )
        return tuple(str(number) for number in range(first, last + 1))
    if isinstance(given, list) and given:
        return tuple(_text(name, one) for one in given)
    raise ValueError(f"{name}: expected a list of values, or a span such as 0..9; got {str(given)[:40]!r}")


def _text(name: str, value: object) -> str:
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"{name}: expected text or a number; got {str(value)[:40]!r}")
    text = str(value)
    if "\0" in text:
        raise ValueError(f"{name}: contains a NUL character, which no variable can carry")
    return text


def _variable(where: str, name: object) -> str:
    try:
        return variable_name(name)
    except ValueError as error:
        raise ValueError(f"{where}: {str(name)[:40]!r}: {error}") from error


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


_SCALAR = {"type": ["string", "number", "boolean"]}
_PARALLEL = {
    "type": "integer",
    "minimum": 1,
    "maximum": MOST_AT_ONCE,
    "description": f"how many tasks are under way at once; {AT_ONCE} without it",
}


_ONLY = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "integer", "minimum": 0},
    "description": "the numbers of the tasks to run; all without it",
}


def _shape(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {kind: schema, "parallel": _PARALLEL, "only": _ONLY},
        "required": [kind],
        "additionalProperties": False,
    }


ArrayField = Annotated[
    JobArray,
    PlainValidator(_array),
    WithJsonSchema(
        {
            "description": "many tasks from one file; each finds its number in GPUBROKER_TASK_INDEX",
            "oneOf": [
                _shape("range", {"type": "integer", "minimum": 1, "maximum": MOST_TASKS}),
                _shape(
                    "grid",
                    {
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {
                            "anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR, "minItems": 1}]
                        },
                    },
                ),
                _shape(
                    "list",
                    {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": _SCALAR}},
                ),
            ],
        }
    ),
]
