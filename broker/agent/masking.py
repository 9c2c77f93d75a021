"""Hides the values of a job's secrets in everything that the agent sends on for people: output, evidence, events.

A value is found whole, and in any part of 8 bytes or more: as it is, escaped as in JSON, Python and HTML, encoded for a
URL, in base64 (also inside a longer text) and in hexadecimal. Each byte becomes an asterisk, so sizes and offsets stay.
Not hidden: scheme and host of a value that is a URL (its user, password, path and query are), values shorter than 4
bytes, and what a program changes in another way. Results and checkpoints are the program's own files and stay as they
are.
"""

from __future__ import annotations

import html
import json
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Callable
from urllib.parse import quote, quote_plus

_PART, _BLOCK, _MIN_SIZE = 8, 4, 4
REACH = _PART - 1
"""Bytes around a piece of a text that decide what is hidden in the piece."""
_URL = re.compile(rb"([a-z][a-z0-9+.-]{0,30}://)(?:([^/?#]*)@)?[^/?#@]*", re.IGNORECASE)
_PEM_FRAME = re.compile(rb"-----[A-Z ]+-----")


class Mask:
    """``values``: of the secrets; empty ones are ignored."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        encoded = {value.encode("utf-8", "surrogateescape") for value in values}
        whole = {form for value in encoded for form in _forms(value)}
        forms = {form for value in encoded for piece in _secret_pieces(value) for form in _forms(piece)}
        self._whole = sorted((candidate for candidate in whole if len(candidate) >= _MIN_SIZE), key=len, reverse=True)
        forms = {form for form in forms if len(form) >= _PART}
        self._parts = {form[at : at + _PART] for form in forms for at in range(len(form) - _PART + 1)}
        blocks = {form[at : at + _BLOCK] for form in forms for at in range(len(form) - _BLOCK + 1)}
        self._blocks = {int.from_bytes(block, sys.byteorder) for block in blocks}

    def __bool__(self) -> bool:
        return bool(self._whole)

    def text(self, text: str) -> str:
        return self.hide(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape") if self else text

    def hide(self, data: bytes) -> bytes:
        """The data, of the same size."""
        for value in self._whole:
            data = data.replace(value, b"*" * len(value))
        if len(data) < _PART:
            return data
        # Any part of 8 bytes contains one of the blocks of 4 bytes into which the data is cut here.
        blocks = memoryview(data)[: len(data) // _BLOCK * _BLOCK].cast("I")
        if self._blocks.isdisjoint(blocks):
            return data
        masked = bytearray(data)
        for number, block in enumerate(blocks):
            if block in self._blocks:
                at = number * _BLOCK
                for start in range(max(0, at - _PART + _BLOCK), at + 1):
                    if data[start : start + _PART] in self._parts:
                        masked[start : start + _PART] = b"*" * _PART
        return bytes(masked)

    def window(self, read: Callable[[int, int], bytes], start: int, size: int) -> bytes:
        """A piece of a file. ``read(start, size)`` returns at most ``size`` bytes."""
        margin = min(start, REACH) if self else 0
        return self.hide(read(start - margin, margin + size + (REACH if self else 0)))[margin : margin + size]


NO_MASK = Mask()


def _forms(value: bytes) -> Iterator[bytes]:
    """The value in the ways in which programs print it."""
    text = value.decode("utf-8", "surrogateescape")
    yield value
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
    yield repr(text)[1:-1].encode("utf-8", "surrogateescape")
    yield ascii(text)[1:-1].encode()
    yield repr(value)[2:-1].encode()
    yield html.escape(text).encode("utf-8", "surrogateescape")
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded.encode()
        yield re.sub("%..", lambda match: match[0].lower(), encoded).encode()
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(value)
        for offset in range(3):  # as part of a longer text, without the characters that other bytes also change
            padded = encode(b"\0" * offset + value)
            yield padded[-(-offset * 8 // 6) : (offset + len(value)) * 8 // 6]


def _secret_pieces(value: bytes) -> list[bytes]:
    """The parts of a value that are secret by themselves: not scheme and host of a URL, and not the frame of a PEM."""
    return _URL.sub(rb"\0\2\0", _PEM_FRAME.sub(b"\0", value)).split(b"\0")
