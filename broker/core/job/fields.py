"""The single values of a job: the forms that a job file accepts, and the error message for any other.

Validation is of a file if it has a ``context`` (with ``now``); stored jobs and code have the values themselves.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo, WithJsonSchema

from broker.core.validation import parse_each
from broker.core.values.money import Money
from broker.core.values.provider_names import place_name, provider_name
from broker.core.values.units import MAX_DURATION, parse_duration, parse_money, parse_size, require_positive

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PATTERN = re.compile(r"[A-Za-z0-9_.:*?\[\]!-]{1,100}")
_LOCATION = re.compile(r"[A-Za-z0-9_.-]{1,63}/[A-Za-z0-9_.-]{1,63}")
_ISO_DATE = re.compile(r"\s*[0-9]{4}-")


def _file_parser(parse: Callable[[Any], object]) -> BeforeValidator:
    return BeforeValidator(lambda value, info: parse(value) if info.context else value)


def _file_check(check: Callable[[Any], Any]) -> AfterValidator:
    return AfterValidator(lambda value, info: check(value) if info.context else value)


def _require_items(items: tuple[T, ...]) -> tuple[T, ...]:
    if not items:
        raise ValueError("is an empty list; name at least one, or delete the line")
    return items


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "expected letters, digits, '.', '_' and '-' only, starting with a letter or digit, at most 63 characters;"
            f" got {value[:70]!r}"
        )
    return value


def without_nul(value: str) -> str:
    """The text, unchanged. Raises ``ValueError`` for a NUL character."""
    if "\0" in value:
        raise ValueError("contains a NUL character, which no command or variable can carry")
    return value


def _command(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; write the command that does the work, such as `python train.py`")
    return without_nul(value)


def _pattern(value: str) -> str:
    if not _PATTERN.fullmatch(value):
        raise ValueError(f"expected a name or a pattern such as us-*; got {value[:70]!r}")
    return value


def _location(value: str) -> str:
    if not _LOCATION.fullmatch(value):
        raise ValueError(f"expected provider/region, such as aws/us-east-1; got {value[:70]!r}")
    return place_name(value)


def _deadline(value: object, info: ValidationInfo) -> timedelta | datetime:
    """A duration from submission, or a time, which must lie ahead of ``context["now"]``."""
    if isinstance(value, str) and _ISO_DATE.match(value):
        return _in_future(_time(value), (info.context or {})["now"])
    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}; a time with its zone, such as 2030-01-31T18:00Z, is accepted, too") from error
    if duration <= timedelta(0):
        raise ValueError("leaves no time at all; expected a duration such as 60h")
    return duration


def _time(text: str) -> datetime:
    """An ISO 8601 time, in UTC."""
    try:
        time = datetime.fromisoformat(text.strip())
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"expected a time such as 2030-01-31T18:00Z, or a duration; got {text[:40]!r}") from error
    raise ValueError(f"has no time zone; write {time:%Y-%m-%dT%H:%M}Z for UTC, or an offset such as +02:00")


def _in_future(time: datetime, now: datetime) -> datetime:
    if time <= now:
        raise ValueError(f"is in the past: {time:%Y-%m-%dT%H:%M}Z, and now it is {now.astimezone(UTC):%Y-%m-%dT%H:%M}Z")
    if time - now > MAX_DURATION:
        raise ValueError(f"is more than ten years away: {time:%Y-%m-%dT%H:%M}Z")
    return time


def variable_name(name: object) -> str:
    """The name of an environment variable of a job, unchanged. Raises ``ValueError`` for an invalid or reserved one."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of a variable: letters, digits and '_', not starting with a digit")
    if name.startswith("GPUBROKER_"):
        raise ValueError("names that start with GPUBROKER_ are set by gpubroker itself")
    return name


def _env(name: str, value: object) -> tuple[str, str]:
    if not isinstance(value, str):
        raise ValueError("expected text; put lists and mappings in quotes, as JSON for example")
    return variable_name(name), without_nul(value)


def _envs(value: object) -> object:
    return dict(parse_each(value.items(), _env)) if isinstance(value, dict) else value


def _outputs(value: object) -> tuple[str, ...]:
    if isinstance(value, dict):
        raise ValueError(
            "expected paths within the working folder, such as [results/, '*.json']; SkyPilot's mapping of a bucket to"
            " a size only estimates costs"
        )
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list) or not paths:
        raise ValueError("expected paths within the working folder, such as [results/, '*.json']")
    return tuple(dict.fromkeys(parse_each(enumerate(paths), lambda _, path: _output(path))))


def _output(path: object) -> str:
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ValueError(f"expected a path within the working folder, such as results/; got {path!r}")
    if path.startswith(("/", "~")) or ".." in path.split("/"):
        raise ValueError(
            f"{path} is outside of the working folder; write a path relative to it, or let the program write to"
            " $GPUBROKER_OUTPUT_DIR, which is kept without being named here"
        )
    return path


_PORT: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65_535}
TEXT = WithJsonSchema({"type": "string"})
NUMBER_OR_TEXT = WithJsonSchema({"type": ["number", "string"]})  # 8, 8+, 64GB
_VALUES = {"type": ["string", "number", "boolean"]}

# Strict, because otherwise `true` would be 1 and "2" would be 2.
WholeNumber: TypeAlias = Annotated[int, Strict()]
OneOrMore: TypeAlias = Annotated[tuple[T, ...], _file_check(_require_items)]
Positive: TypeAlias = Annotated[WholeNumber, Field(ge=1, le=10**9)]
Ports = Annotated[
    OneOrMore[Annotated[WholeNumber, Field(ge=1, le=65_535)]],
    Field(max_length=16),
    BeforeValidator(lambda value: [value] if isinstance(value, int | str) else value),
    WithJsonSchema({"anyOf": [_PORT, {"type": "array", "items": _PORT, "minItems": 1, "maxItems": 16}]}),
]
Name = Annotated[str, _file_check(_name)]
Setup = Annotated[str, _file_check(without_nul)]
Command = Annotated[str, _file_check(_command)]
Pattern = Annotated[str, _file_check(_pattern)]
ProviderPattern = Annotated[Pattern, _file_check(provider_name)]
Location = Annotated[str, _file_check(_location)]
Duration = Annotated[timedelta, _file_parser(parse_duration), TEXT]
PositiveDuration = Annotated[timedelta, _file_parser(lambda value: require_positive(parse_duration(value))), TEXT]
Size = Annotated[int, _file_parser(parse_size), TEXT]
Amount = Annotated[Money, _file_parser(parse_money), TEXT]
Deadline = Annotated[
    timedelta | datetime,
    BeforeValidator(lambda value, info: _deadline(value, info) if info.context else value),
    TEXT,
]
Envs = Annotated[
    dict[str, str], _file_parser(_envs), WithJsonSchema({"type": "object", "additionalProperties": _VALUES})
]
Outputs = Annotated[
    tuple[str, ...],
    _file_parser(_outputs),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
            "description": "results to keep: paths and patterns relative to the working folder",
        }
    ),
]
