"""Errors in the settings: the file and line or the variable, and a suggestion."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from broker.core.errors import InvalidInput, Problem, did_you_mean, place
from broker.settings import PREFIX, variable

Key = tuple[int | str, ...]

_TABLE = re.compile(r"\s*\[([^\[\]]+)\]")
_LINE = re.compile(r"\s*([\w.\"'-]+)\s*=")
_STOPPED = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")


def not_a_setting(key: Key, known: Iterable[str]) -> str:
    """The message for a key that is not in ``known``: with a suggestion, or with the list of known keys."""
    names = [name.upper() if _from_environment(key) else name for name in sorted(known)]
    return f"is not a setting{did_you_mean(str(key[-1]), names) or '; known here: ' + ', '.join(names)}"


def refuse(found: Sequence[tuple[Key, str]], files: Sequence[Path], *, hint: str = "") -> NoReturn:
    """Raises `InvalidInput` for these keys, each with its position and its error.

    ``files``: the files that were read; later ones take precedence. Lines are named by number and never printed, as
    they may contain secrets.
    """
    placed = [_place(key, message, files) for key, message in found]
    told = [
        f"{place(where, problem.line, problem.column)}: {problem.key}: {problem.message}" if where else str(problem)
        for where, problem in placed
    ]
    raise InvalidInput(
        told[0] if len(told) == 1 else "\n  ".join(("", *told)).lstrip(" "),
        where="settings",
        hint=hint or f"check the GPUBROKER_* variables and {', '.join(map(str, files))}",
        problems=[problem for _, problem in placed],
    )


def refuse_unreadable(error: ValueError, files: Sequence[Path]) -> NoReturn:
    """Raises `InvalidInput` for the file that is not valid TOML, with the line of the error."""
    for file in files:
        try:
            tomllib.loads(file.read_text("utf-8"))
        except OSError:
            continue
        except ValueError as wrong:
            at = _STOPPED.search(str(wrong))
            line, column = (int(at[1]), int(at[2])) if at and at[1] else (0, 0)
            message = f"is not valid TOML: {_STOPPED.sub('', str(wrong))}"
            problems = [Problem(line, column, "", message)]
            raise InvalidInput(
                f"{place(str(file), line, column)}: {message}", where="settings", problems=problems
            ) from wrong
    raise InvalidInput(str(error), where="settings", hint=f"fix {' or '.join(map(str, files))}") from error


def _place(key: Key, message: str, files: Sequence[Path]) -> tuple[str, Problem]:
    """The file (empty for a variable, or if no file contains the key) and the problem."""
    if _from_environment(key):
        return "", Problem(0, 0, variable(*key), message)
    depth, at, line = max((depth, i, line) for i, (depth, line) in enumerate(_nearest(key, file) for file in files))
    return str(files[at]) if depth else "", Problem(line, 0, ".".join(map(str, key)), message)


def _from_environment(key: Key) -> bool:
    """Whether a variable sets the key, a part of it, or its section (as JSON)."""
    full = variable(*key)
    return any(
        name.startswith(PREFIX) and (f"{full}__".startswith(f"{name}__") or name.startswith(f"{full}__"))
        for name in map(str.upper, os.environ)
    )


def _nearest(key: Key, file: Path) -> tuple[int, int]:
    """The number of leading parts of the key that the file contains, and the 1-based line of the last of them.

    TOML readers keep no positions, so this searches for tables and keys at the start of lines; a key inside ``{ }``
    gets the line of its section.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return 0, 0
    wanted = tuple(str(part) for part in key)
    table: tuple[str, ...] = ()
    depth, at = 0, 0
    for number, line in enumerate(lines, 1):
        if opened := _TABLE.match(line):
            path = table = _parts(opened[1])
        elif given := _LINE.match(line):
            path = (*table, *_parts(given[1]))
        else:
            continue
        common = min(len(path), len(wanted))
        if common > depth and path[:common] == wanted[:common]:
            depth, at = common, number
    return depth, at


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
