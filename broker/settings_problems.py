"""Errors in the settings: the file and line or the variable, and a suggestion."""

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
_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")


def not_a_setting(key: Key, known: Iterable[str]) -> str:
    """The message for a key that is not in ``known``: with a suggestion, or with the list of known keys."""
    names = [name.upper() if _from_environment(key) else name for name in sorted(known)]
    return f"is not a setting{did_you_mean(str(key[-1]), names) or '; known here: ' + ', '.join(names)}"


def raise_errors(errors: Sequence[tuple[Key, str]], files: Sequence[Path], *, hint: str = "") -> NoReturn:
    """Raises `InvalidInput` for these keys, each with its position and its error.

    ``files``: the files that were read; later ones take precedence. Lines are named by number and never printed, as
    they may contain secrets.
    """
    located = [_locate(key, message, files) for key, message in errors]
    messages = [
        f"{place(where, problem.line, problem.column)}: {problem.key}: {problem.message}" if where else str(problem)
        for where, problem in located
    ]
    raise InvalidInput(
        messages[0] if len(messages) == 1 else "\n  ".join(("", *messages)).lstrip(" "),
        where="settings",
        hint=hint or f"check the GPUBROKER_* variables and {', '.join(map(str, files))}",
        problems=[problem for _, problem in located],
    )


def raise_unreadable(error: ValueError, files: Sequence[Path]) -> NoReturn:
    """Raises `InvalidInput` for the file that is not valid TOML, with the line of the error."""
    for file in files:
        try:
            tomllib.loads(file.read_text("utf-8"))
        except OSError:
            continue
        except ValueError as problem:
            position = _TOML_POSITION.search(str(problem))
            line, column = (int(position[1]), int(position[2])) if position and position[1] else (0, 0)
            message = f"is not valid TOML: {_TOML_POSITION.sub('', str(problem))}"
            problems = [Problem(line, column, "", message)]
            raise InvalidInput(
                f"{place(str(file), line, column)}: {message}", where="settings", problems=problems
            ) from problem
    raise InvalidInput(str(error), where="settings", hint=f"fix {' or '.join(map(str, files))}") from error


def _locate(key: Key, message: str, files: Sequence[Path]) -> tuple[str, Problem]:
    """The file (empty for a variable, or if no file contains the key) and the problem."""
    if _from_environment(key):
        return "", Problem(0, 0, variable(*key), message)
    depth, file_index, line = max(
        (depth, i, line) for i, (depth, line) in enumerate(_nearest(key, file) for file in files)
    )
    return str(files[file_index]) if depth else "", Problem(line, 0, ".".join(map(str, key)), message)


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
    key_parts = tuple(str(part) for part in key)
    table: tuple[str, ...] = ()
    depth, line_number = 0, 0
    for number, line in enumerate(lines, 1):
        if table_match := _TABLE.match(line):
            path = table = _parts(table_match[1])
        elif line_match := _LINE.match(line):
            path = (*table, *_parts(line_match[1]))
        else:
            continue
        common = min(len(path), len(key_parts))
        if common > depth and path[:common] == key_parts[:common]:
            depth, line_number = common, number
    return depth, line_number


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
