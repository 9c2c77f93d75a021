"""The `array:` of a job file: the tasks that it defines."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from broker.core.documents import Document, Path
from broker.core.errors import did_you_mean
from broker.core.job.arrays import DEFAULT_PARALLEL, MAX_LISTED, MAX_PARALLEL, MAX_TASKS, JobArray
from broker.core.job.fields import variable_name

_KINDS = ("range", "grid", "list")
_KEYS = (*_KINDS, "parallel", "only")
_SPAN = re.compile(r"\s*(-?[0-9]{1,9})\s*\.\.\s*(-?[0-9]{1,9})\s*")
_HINT = "expected one of `range: 100`, `grid: {SEED: 0..9, LR: [1e-4, 3e-4]}` and `list: [{LR: 1e-4, WIDTH: 64}]`"


def original_texts(document: Document, value: Any, path: Path) -> Any:
    """The values as the file's text: a task gets ``1e-4`` and ``1.10`` as written."""
    if isinstance(value, dict):
        return {key: original_texts(document, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [original_texts(document, item, (*path, index)) for index, item in enumerate(value)]
    return document.texts.get(path, value)


def print_array(array: JobArray) -> dict[str, Any]:
    """The section, which reads back as the same array."""
    if array.range is not None:
        tasks: dict[str, Any] = {"range": array.range}
    elif array.grid:
        tasks = {"grid": {name: list(values) for name, values in array.grid.items()}}
    else:
        tasks = {"list": [dict(row) for row in array.rows]}
    if array.parallel != DEFAULT_PARALLEL:
        tasks["parallel"] = array.parallel
    return tasks | {"only": list(array.only)} if array.only else tasks


def _parse_array(value: object) -> JobArray:
    if not isinstance(value, Mapping):
        raise ValueError(f"{_HINT}; got {str(value)[:40]!r}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; {_HINT}")
    kinds = [kind for kind in _KINDS if kind in value]
    if len(kinds) != 1:
        raise ValueError(f"{_HINT}; got {' and '.join(kinds) or 'none of them'}")
    kind = kinds[0]
    array = JobArray(**_PARSERS[kind](value[kind]), parallel=_parse_parallel(value.get("parallel", DEFAULT_PARALLEL)))
    limit = MAX_LISTED if kind == "list" else MAX_TASKS
    if not 1 <= array.size <= limit:
        raise ValueError(f"{array.size:,} tasks; expected 1 to {limit:,}")
    return array if "only" not in value else array.model_copy(update={"only": _parse_only(value["only"], array.size)})


def _parse_only(value: object, size: int) -> tuple[int, ...]:
    parsed = [_whole_number(number) for number in value] if isinstance(value, list) else []
    numbers = [number for number in parsed if number is not None and number < size]
    if not numbers or len(set(numbers)) != len(parsed):
        raise ValueError(
            f"only: expected different numbers of tasks from 0 to {size - 1:,}, such as [0, 3]; got {str(value)[:40]!r}"
        )
    return tuple(numbers)


def _parse_parallel(value: object) -> int:
    number = _whole_number(value)
    if number is None or not 1 <= number <= MAX_PARALLEL:
        raise ValueError(f"parallel: expected a whole number from 1 to {MAX_PARALLEL}; got {str(value)[:40]!r}")
    return number


def _parse_range(value: object) -> dict[str, Any]:
    number = _whole_number(value)
    if number is None:
        raise ValueError(f"range: expected a number of tasks, such as 100; got {str(value)[:40]!r}")
    return {"range": number}


def _parse_grid(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError("grid: expected variables with their values, such as {SEED: 0..9, LR: [1e-4, 3e-4]}")
    return {"grid": {_variable("grid", name): _parse_values(str(name), values) for name, values in value.items()}}


def _parse_list(value: object) -> dict[str, Any]:
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise ValueError("list: expected one set of variables for each task, such as [{LR: 1e-4}, {LR: 3e-4}]")
    rows = tuple({_variable("list", name): _parse_text(str(name), item) for name, item in row.items()} for row in value)
    return {"rows": rows}


_PARSERS = {"range": _parse_range, "grid": _parse_grid, "list": _parse_list}


def _parse_values(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) and (span := _SPAN.fullmatch(value)):
        first, last = int(span[1]), int(span[2])
        if not 0 <= last - first < MAX_LISTED:
            raise ValueError(
                f"{name}: {value.strip()} are {max(last - first + 1, 0):,} values; expected 1 to {MAX_LISTED:,}"
            )
        return tuple(str(number) for number in range(first, last + 1))
    if isinstance(value, list) and value:
        return tuple(_parse_text(name, item) for item in value)
    raise ValueError(f"{name}: expected a list of values, or a span such as 0..9; got {str(value)[:40]!r}")


def _parse_text(name: str, value: object) -> str:
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


def _whole_number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


_SCALAR = {"type": ["string", "number", "boolean"]}
_PARALLEL = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_PARALLEL,
    "description": f"how many tasks are under way at once; {DEFAULT_PARALLEL} without it",
}


_ONLY = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "integer", "minimum": 0},
    "description": "the numbers of the tasks to run; all without it",
}


def _section_schema(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {kind: schema, "parallel": _PARALLEL, "only": _ONLY},
        "required": [kind],
        "additionalProperties": False,
    }


ArrayField = Annotated[
    JobArray,
    PlainValidator(_parse_array),
    WithJsonSchema(
        {
            "description": "many tasks from one file; each finds its number in GPUBROKER_TASK_INDEX",
            "oneOf": [
                _section_schema("range", {"type": "integer", "minimum": 1, "maximum": MAX_TASKS}),
                _section_schema(
                    "grid",
                    {
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {
                            "anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR, "minItems": 1}]
                        },
                    },
                ),
                _section_schema(
                    "list",
                    {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": _SCALAR}},
                ),
            ],
        }
    ),
]
