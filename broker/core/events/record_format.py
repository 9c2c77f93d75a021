"""Format numbers of stored events and views.

Hosts that share a store are not upgraded together. A record of a newer format raises `UnreadableRecord`; readers of
several jobs skip and report that one.

Raise `FORMAT` with every change that earlier versions would misread or reject: a new kind of event, a new field of a
job, event or view.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

FORMAT = 1

_STAMP = re.compile(r'\{"format":(\d+),')

_Read = TypeVar("_Read")


class Body(BaseModel):
    """Base of event bodies."""

    # Built when first used: most commands read no events, and building all of them takes a while.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float", defer_build=True)


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
