"""The single values of a job file: the accepted forms, and the error message for any other."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainValidator, ValidationInfo, WithJsonSchema

from broker.core.errors import did_you_mean
from broker.core.job.file.accelerator_requests import Accelerators, parse_alternatives, parse_machine
from broker.core.job.file.repository import Repository, repository
from broker.core.job.file.skypilot import STORAGE_KEYS
from broker.core.job.jobs import ResumePoint, Work
from broker.core.validation import parse_each
from broker.core.values.units import MAX_DURATION, parse_cpus, parse_duration, parse_memory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PATTERN = re.compile(r"[A-Za-z0-9_.:*?\[\]!-]{1,100}")
_LOCATION = re.compile(r"[A-Za-z0-9_.-]{1,63}/[A-Za-z0-9_.-]{1,63}")
_CLOUDS_WITH_FREE_PATH = frozenset({"kubernetes", "k8s", "ssh"})
_RESUME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:@([0-9]{1,12}))?")
_ISO_DATE = re.compile(r"\s*[0-9]{4}-")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "expected letters, digits, '.', '_' and '-' only, starting with a letter or digit, at most 63 characters;"
            f" got {value[:70]!r}"
        )
    return value


def _content(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; write something, or delete the line")
    return _without_nul(value)


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains a NUL character, which no command or variable can carry")
    return value


def _command(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; write the command that does the work, such as `python train.py`")
    return _without_nul(value)


def _workdir(value: object) -> str | Repository:
    return _content(value) if isinstance(value, str) else repository(value)


def _infra(value: str) -> str:
    parts = value.strip().strip("/").split("/")
    parts[0] = {"k8s": "kubernetes"}.get(parts[0].lower(), parts[0].lower())
    has_valid_length = len(parts) <= 3 or parts[0] in _CLOUDS_WITH_FREE_PATH
    if not has_valid_length or not all(part and part.isprintable() and not re.search(r"\s", part) for part in parts):
        raise ValueError(f"expected provider[/region[/zone]], such as aws/us-east-1; got {value[:70]!r}")
    return "/".join(parts)


def _place(value: str) -> str:
    if not value or not value.isprintable() or re.search(r"[\s/]", value):
        raise ValueError(f"expected one name without spaces and slashes, such as us-east-1; got {value[:70]!r}")
    return value


def _pattern(value: str) -> str:
    if not _PATTERN.fullmatch(value):
        raise ValueError(f"expected a name or a pattern such as us-*; got {value[:70]!r}")
    return value


def _location(value: str) -> str:
    if not _LOCATION.fullmatch(value):
        raise ValueError(f"expected provider/region, such as aws/us-east-1; got {value[:70]!r}")
    return value


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


def _work(value: object) -> Work:
    expected = "expected an amount of work such as 48h on A100-80GB:8 (or 48h, on whatever it gets)"
    if not isinstance(value, str):
        raise ValueError(f"{expected}; got {str(value)[:40]!r}")
    amount, on, machine = value.strip().partition(" on ")
    duration = parse_duration(amount)
    if duration <= timedelta(0):
        raise ValueError(f"there is nothing to do; {expected}")
    if not on:
        return Work(duration=duration)
    name, count = parse_machine(machine)
    return Work(duration=duration, accelerator=name, count=count)


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
    return variable_name(name), _without_nul(value)


def _envs(value: object) -> object:
    return dict(parse_each(value.items(), _env)) if isinstance(value, dict) else value


def _secret(name: object, value: object) -> tuple[str, bool]:
    """The name, and whether the secret is optional (``HF_TOKEN: ""``)."""
    # The value must not come near a message, a log or the job.
    if value not in (None, ""):
        raise ValueError(
            "a secret's value does not belong in a file; leave it empty here and export the variable before you submit"
        )
    return variable_name(name.removeprefix("secrets:") if isinstance(name, str) else name), value == ""


def _secrets(value: object) -> dict[str, bool]:
    if isinstance(value, dict):
        return dict(parse_each(value.items(), _secret))
    if isinstance(value, list):
        return dict(parse_each(enumerate(value), lambda _, name: _secret(name, None)))
    raise ValueError("expected a list of names of variables, such as [HF_TOKEN]; their values come from yours")


def _mount(target: str, source: object) -> tuple[str, Any]:
    if not target.strip():
        raise ValueError("expected the path on the machine before the ':'")
    if isinstance(source, dict):
        for key in source:
            if key not in STORAGE_KEYS:
                keys = ", ".join(sorted(STORAGE_KEYS))
                raise ValueError(f"unknown key {key!r}{did_you_mean(key, STORAGE_KEYS) or f'; known here: {keys}'}")
    elif not isinstance(source, str) or not source.strip():
        raise ValueError("expected a local path, a bucket such as s3://name, or a mapping with name, source, store, …")
    return target, source


def _mounts(value: object) -> object:
    return dict(parse_each(value.items(), _mount)) if isinstance(value, dict) else value


def _resume_from(value: object) -> ResumePoint:
    match = _RESUME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a job, and a step if not its newest checkpoint: my-job or my-job@60; got {value!r}")
    return ResumePoint(job=match[1], step=None if match[2] is None else int(match[2]))


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


_TEXT = WithJsonSchema({"type": "string"})
_NUMBER_OR_TEXT = WithJsonSchema({"type": ["number", "string"]})  # 8, 8+, 64GB
_VALUES = {"type": ["string", "number", "boolean"]}
_SECRET_NAMES = {"type": "object", "additionalProperties": {"enum": [None, ""]}}

Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, AfterValidator(_content)]
Setup = Annotated[str, AfterValidator(_without_nul)]
Command = Annotated[str, AfterValidator(_command)]
Workdir = Annotated[
    str | Repository,
    PlainValidator(_workdir),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"url": {"type": "string"}, "ref": {"type": "string"}},
                    "required": ["url"],
                    "additionalProperties": False,
                },
            ],
            "description": "a folder that the job starts in, or a Git repository that each machine fetches",
        }
    ),
]
Place = Annotated[str, AfterValidator(_place)]
Infra = Annotated[str, AfterValidator(_infra)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Location = Annotated[str, AfterValidator(_location)]
AcceleratorsField = Annotated[
    Accelerators,
    PlainValidator(parse_alternatives),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}, "minProperties": 1},
            ],
            "description": "H100:8, H100:4+, 80GB+; a list in order of preference; or a mapping of names to counts",
        }
    ),
]
Cpus = Annotated[float, PlainValidator(parse_cpus), _NUMBER_OR_TEXT]
Memory = Annotated[float, PlainValidator(parse_memory), _NUMBER_OR_TEXT]
Deadline = Annotated[timedelta | datetime, PlainValidator(_deadline), _TEXT]
WorkField = Annotated[Work, PlainValidator(_work), _TEXT]
Envs = Annotated[
    dict[str, str], BeforeValidator(_envs), WithJsonSchema({"type": "object", "additionalProperties": _VALUES})
]
Secrets = Annotated[
    dict[str, bool],
    PlainValidator(_secrets),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, _SECRET_NAMES]}),
]
Outputs = Annotated[
    tuple[str, ...],
    PlainValidator(_outputs),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
            "description": "results to keep: paths and patterns relative to the working folder",
        }
    ),
]
ResumeFrom = Annotated[ResumePoint, PlainValidator(_resume_from), _TEXT]
FileMounts = Annotated[dict[str, Any], BeforeValidator(_mounts)]
