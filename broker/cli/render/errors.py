"""Errors as text: what is wrong, where (with the line of the file), and what to do next."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from broker.core.errors import JOB_FILE, POLICY_FILE, BrokerError, InvalidInput, Problem, known_here, place

if TYPE_CHECKING:
    from rich.text import Text

_MOST_PROBLEMS = 200  # shown for one file; --json has all
_MOST_BYTES = 1_000_000
_LONGEST_LINE = 100
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or the direction of text, other than tabs and line breaks; and lone surrogates."""


def error_text(error: BrokerError) -> Text:
    """The error, each problem with its position and an excerpt of the file, and the hint; then the errors of other
    files."""
    from rich.text import Text

    others = error.others if isinstance(error, InvalidInput) else ()
    return Text("\n").join([_one_error(error), *map(error_text, others)])


def _one_error(error: BrokerError) -> Text:
    from rich.text import Text

    text = Text("error: ", style="bold red")
    text.append(_clean(str(error)), style="not bold default")
    if isinstance(error, InvalidInput) and error.problems:
        lines = _lines_of(error.where)
        untold = [problem for problem in error.problems if problem.message not in error.message]
        listed: set[str] = set()
        for problem in untold[:_MOST_PROBLEMS]:
            text.append("\n")
            text.append(_problem(_once(problem, listed), error.where, lines))
        if len(untold) > _MOST_PROBLEMS:
            more = len(untold) - _MOST_PROBLEMS
            text.append(f"\n… and {more} more; use --json to list all", style="not bold default")
    if other := _meant_for(error):
        text.append("\nhint: ", style="bold cyan")
        text.append(other, style="not bold default")
    if error.hint:
        text.append("\nhint: ", style="bold cyan")
        text.append(_clean(error.hint), style="not bold default")
    return text


def _meant_for(error: BrokerError) -> str:
    """A hint when a file was given to the wrong command, recognized by its keys; else empty."""
    keys = {line.partition(":")[0] for line in _lines_of(error.where) if ":" in line}
    document = error.document if isinstance(error, InvalidInput) else ""
    if document == JOB_FILE and keys & {"budgets", "guardrails"}:
        return "this looks like a policy file; use `gpubroker policy check`"
    if document == POLICY_FILE and keys & {"run", "resources"}:
        return "this looks like a job file; use `gpubroker plan`"
    return ""


def _once(problem: Problem, listed: set[str]) -> Problem:
    """The problem with a subject, and without a list of known keys that was already printed."""
    listing = known_here(problem.known) if problem.known else ""
    told = problem.message.removesuffix(listing) if listing in listed else problem.message
    listed.add(listing)
    if not problem.key and told.startswith(("is ", "has ", "must ")):
        told = f"the file {told}"
    return replace(problem, message=told)


def _problem(problem: Problem, where: str, lines: list[str]) -> Text:
    from rich.text import Text

    text = Text(style="not bold default")
    if problem.line:
        text.append(f"  {place(where, problem.line, problem.column)}: ", style="bold")
    else:
        text.append("  ")
    text.append(f"{_clean(problem.key)}: " if problem.key else "")
    text.append(_clean(problem.message))
    excerpt = lines[problem.line - 1] if 1 <= problem.line <= len(lines) else ""
    if excerpt and "secrets" not in problem.key + excerpt:  # such a line may contain a secret's value
        line, caret = _cut(excerpt, problem.column)
        number = f"{problem.line:>6}"
        text.append(f"\n  {number} | {line}", style="dim")
        if problem.column:
            text.append(f"\n  {' ' * len(number)} | {' ' * caret}", style="dim")
            text.append("^", style="bold red")
    return text


def _cut(line: str, column: int) -> tuple[str, int]:
    """The part of the line around the column, and the 0-based position of the column in that part."""
    at = max(column - 1, 0)
    start = max(0, at - _LONGEST_LINE // 2) if len(line) > _LONGEST_LINE else 0
    shown = line[start : start + _LONGEST_LINE]
    return CONTROL.sub("?", shown.replace("\t", " ")), min(at - start, len(shown))


def _lines_of(where: str) -> list[str]:
    """The lines of the file; empty if it cannot be read or is too large."""
    try:
        path = Path(where)
        if not where or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return []
        return path.read_text("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def _clean(text: str) -> str:
    """The text without control characters, so that the content of a file cannot control the terminal."""
    return CONTROL.sub("?", text)


def keep_traceback(error: BaseException) -> Path | None:
    """Append the traceback to the log file. Returns the file's path, or None if it could not be written."""
    import os

    import platformdirs

    home = Path(os.environ.get("GPUBROKER_HOME") or platformdirs.user_data_dir("gpubroker"))
    path = home / "errors.log"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(f"--- {datetime.now(UTC).isoformat()}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return path
