"""Stored records: what earlier and later versions make of them, as hosts that share a store are not upgraded together.

A default is not stored, so a new field concerns only the records that use it. A version that does not know a field
keeps it and writes it back; it runs no job that has one (`unknown_fields`). A record of a newer format raises
`UnreadableRecord`; readers of several jobs skip and report that one.

Raise `FORMAT` with every change that earlier versions would misread or reject: a new kind of event or reason, a new
field of a view.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

FORMAT = 1

_STAMP = re.compile(r'\{"format":(\d+),')

_Read = TypeVar("_Read")


class Record(BaseModel):
    """Base of stored values: immutable; fields of newer versions are kept."""

    # Built when first used: most commands read no events, and building all of them takes a while.
    model_config = ConfigDict(frozen=True, extra="allow", ser_json_timedelta="float", defer_build=True)


class RecordOfKind(Record):
    """Base of the stored values that ``kind`` distinguishes; it is stored although it is a default."""

    @model_serializer(mode="wrap")
    def _with_kind(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": type(self).model_fields["kind"].default, **serialize(self)}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the fields, not that of what the serializer returns."""
        fields: Any = {key: value for key, value in core_schema.items() if key != "serialization"}
        return handler(fields)


def unknown_fields(value: object) -> Iterator[str]:
    """The fields in a stored value that this version does not know: ``checkpoint.mirror``."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from (f"{name}.{field}" for field in unknown_fields(getattr(value, name)))
    elif isinstance(value, tuple):
        for item in value:
            yield from unknown_fields(item)


@dataclass(frozen=True, slots=True)
class ReaderVersion:
    """What a version of gpubroker reads of a stored class. ``names``: the fields of that class and of those that it
    contains, and the members of its enumerations, by class."""

    version: str
    format: int
    names: Mapping[str, Sequence[str]]

    def objection(self, value: Record) -> str:
        """Why that version cannot read the value, in words; empty if it can. Defaults do not count: none is stored."""
        if self.format < FORMAT:
            return f"reads records up to format {self.format}, not {FORMAT}"
        unknown = ", ".join(dict.fromkeys(self._unknown(value)))
        return f"does not know {unknown}" if unknown else ""

    def _unknown(self, value: object) -> Iterator[str]:
        known = self.names.get(type(value).__name__, ())
        if isinstance(value, Enum) and value.value not in known:
            yield str(value.value)
        elif isinstance(value, BaseModel):
            yield from value.model_extra or ()
            for name, field in type(value).model_fields.items():
                part = getattr(value, name)
                if part != field.get_default(call_default_factory=True):
                    yield from self._unknown(part) if name in known else (name,)
        elif isinstance(value, tuple):
            for item in value:
                yield from self._unknown(item)


def reader_version(version: str, kind: type[Record]) -> ReaderVersion:
    """What this version, whose number is ``version``, reads of that class."""
    names: dict[str, list[str]] = {}
    pending: list[Any] = [kind]
    while pending:
        part = pending.pop()
        pending += get_args(part)
        if not isinstance(part, type) or part.__name__ in names:
            continue
        if issubclass(part, BaseModel):
            names[part.__name__] = [*part.model_fields]
            pending += [field.annotation for field in part.model_fields.values()]
        elif issubclass(part, Enum):
            names[part.__name__] = [str(member.value) for member in part]
    return ReaderVersion(version, FORMAT, names)


class UnreadableRecord(ValueError):
    """Stored text that this version cannot read. ``newer``: a newer version of gpubroker wrote it."""

    def __init__(self, because: str, *, newer: bool = False) -> None:
        super().__init__(because)
        self.newer = newer


def add_stamp(text: str) -> str:
    """The JSON object (with at least one key) preceded by the current format number."""
    return f'{{"format":{FORMAT},{text[1:]}'


def read_stamped(text: str, read: Callable[[str], _Read]) -> _Read:
    """Apply ``read`` to the JSON object without its number; it may raise pydantic's ValidationError.

    Raises `UnreadableRecord` for a newer format and for malformed records.
    """
    number, plain = _parts(text)
    if number > FORMAT:
        because = f"written by a newer version of gpubroker (format {number}; this one reads up to {FORMAT})"
        raise UnreadableRecord(because, newer=True)
    try:
        return read(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableRecord(f"{where}: {first['msg']}" if where else str(first["msg"])) from error


def _parts(text: str) -> tuple[int, str]:
    """The number of the format, and the object without it."""
    if (stamp := _STAMP.match(text)) is not None:
        return int(stamp[1]), "{" + text[stamp.end() :]
    try:  # another JSON library may have reordered the keys
        document = json.loads(text)
        return document.pop("format"), json.dumps(document)
    except (ValueError, LookupError, AttributeError) as error:
        raise UnreadableRecord(f"not a record: {error}") from error
