"""Hides the values of a job's secrets in everything that the agent sends on for people: output, evidence, events.

Values are also what a program reads from a value, from 6 bytes on: user and password of a URL, strings of JSON, what
follows a ``name=`` or ``name: ``, text in base64, each decoded. A value is found whole, and in any part of 8 bytes or
more: as it is, in base64 and base32 (also inside a longer text), as hexadecimal or decimal bytes between which are up
to 8 blanks and signs, in UTF-16, and with any of its characters escaped as in URLs, JSON, HTML, Python and shells.
Each byte becomes an asterisk, so sizes and offsets stay. Not hidden: scheme and host of a value that is a URL, values
shorter than 4 bytes, and what a program changes in another way, such as compressed or encoded twice. Results and
checkpoints are the program's own files and stay as they are.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import sys
from array import array
from base64 import b32encode, b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Callable
from urllib.parse import unquote_to_bytes

_PART, _BLOCK, _MIN_SIZE, _MIN_INNER = 8, 4, 4, 6
REACH = 12 * _PART - 1
"""Bytes around a piece of a text that decide what is hidden in the piece; an escaped character takes up to 12."""
_URL = re.compile(rb"([a-z][a-z0-9+.-]{0,30}://)(?:([^/?#]*)@)?[^/?#@]*", re.IGNORECASE)
_PEM_FRAME = re.compile(rb"-----[A-Z ]+-----")
_SETTING = re.compile(  # a sign that ends a value in a URL is a part of it in YAML
    rb"(?:^|[;&?,{\s])[\w.-]+(?: ?= ?|: )(?=(\S{1,1000}))(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^;&\s]*)"
)
_HEX = rb"[0-9A-Fa-f]"
_ESCAPES = (  # each by itself, because a value may contain what looks like another one
    re.compile(rb"%%(?P<byte>%s{2})" % _HEX),
    re.compile(rb"(?P<entity>&#?\w{1,8};)"),
    re.compile(rb"(?P<quote>'(?:\"'\"|\\')')"),
    re.compile(
        rb"\\x(?P<byte>%(hex)s{2})|(?P<point>\\u[dD][89abAB]%(hex)s{2}\\u[dD][c-fC-F]%(hex)s{2}|\\u%(hex)s{4}"
        rb"|\\U00%(hex)s{6})|\\(?P<octal>[0-3][0-7]{2})"
        rb"|\\(?P<character>.)" % {b"hex": _HEX}
    ),
)
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"a": b"\a", b"e": b"\x1b"}
_HEX_BYTE, _NUMBER = re.compile(_HEX + rb"{2}"), re.compile(rb"[0-9]+")
_HEX_ROW = re.compile(
    rb"(?:(?:[0\\]?[xX])?(?:%s{2}){1,4}[^0-9A-Za-z\n]{1,8}){2,}(?:[0\\]?[xX])?(?:%s{2}){1,4}" % (_HEX, _HEX)
)
_DECIMAL_ROW = re.compile(rb"(?:[0-9]{1,3}[^0-9A-Za-z\n]{1,8}){3,}[0-9]{1,3}")


class Mask:
    """``values``: of the secrets; empty ones are ignored."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        encoded = {part for value in values for part in _values_in(value.encode("utf-8", "surrogateescape"))}
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
        """The data, of the same size and in the same lines."""
        masked = bytearray(data)
        for decoded, find_origins in _decodings(data):
            places = list(self._places(decoded))
            origins = find_origins() if places else ()
            for start, end in places:
                while end < len(decoded) and origins[end] == origins[end - 1]:
                    end += 1  # a character of several bytes is hidden whole
                place = slice(origins[start], origins[end])
                masked[place] = re.sub(rb"[^\n]", b"*", data[place])
        return bytes(masked)

    def _places(self, data: bytes) -> Iterator[tuple[int, int]]:
        for value in self._whole:
            at = -1
            while (at := data.find(value, at + 1)) >= 0:
                yield at, at + len(value)
        # Any part of 8 bytes contains one of the blocks of 4 bytes into which the data is cut here.
        blocks = memoryview(data)[: len(data) // _BLOCK * _BLOCK].cast("I")
        if len(data) < _PART or self._blocks.isdisjoint(blocks):
            return
        for number, block in enumerate(blocks):
            if block in self._blocks:
                at = number * _BLOCK
                for start in range(max(0, at - _PART + _BLOCK), at + 1):
                    if data[start : start + _PART] in self._parts:
                        yield start, start + _PART

    def window(self, read: Callable[[int, int], bytes], start: int, size: int) -> bytes:
        """A piece of a file. ``read(start, size)`` returns at most ``size`` bytes."""
        margin = min(start, REACH) if self else 0
        return self.hide(read(start - margin, margin + size + (REACH if self else 0)))[margin : margin + size]


NO_MASK = Mask()


def _decodings(data: bytes) -> Iterator[tuple[bytes, Callable[[], Sequence[int]]]]:
    """The data, as it is, with its escapes resolved, and lists of bytes in it as these bytes; and where each byte
    was."""
    yield data, lambda: range(len(data) + 1)
    for escape in _ESCAPES:
        if escape.search(data):
            yield escape.sub(_resolve, data), partial(_origins, data, escape)
    for row, number, base in ((_HEX_ROW, _HEX_BYTE, 16), (_DECIMAL_ROW, _NUMBER, 10)):
        rows = [match.span() for match in row.finditer(data)]
        numbers = b" 0 ".join(b" ".join(number.findall(data, *span)) for span in rows).split()
        yield bytes(int(text, base) & 0xFF for text in numbers), partial(_starts, data, number, rows)


def _starts(data: bytes, number: re.Pattern[bytes], rows: Sequence[tuple[int, int]]) -> Sequence[int]:
    return [at for row in rows for at in (*(match.start() for match in number.finditer(data, *row)), row[1])]


def _origins(data: bytes, escape: re.Pattern[bytes]) -> Sequence[int]:
    origins, at = array("I"), 0
    for match in escape.finditer(data):
        origins.extend(range(at, match.start()))
        origins.extend([match.start()] * len(_resolve(match)))
        at = match.end()
    origins.extend(range(at, len(data) + 1))
    return origins


def _resolve(escape: re.Match[bytes]) -> bytes:
    return _unescape(escape[0], escape.lastgroup)


@lru_cache(4096)
def _unescape(text: bytes, kind: str | None) -> bytes:
    if kind == "byte":
        return bytes.fromhex(text[-2:].decode())
    if kind == "quote":
        return b"'"
    if kind == "octal":
        return bytes([int(text[1:], 8)])
    if kind == "character":
        return _CONTROLS.get(text[1:], text[1:])
    with contextlib.suppress(UnicodeDecodeError):
        characters = text.decode("unicode_escape") if kind == "point" else html.unescape(text.decode())
        return characters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return text


def _values_in(value: bytes) -> Iterator[bytes]:
    """The value, and the values that it contains."""
    yield value
    written = {text.strip(b"\"'") for match in _SETTING.finditer(value) for text in match.groups()}
    text = _text_in_base64(value)
    inner = {value.strip(), text, *text.split(b":", 1), *written}
    for text in written:
        inner |= {re.sub(rb"\\(.)", rb"\1", text), unquote_to_bytes(text), unquote_to_bytes(text.replace(b"+", b" "))}
    for match in _URL.finditer(value):
        inner.update(unquote_to_bytes(part) for part in (match[2] or b"").split(b":", 1))
    with contextlib.suppress(ValueError, RecursionError):
        inner.update(text.encode("utf-8", "surrogatepass") for text in _strings(json.loads(value)))
    for part in inner:
        if len(part) >= _MIN_INNER and part != value:
            yield from _values_in(part)


def _text_in_base64(value: bytes) -> bytes:
    """The printable text of which the value is the base64 form; empty if it is none."""
    with contextlib.suppress(ValueError):
        decoded = b64decode(value, validate=True)
        return decoded if decoded.decode().isprintable() else b""
    return b""


def _strings(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from _strings(part)


def _forms(value: bytes) -> Iterator[bytes]:
    """The value in the ways in which programs print it, but for escapes."""
    text = value.decode("utf-8", "surrogateescape")
    yield from (value, value.replace(b" ", b"+"), value.replace(b"\n", b""))
    yield b"".join(
        character.encode(errors="surrogateescape") if ord(character) > 0xFF else bytes([ord(character)])
        for character in text
    )
    yield from (text.encode(form, "surrogatepass") for form in ("utf-16-le", "utf-16-be"))
    yield from (value.hex().encode(), value.hex().upper().encode())
    for encode, group, digits in ((b64encode, 3, 4), (urlsafe_b64encode, 3, 4), (b32encode, 5, 8)):
        for offset in range(group):  # as part of a longer text, without the characters that other bytes also change
            padded = encode(b"\0" * offset + value)
            yield padded[-(-offset * digits // group) : (offset + len(value)) * digits // group]


def _secret_pieces(value: bytes) -> Iterator[bytes]:
    """The parts of a value that are secret by themselves: not scheme and host of a URL, and not the frame of a PEM; as
    they are, and decoded."""
    for piece in _URL.sub(rb"\0\2\0", _PEM_FRAME.sub(b"\0", value)).split(b"\0"):
        yield piece
        yield from (escape.sub(_resolve, piece) for escape in _ESCAPES)
