"""Names of files: any that a file system allows, also bytes that are not UTF-8, which Python holds as surrogates."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
from pathlib import Path
from unicodedata import category
from urllib.parse import quote

_LONGEST_PART, _LONGEST = 200, 600  # local disks take 255 bytes of a part, object stores 1,024 of a key

_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def escape_unprintable(text: str) -> str:
    """The text for people: what cannot be seen, or moves the cursor, is escaped."""
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode()


def is_one_line(text: str) -> bool:
    """Whether a person's text is one line that controls neither a terminal nor the direction of other text. It may have
    joined emoji, and the spaces of other languages."""
    return not any(category(character) in ("Cc", "Cs", "Zl", "Zp") or character in _DIRECTIONS for character in text)


def to_text(name: str) -> str:
    """The name as Unicode, for documents; one that is not UTF-8 as a Python literal of bytes: ``b'caf\\xe9'``."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return repr(os.fsencode(name))
    return name if not name.startswith(("b'", 'b"')) else repr(os.fsencode(name))


def from_text(text: str) -> str:
    """The inverse of `to_text`. Raises ValueError."""
    if not text.startswith(("b'", 'b"')):
        return text
    try:
        return os.fsdecode(ast.literal_eval(text))
    except (SyntaxError, TypeError) as error:
        raise ValueError(f"{text[:80]} is not the name of a file") from error


def safe_name(name: str) -> str:
    """One part of a path, still readable, in characters and a length that every object store accepts."""
    quoted = quote(name, safe="+=@,~ ", errors="surrogateescape")
    if not name.strip("."):
        return quoted.replace(".", "%2E")
    return quoted if len(quoted) <= _LONGEST_PART else f"{quoted[:100]}~{_digest(name)}"


def object_path(path: str) -> str:
    """The path of an object for the file at ``path``."""
    joined = "/".join(map(safe_name, path.split("/")))
    return joined if len(joined) <= _LONGEST else f"~{_digest(path)}"


def draft(place: Path, content: str = "") -> Path:
    """Where a file is written before it gets its name, in the same folder. ``content``: the SHA-256 of what it gets,
    if an earlier draft may be continued."""
    return place.with_name(f".{_digest(place.name + content)[:16]}.gpubroker-part")


def replace_document(place: Path, document: object) -> None:
    """Replace a file by a JSON document, whole or not at all; nothing happens if the disk is full."""
    part = draft(place)
    with contextlib.suppress(OSError):
        part.write_text(json.dumps(document))
        part.replace(place)


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()
