"""Errors as text: what is wrong, where (with the line of the file), and what to do next."""

import re
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from broker.core.errors import JOB_FILE, POLICY_FILE, BrokerError, InvalidInput, Problem, known_names_suffix, place

_MAX_PROBLEMS = 200  # shown for one file; --json has all
_MAX_BYTES = 1_000_000
_MAX_LINE = 100
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal or the direction of text, other than tabs and line breaks; and lone surrogates."""


def error_text(error: BrokerError) -> Text:
    """The error, each problem with its position and an excerpt of the file, and the hint; then the errors of other
    files."""
    other_errors = error.others if isinstance(error, InvalidInput) else ()
    return Text("\n").join([_single_error_text(error), *map(error_text, other_errors)])


def _single_error_text(error: BrokerError) -> Text:
    text = Text("error: ", style="bold red")
    text.append(_mask_control(str(error)), style="not bold default")
    if isinstance(error, InvalidInput) and error.problems:
        lines = _read_lines(error.where)
        new_problems = [problem for problem in error.problems if problem.message not in error.message]
        listed_names: set[str] = set()
        for problem in new_problems[:_MAX_PROBLEMS]:
            text.append("\n")
            text.append(_problem_text(_without_known_names(problem, listed_names), error.where, lines))
        if len(new_problems) > _MAX_PROBLEMS:
            hidden_count = len(new_problems) - _MAX_PROBLEMS
            text.append(f"\n… and {hidden_count} more; use --json to list all", style="not bold default")
    if command_hint := _wrong_command_hint(error):
        text.append("\nhint: ", style="bold cyan")
        text.append(command_hint, style="not bold default")
    if error.hint:
        text.append("\nhint: ", style="bold cyan")
        text.append(_mask_control(error.hint), style="not bold default")
    return text


def _wrong_command_hint(error: BrokerError) -> str:
    """A hint when a file was given to the wrong command, recognized by its keys; else empty."""
    keys = {line.partition(":")[0] for line in _read_lines(error.where) if ":" in line}
    document = error.document if isinstance(error, InvalidInput) else ""
    if document == JOB_FILE and keys & {"budgets", "guardrails"}:
        return "this looks like a policy file; use `gpubroker policy check`"
    if document == POLICY_FILE and keys & {"run", "resources"}:
        return "this looks like a job file; use `gpubroker plan`"
    return ""


def _without_known_names(problem: Problem, listed_names: set[str]) -> Problem:
    """The problem with a subject, and without a list of known keys that was already printed."""
    known_names = known_names_suffix(problem.known) if problem.known else ""
    message = problem.message.removesuffix(known_names) if known_names in listed_names else problem.message
    listed_names.add(known_names)
    if not problem.key and message.startswith(("is ", "has ", "must ")):
        message = f"the file {message}"
    return replace(problem, message=message)


def _problem_text(problem: Problem, where: str, lines: list[str]) -> Text:
    text = Text(style="not bold default")
    if problem.line:
        text.append(f"  {place(where, problem.line, problem.column)}: ", style="bold")
    else:
        text.append("  ")
    text.append(f"{_mask_control(problem.key)}: " if problem.key else "")
    text.append(_mask_control(problem.message))
    excerpt = lines[problem.line - 1] if 1 <= problem.line <= len(lines) else ""
    if excerpt and "secrets" not in problem.key + excerpt:  # such a line may contain a secret's value
        line, caret = _excerpt(excerpt, problem.column)
        number = f"{problem.line:>6}"
        text.append(f"\n  {number} | {line}", style="dim")
        if problem.column:
            text.append(f"\n  {' ' * len(number)} | {' ' * caret}", style="dim")
            text.append("^", style="bold red")
    return text


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """The part of the line around the column, and the 0-based position of the column in that part."""
    position = max(column - 1, 0)
    start = max(0, position - _MAX_LINE // 2) if len(line) > _MAX_LINE else 0
    excerpt = line[start : start + _MAX_LINE]
    return CONTROL.sub("?", excerpt.replace("\t", " ")), min(position - start, len(excerpt))


def _read_lines(where: str) -> list[str]:
    """The lines of the file; empty if it cannot be read or is too large."""
    try:
        path = Path(where)
        if not where or not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return []
        return path.read_text("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def _mask_control(text: str) -> str:
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
