"""Which version of gpubroker a stored body was written for: a number in each stored event and in each stored view.

Several hosts may share one store, and they are not upgraded at the same moment. A body of a newer format than this
version knows is not guessed at: it is refused with `UnreadableRecord`, and whoever reads several jobs leaves that one
out and says so.

Raise `FORMAT` with each change after which earlier versions would misread or reject what is written: a new kind of
event, a new field of a job, of an event or of a view.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

FORMAT = 4
_TYPED = 4  # from here on, reasons and what a cost is for are kept as codes and fields, and not as words
_UNSTAMPED = 1  # what was written before bodies carried a number

_STAMP = re.compile(r'\{"format":(\d+),')
_ANYWHERE = re.compile(r'"format"\s*:')

_Read = TypeVar("_Read")


class UnreadableRecord(ValueError):
    """Stored text that this version cannot read. ``newer``: a newer version of gpubroker wrote it."""

    def __init__(self, because: str, *, newer: bool = False) -> None:
        super().__init__(because)
        self.newer = newer


def stamped(text: str) -> str:
    """The JSON object with the number of the present format in front of its own keys, of which it has one at least."""
    return f'{{"format":{FORMAT},{text[1:]}'


def read_stamped(
    text: str,
    read: Callable[[str], _Read],
    of_words: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document,
    of_unstamped: Callable[[_Read], _Read] = lambda found: found,
) -> _Read:
    """What ``read`` makes of the JSON object without its number. ``read`` may raise pydantic's ValidationError.
    ``of_words``: turns the object of a format that kept words for codes into one of today's; ``of_unstamped``: what
    else is to be done with what was written before bodies carried a number.

    Raises `UnreadableRecord` for a newer format, and for what ``read`` does not understand.
    """
    number, plain = _parts(text)
    if number > FORMAT:
        because = f"written by a newer version of gpubroker (format {number}; this one reads up to {FORMAT})"
        raise UnreadableRecord(because, newer=True)
    if number < _TYPED:
        plain = _converted(plain, of_words)
    try:
        found = read(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableRecord(f"{where}: {first['msg']}" if where else str(first["msg"])) from error
    return of_unstamped(found) if number == _UNSTAMPED else found


def _converted(text: str, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return text  # what is wrong with it is for the reader to say
    return json.dumps(convert(document)) if isinstance(document, dict) else text


def _parts(text: str) -> tuple[int, str]:
    """The number of the format, and the object without it."""
    if (stamp := _STAMP.match(text)) is not None:
        return int(stamp[1]), "{" + text[stamp.end() :]
    if _ANYWHERE.search(text) is None:
        return _UNSTAMPED, text
    try:  # somebody else's JSON library may have put the keys in another order
        document = json.loads(text)
    except ValueError:
        return _UNSTAMPED, text
    number = document.pop("format", _UNSTAMPED) if isinstance(document, dict) else _UNSTAMPED
    return (number, json.dumps(document)) if isinstance(number, int) else (_UNSTAMPED, text)
