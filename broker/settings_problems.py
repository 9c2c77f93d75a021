"""What is wrong with the settings: which file and line, or which variable, and what was probably meant."""

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
    """The sentence about a key that none of ``known`` is: what was probably meant, or which there are."""
    names = [name.upper() if _from_environment(key) else name for name in sorted(known)]
    return f"is not a setting{did_you_mean(str(key[-1]), names) or '; known here: ' + ', '.join(names)}"


def refuse(found: Sequence[tuple[Key, str]], files: Sequence[Path], *, hint: str = "") -> NoReturn:
    """Raises `InvalidInput` for these keys: each with where it stands and what is wrong with it. ``files``: those read;
    later ones win. Lines are told by number and never shown: there may be secrets in them."""
    placed = [_place(key, message, files) for key, message in found]
    told = [
        f"{place(where, problem.line, problem.column)}: {problem.key}: {problem.message}" if where else str(problem)
        for where, problem in placed
    ]
    raise InvalidInput(
        told[0] if len(told) == 1 else "\n  ".join(("", *told)).lstrip(" "),
        where="settings",
        hint=hint or f"see GPUBROKER_* variables and {', '.join(map(str, files))}",
        problems=[problem for _, problem in placed],
    )


def refuse_unreadable(error: ValueError, files: Sequence[Path]) -> NoReturn:
    """Raises `InvalidInput` for the file that is not TOML, with the line where reading stopped."""
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
    raise InvalidInput(str(error), where="settings", hint=f"mend {' or '.join(map(str, files))}") from error


def _place(key: Key, message: str, files: Sequence[Path]) -> tuple[str, Problem]:
    """The file (empty for a variable, or where no file has it) and the problem."""
    if _from_environment(key):
        return "", Problem(0, 0, variable(*key), message)
    depth, at, line = max((depth, i, line) for i, (depth, line) in enumerate(_nearest(key, file) for file in files))
    return str(files[at]) if depth else "", Problem(line, 0, ".".join(map(str, key)), message)


def _from_environment(key: Key) -> bool:
    """Whether a variable sets it, a part of it or the section it is in (as JSON)."""
    full = variable(*key)
    return any(
        name.startswith(PREFIX) and (f"{full}__".startswith(f"{name}__") or name.startswith(f"{full}__"))
        for name in map(str.upper, os.environ)
    )


def _nearest(key: Key, file: Path) -> tuple[int, int]:
    """How many parts of the key stand in the file, and the line, from 1, of the last of them. TOML readers keep no
    places: tables and keys are looked for at the beginnings of lines; a key inside ``{ }`` is told by its section."""
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
